"""The conditions of a sum: those on indices alone, and the order in which they protect reads."""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.build import all_of
from ...expr.lets import merge_equal
from ...expr.nodes import Expr, is_float, is_load, node_id, operands
from ...expr.rewrite import contains, postorder
from ...rules.terms import Condition


def on_indices(condition: Expr) -> bool:
    """Whether a condition is on indices alone: no tensor is read and no float is compared."""
    return not contains(condition, lambda node: is_load(node) or is_float(node))


def in_order(others: Sequence[Condition], data: Sequence[Condition]) -> list[Condition]:
    """``[x[b - I] > 0], [b >= I]  →  b >= I, x[b - I] > 0``: bounds stand before what they protect.

    Parameters
    ----------
    others : sequence of Condition
        In the order in which the stage evaluates them.
    data : sequence of Condition
        Where a solution that holds data exists. They stand behind the `others` that read nothing at
        a place with this data: these may protect what they read themselves. Among them,
        ``I[b - I[0] + 3] == c`` stands behind ``b >= I[0]``: what reads at data behind what does
        not.
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
    """How many reads stand in each other's indices, at most."""
    depths: dict[int, int] = {}
    for node in postorder(expr):
        inner = max((depths[node_id(part)] for part in operands(node)), default=0)
        depths[node_id(node)] = inner + is_load(node)
    return depths[node_id(expr)]


def _joined(conditions: Sequence[Condition]) -> list[Condition]:
    """``if a then (if b then v) → if a and b then v``, where b reads nothing that a does not."""
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
