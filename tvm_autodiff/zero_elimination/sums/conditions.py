"""Conditions of a sum: which of them involve only indices, which are settled by the ranges of
indices, and in which order they protect reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...expr.build import all_of, any_of, const, negate
from ...expr.fold import fold
from ...expr.nodes import (
    COMPARISONS,
    INDEX_DTYPES,
    Expr,
    Var,
    dtype_of,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import BranchRewriter, contains, depends_on, postorder
from ...expr.sharing.lets import merge_equal
from ...expr.simplify import prove
from ...rules.terms import Condition
from .windows import Ranges

#: connectives without their literal operands
_CONNECTIVES: dict[str, Callable[[Sequence[Expr]], Expr]] = {
    "and": all_of,
    "or": any_of,
    "not": lambda parts: negate(parts[0]),
}


def on_indices(condition: Expr) -> bool:
    """Whether a condition involves only indices: it reads no tensor and compares no floats."""
    return not contains(condition, lambda node: is_load(node) or is_float(node))


def settled(value: Expr, summed: Sequence[Var], ranges: Ranges) -> Expr:
    """``if b >= 0 then x[b] else 0 → x[b]``: comparisons that depend on no axis of the sum any
    more, and that the ranges of the others decide.
    """
    facts: dict[int, bool] = {}
    for node in postorder(value):
        if op_name(node) not in COMPARISONS or dtype_of(operands(node)[0]) not in INDEX_DTYPES:
            continue  # TVM subtracts what it compares, also of unsigned types
        if not on_indices(node) or depends_on(node, summed):
            continue
        if prove(node, ranges):
            facts[node_id(node)] = True
        elif prove(negate(node), ranges):
            facts[node_id(node)] = False

    def visit(node: Expr) -> Expr | None:
        if node_id(node) in facts:
            return const(facts[node_id(node)], "bool")
        rule = _CONNECTIVES.get(op_name(node))
        return None if rule is None else rule(operands(node))

    return fold(BranchRewriter(visit)(value)) if facts else value


def in_order(others: Sequence[Condition], data: Sequence[Condition]) -> list[Condition]:
    """``[x[b - I] > 0], [b >= I] → b >= I, x[b - I] > 0``: bounds come before the reads they
    protect.

    Parameters
    ----------
    others : sequence of Condition
        Conditions in the order in which the stage evaluates them.
    data : sequence of Condition
        Conditions for a solution that contains data to exist. They follow the `others` that do not
        read at an index with this data, because these may protect their own reads. Among them,
        ``I[b - I[0] + 3] == c`` follows ``b >= I[0]``: conditions that read at data come last.
    """
    data = sorted(data, key=lambda condition: _nesting(condition.expr))
    merged = merge_equal([*(c.expr for c in data), *(c.expr for c in others)])
    reads = {node_id(node) for node in postorder(merged[: len(data)]) if is_load(node)}
    first: list[Condition] = []
    last: list[Condition] = []
    for condition, expr in zip(others, merged[len(data) :], strict=True):
        places = [i for node in postorder(expr) if is_load(node) for i in operands(node)]
        bound = any(node_id(node) in reads for node in postorder(places))
        (last if last or bound else first).append(condition)
    return [*_joined(first), *data, *_joined(last)]


def _nesting(expr: Expr) -> int:
    """The maximum nesting depth of reads in indices."""
    depths: dict[int, int] = {}
    for node in postorder(expr):
        inner = max((depths[node_id(part)] for part in operands(node)), default=0)
        depths[node_id(node)] = inner + is_load(node)
    return depths[node_id(expr)]


def _joined(conditions: Sequence[Condition]) -> list[Condition]:
    """``if a then (if b then v) → if a and b then v``, if b reads nothing that a does not read."""
    result: list[Condition] = []
    reads: set[int] = set()
    for condition in conditions:
        own = {node_id(node) for node in postorder(condition.expr) if is_load(node)}
        if result and own <= reads and condition.guards == result[-1].guards:
            result[-1] = Condition(all_of([result[-1].expr, condition.expr]), condition.guards)
        else:
            result.append(condition)
            reads = own
    return result
