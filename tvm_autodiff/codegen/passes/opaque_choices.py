"""Hides conditions from TVM where it would change what is read beside them.

Both sides of a choice are evaluated, but TVM simplifies each as if the condition decided it:
``select(0 <= d[i] < 5, g[max(min(d[i], 4), 0)], 0)`` would read ``g[d[i]]`` for any d, and
``select(i < n, g[min(i, n - 1)], 0)`` would read ``g[i]``. So are both sides of a conjunction, into
which TVM merges the conditions of nested branches: ``if i < 1 then (if g[(i + 2) % 5] > 0 then a)``
would test ``g[i + 2]`` for any i. TVM does not look into calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from ...expr.intrinsics import itself
from ...expr.nodes import Expr, node_id, op_name, operands, with_operands
from ...expr.rewrite import contains
from ..functions import with_body
from .short_circuit import condition_of

#: what an index may hold that is another under a condition
_BENT = frozenset(
    ("min", "max", "select", "if_then_else", "floordiv", "floormod", "truncdiv", "truncmod")
    + ("tensorload",)
)
#: nodes whose condition TVM may join with that of a branch around them
_JOINED = ("if_then_else", "select")


def hide_choices(func: Any) -> Any:
    """``select(c, x[max(i, 0)], 0) → select(itself(c), x[max(i, 0)], 0)`` in a PrimFunc, and
    ``c and x[max(i, 0)] > 0 → itself(c) and x[max(i, 0)] > 0``.
    """
    bent: set[int] = set()  # variables that stand for such an index: ``b = row % 4``

    def is_bent(node: Expr) -> bool:
        return op_name(node) in _BENT or node_id(node) in bent

    def bind(node: Any) -> None:
        if contains(node.value, is_bent):
            bent.add(node_id(node.var))

    def of_choice(node: Any) -> Any:
        if not any(_reads_at(is_bent, side) for side in (node.true_value, node.false_value)):
            return node
        return tirx.Select(itself(node.condition), node.true_value, node.false_value)

    def of_conditions(node: Any) -> Any:
        left, right = operands(node)
        return with_operands(node, [itself(left), right]) if tests(right) else node

    def of_branch(node: Any) -> Any:
        if op_name(node) != "if_then_else":
            return node
        condition, *sides = operands(node)
        if not any(map(holds_test, sides)):
            return node
        return with_operands(node, [itself(condition), *sides])

    def tests(condition: Any) -> bool:
        return condition_of(condition) is None and _reads_at(is_bent, condition)

    inside: dict[int, tuple[Any, bool]] = {}  # nodes, which stay, and whether they hold a test

    def holds_test(side: Any) -> bool:
        pending = [side]
        while pending:
            node = pending[-1]
            unknown = [part for part in operands(node) if node_id(part) not in inside]
            if unknown and node_id(node) not in inside:
                pending += unknown
                continue
            pending.pop()
            found = op_name(node) in _JOINED and tests(operands(node)[0])
            found = found or any(inside[node_id(part)][1] for part in operands(node))
            inside.setdefault(node_id(node), (node, found))
        return inside[node_id(side)][1]

    tvm_ffi.structural_walk(func.body, [((tirx.Bind, prim.Let), bind)])
    both = (prim.And, prim.Or)
    rules = [(prim.Select, of_choice), (both, of_conditions), (ir.Call, of_branch)]
    return with_body(func, tvm_ffi.structural_map(func.body, rules))


def _reads_at(is_bent: Callable[[Expr], bool], side: Any) -> bool:
    """Whether an expression reads at an index that is another under a condition."""
    found: list[bool] = []

    def read(node: Any) -> None:
        found.append(any(contains(index, is_bent) for index in node.indices))

    tvm_ffi.structural_walk(side, [(ir.TensorLoad, read)])
    return any(found)
