"""Splits clamps and choices inside indices into cases.

Replicated and reflected padding and clamped windows have `min`, `max`, `select` or branches on
indices inside an index. Each case has plain indices and a condition. The cases are disjoint and
cover the term, so each can be solved separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import compare, negate
from ...expr.nodes import BRANCHES, Expr, node_id, op_name, operands
from ...expr.rewrite import Rewriter, contains, contains_load, postorder
from ...expr.sharing.lets import merge_equal
from ...expr.simplify import Ranges, prove
from ...rules.terms import Condition, Term
from ..sums.conditions import on_indices
from .splitting import fully_split

#: the maximum number of cases of one term
_MOST_CASES = 81
#: node → comparison of its operands under which it equals the first
_CLAMPS = {"min": "le", "max": "ge"}


def cases_of(term: Term, ranges: Ranges) -> list[Term] | None:
    """``x[min(i, 3)] → [i <= 3] x[i], [i > 3] x[3]``.

    Cases that the ranges of the variables exclude are omitted. Returns None if no index contains a
    clamp or choice, or if there are too many.
    """
    return fully_split(term, lambda current: _split(current, ranges), _MOST_CASES)


def _split(term: Term, ranges: Ranges) -> list[Term] | None:
    """The possible cases of the innermost clamp or choice in the indices."""
    merged = merge_equal([*term.indices, *(c.expr for c in term.conditions)])
    indices, conditions = merged[: len(term.indices)], merged[len(term.indices) :]
    for node in postorder(indices):
        choice = choice_at(node)
        if choice is None:
            continue
        # the replacement is valid in its case only, so the condition precedes all that contain the
        # node
        first = _first_with(node, conditions)
        result = []
        for holds, value in choice:
            if prove(negate(holds), ranges):
                continue
            put = replacing(node, value)
            kept = [
                Condition(put(expr), old.guards)
                for expr, old in zip(conditions, term.conditions, strict=True)
            ]
            result.append(
                replace(
                    term,
                    indices=tuple(put(index) for index in indices),
                    conditions=(*kept[:first], Condition(holds, True), *kept[first:]),
                )
            )
        return result
    return None


def _first_with(node: Expr, exprs: Sequence[Expr]) -> int:
    """The number of the first expression that contains a node, or the number of expressions."""
    key = node_id(node)
    for number, expr in enumerate(exprs):
        if contains(expr, lambda part: node_id(part) == key):
            return number
    return len(exprs)


def choice_at(node: Expr) -> list[tuple[Expr, Expr]] | None:
    """``min(a, b) → [a <= b] a, [a > b] b``: the two values of a clamp or choice by indices, each
    with the condition under which it has it; None for other nodes and for data.
    """
    name = op_name(node)
    if name in _CLAMPS:
        left, right = operands(node)
        condition, then, otherwise = compare(_CLAMPS[name], left, right), left, right
    elif name in BRANCHES:
        condition, then, otherwise = operands(node)
    else:
        return None
    if contains_load(node) or not on_indices(condition):
        return None
    return [(condition, then), (negate(condition), otherwise)]


def replacing(node: Expr, value: Expr) -> Rewriter:
    """The replacement of one node by a value."""
    key = node_id(node)
    return Rewriter(lambda part: value if node_id(part) == key else None)
