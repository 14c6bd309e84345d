"""Splits a loop where its conditions change, so that no piece contains one.

``j < 256 ? a : b`` is ``a`` in ``0 .. 256`` and ``b`` after it. Conditions on other variables stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ....expr.build import add, all_of, any_of, const, if_then_else, negate, select, sub
from ....expr.nodes import COMPARISONS, Expr, Var, node_id, op_name, operands
from ....expr.rewrite import postorder, replace_outermost, rewrite
from ...nest.access import Affine, affine_forms, combine

MAX_PIECES = 16

Piece = tuple[int, int, tuple[Expr, ...]]  #: begin, end, the expressions in between

#: comparison of a difference with zero → whether it holds from below and from above
_HOLDS = {
    "lt": lambda low, high: (high < 0, low < 0),
    "le": lambda low, high: (high <= 0, low <= 0),
    "gt": lambda low, high: (low > 0, high > 0),
    "ge": lambda low, high: (low >= 0, high >= 0),
    "eq": lambda low, high: (low == high == 0, low <= 0 <= high),
    "ne": lambda low, high: (low > 0 or high < 0, not low == high == 0),
}


#: nodes that get simpler where a branch is known
_FOLDS: dict[str, Callable[..., Expr]] = {
    "if_then_else": if_then_else,
    "select": select,
    "add": add,
    "sub": sub,
}


def pieces(roots: Sequence[Expr], var: Var, extent: int) -> list[Piece]:
    """The loop ``0 <= var < extent`` in pieces, or in one piece if there are no or too many cuts.
    """
    forms = _differences(roots, var)
    cuts = {0, extent}
    for form in forms.values():
        slope, constant = form.coefficient(node_id(var)), form.constant
        # where a difference becomes zero, and one after it
        root = -constant // slope
        cuts |= {place for place in (root, root + 1) if 0 < place < extent}
    if len(cuts) > 4 * MAX_PIECES:
        return [(0, extent, tuple(roots))]
    found: list[Piece] = []
    keys: list[object] = []
    places = sorted(cuts)
    nodes = [node for node in postorder(list(roots)) if node_id(node) in forms]
    for begin, end in pairwise(places):
        truths = {
            node_id(node): _truth(node, forms[node_id(node)], var, begin, end) for node in nodes
        }
        key = tuple(truths.items())
        if keys and keys[-1] == key:
            found[-1] = (found[-1][0], end, found[-1][2])
            continue
        keys.append(key)
        found.append((begin, end, tuple(_resolved(root, truths) for root in roots)))
    return found if len(found) <= MAX_PIECES else [(0, extent, tuple(roots))]


def _differences(roots: Sequence[Expr], var: Var) -> dict[int, Affine]:
    """Comparisons that depend on the variable alone, as differences of their sides."""
    order = {node_id(var): 0}
    nodes = [node for node in postorder(list(roots)) if op_name(node) in COMPARISONS]
    sides = [side for node in nodes for side in operands(node)]
    forms = affine_forms(sides, [var])
    found: dict[int, Affine] = {}
    for node in nodes:
        left, right = (forms.get(node_id(side)) for side in operands(node))
        if left is not None and right is not None:
            difference = combine(left, right, -1, order)
            if difference.terms:
                found[node_id(node)] = difference
    return found


def _truth(node: Expr, form: Affine, var: Var, begin: int, end: int) -> bool | None:
    slope = form.coefficient(node_id(var))
    ends = sorted((slope * begin + form.constant, slope * (end - 1) + form.constant))
    always, sometimes = _HOLDS[op_name(node)](*ends)
    return True if always else (None if sometimes else False)


def _resolved(root: Expr, truths: dict[int, bool | None]) -> Expr:
    """The expression with decided comparisons and branches replaced."""
    decided = {key: const(int(truth), "bool") for key, truth in truths.items() if truth is not None}

    def visit(node: Expr) -> Expr | None:
        name = op_name(node)
        if name == "and":
            return all_of(operands(node))
        if name == "or":
            return any_of(operands(node))
        if name == "not":
            return negate(operands(node)[0])
        fold = _FOLDS.get(name)
        return None if fold is None else fold(*operands(node))

    return rewrite(replace_outermost(root, decided), visit)
