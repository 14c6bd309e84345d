"""Evaluates marked conditions only if the conditions before them leave the result open.

``a and b → if a then b else false``, ``a or b → if a then true else b``. On a CPU TVM evaluates
both sides, and merges two nested branches into one conjunction, so no form of a stage keeps a guard
before a read. A condition that must not be evaluated everywhere is marked (`marked`); TVM does not
change the mark, and LLVM removes it. This is the last step before machine code.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ...expr.build import all_of, any_of, cast, compare, const, if_then_else, negate, true
from ...expr.nodes import Expr, dtype_of, is_const, node_id, op_name, operands
from ...expr.rewrite import postorder
from ..functions import with_body


def marked(condition: Expr) -> Expr:
    """A condition that is evaluated only after those before it: ``c → float32(c) != 0``, which TVM
    does not simplify. It would look for bounds of a number ``int32(c)`` at every choice inside of c
    several times, and take twelve times as long for each one more.
    """
    return compare("ne", cast("float32", condition), const(0.0, "float32"))


def condition_of(node: Expr) -> Expr | None:
    """``marked(c) → c``, and ``not marked(c) → not c``, which TVM writes as ``float32(c) == 0``.

    None for other nodes.
    """
    if op_name(node) not in ("ne", "eq") or not is_const(operands(node)[1], 0):
        return None
    number = operands(node)[0]
    if op_name(number) != "cast" or dtype_of(operands(number)[0]) != "bool":
        return None
    return operands(number)[0] if op_name(node) == "ne" else negate(operands(number)[0])


@tirx.transform.prim_func_pass(opt_level=0)
def short_circuited(func: Any, _module: Any, _context: Any) -> Any:
    """The function with branches instead of conjunctions of marked conditions."""
    found: list[Any] = []

    def find(node: Any) -> None:
        if condition_of(node) is not None:
            found.append(node)

    tvm_ffi.structural_walk(func.body, [(prim.NE, find), (prim.EQ, find)])
    if not found:
        return func
    body = tvm_ffi.structural_map(func.body, [(prim.And, cut_short), (prim.Or, cut_short)])
    return with_body(func, body)


@tirx.transform.prim_func_pass(opt_level=0)
def ordered_for_c(func: Any, _module: Any, _context: Any) -> Any:
    """The function without marks, marked conditions behind the others: what TVM writes as C leaves
    out the right side of ``&&`` and ``||`` where the left one decides.
    """

    def ordered(node: Expr) -> Expr:
        parts = list(operands(node))
        late = [part for part in parts if holds_mark(part)]
        early = [part for part in parts if not any(part is other for other in late)]
        join = all_of if op_name(node) == "and" else any_of
        return join([*early, *late]) if early and late else node

    def unmarked(node: Expr) -> Expr:
        found = condition_of(node)
        return node if found is None else found

    body = tvm_ffi.structural_map(func.body, [(prim.And, ordered), (prim.Or, ordered)])
    body = tvm_ffi.structural_map(body, [(prim.NE, unmarked), (prim.EQ, unmarked)])
    return with_body(func, body)


def holds_mark(roots: Expr | Sequence[Expr]) -> bool:
    """Whether any condition is marked. TVM loses marks in vectors, so such expressions stay scalar.
    """
    return any(condition_of(node) is not None for node in postorder(roots))


def surely_evaluated(roots: Sequence[Expr]) -> list[Expr]:
    """The nodes that are evaluated for all values of conditions, users first.

    This excludes branches, and parts of conjunctions with marks that may be skipped.
    """
    late = nodes_with_marks(roots)
    found: list[Expr] = []
    pending, seen = list(reversed(roots)), set()
    while pending:
        node = pending.pop()
        if node_id(node) in seen:
            continue
        seen.add(node_id(node))
        found.append(node)
        pending += reversed(sure_operands(node, late))
    return found


def nodes_with_marks(roots: Sequence[Expr]) -> set[int]:
    """The ids of the nodes that are a marked condition or have one inside."""
    found: set[int] = set()
    for node in postorder(list(roots)):
        inside = any(node_id(part) in found for part in operands(node))
        if inside or condition_of(node) is not None:
            found.add(node_id(node))
    return found


def sure_operands(node: Expr, late: Collection[int]) -> tuple[Expr, ...]:
    """The operands that are evaluated wherever a node is; `late` are the `nodes_with_marks`."""
    name, parts = op_name(node), operands(node)
    if name == "if_then_else":
        return parts[:1]
    if name in ("and", "or"):
        return tuple(part for part in parts if node_id(part) not in late) or parts[:1]
    return parts


def cut_short(node: Expr) -> Expr:
    """``a and marked(b) → if a then b else false``, ``a or marked(b) → if a then true else b``."""
    parts = list(operands(node))
    late = [part for part in parts if holds_mark(part)]
    if not late:
        return node
    early = [part for part in parts if not any(part is other for other in late)]
    conjunction = op_name(node) == "and"
    result = late.pop()
    joined = [all_of(early) if conjunction else any_of(early)] if early else []
    for part in reversed([*joined, *late]):
        result = _followed(part, result, conjunction)
    return result


def _followed(first: Expr, second: Expr, conjunction: bool) -> Expr:
    """``(if a then b else false) and c → if a then (if b then c else false) else false``, and with
    ``true`` for ``or``. TVM walks a branch inside a condition again for each enclosing one.
    """
    parts = operands(first) if op_name(first) == "if_then_else" else None
    if conjunction:
        if parts is not None and is_const(parts[2], 0):
            return if_then_else(parts[0], _followed(parts[1], second, True), parts[2])
        return if_then_else(first, second, const(0, "bool"))
    if parts is not None and is_const(parts[1], 1):
        return if_then_else(parts[0], parts[1], _followed(parts[2], second, False))
    return if_then_else(first, true(), second)
