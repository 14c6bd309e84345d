"""Hides the conditions of choices from TVM where it would change what is read.

Both sides of a choice are evaluated, but TVM simplifies each as if the condition decided it:
``select(0 <= d[i] < 5, g[max(min(d[i], 4), 0)], 0)`` would read ``g[d[i]]`` for any d, and
``select(i < n, g[min(i, n - 1)], 0)`` would read ``g[i]``. TVM does not look into calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from ...expr.intrinsics import itself
from ...expr.nodes import Expr, node_id, op_name
from ...expr.rewrite import contains
from ..functions import with_body

#: what an index may hold that is another under a condition
_BENT = frozenset(
    ("min", "max", "select", "if_then_else", "floordiv", "floormod", "truncdiv", "truncmod")
    + ("tensorload",)
)


def hide_choices(func: Any) -> Any:
    """``select(c, x[max(i, 0)], 0) → select(itself(c), x[max(i, 0)], 0)`` in a PrimFunc."""
    bent: set[int] = set()  # variables that stand for such an index: ``b = row % 4``

    def is_bent(node: Expr) -> bool:
        return op_name(node) in _BENT or node_id(node) in bent

    def bind(node: Any) -> None:
        if contains(node.value, is_bent):
            bent.add(node_id(node.var))

    def hidden(node: Any) -> Any:
        if not any(_reads_at(is_bent, side) for side in (node.true_value, node.false_value)):
            return node
        return tirx.Select(itself(node.condition), node.true_value, node.false_value)

    tvm_ffi.structural_walk(func.body, [((tirx.Bind, prim.Let), bind)])
    body = tvm_ffi.structural_map(func.body, (prim.Select, hidden))
    return with_body(func, body)


def _reads_at(is_bent: Callable[[Expr], bool], side: Any) -> bool:
    """Whether an expression reads at an index that is another under a condition."""
    found: list[bool] = []

    def read(node: Any) -> None:
        found.append(any(contains(index, is_bent) for index in node.indices))

    tvm_ffi.structural_walk(side, [(ir.TensorLoad, read)])
    return any(found)
