"""Bounds of integer expressions by trying all values of their variables.

Quotients of sums of quotients are beyond analysers that look at one node at a time; where few
points decide, counting is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ...errors import UnsolvableError
from ..build import compare, const, sub
from ..linear_terms import linear_terms
from ..nodes import Expr, Var, dtype_of, is_integer, op_name, operands, same_node
from ..rewrite import contains_load, variables_of
from .integer_functions import compile_integers

_MOST_POINTS = 4096  #: about a millisecond

Box = Mapping[Var, tuple[int, int]]  #: minimum and extent of each variable


def literal_box(ranges: Mapping[Var, tuple[Any, Any]]) -> dict[Var, tuple[int, int]]:
    """The variables whose minimum and extent are numbers."""
    return {
        var: (low, extent)
        for var, (low, extent) in ranges.items()
        if isinstance(low, int) and isinstance(extent, int)
    }


def tried_bounds(expr: Expr, box: Box) -> tuple[int, int] | None:
    """The least and the greatest value of an expression; None for too many points, or data.

    Summands without common variables are tried apart.

    Examples
    --------
    >>> from tvm import te
    >>> i, j = te.var("i"), te.var("j")
    >>> tried_bounds((i + 4) // 8 - (i + 28) // 32 * 4 + j, {i: (0, 32), j: (0, 999)})
    (-3, 998)
    """
    terms, constant = linear_terms(expr)
    low = high = constant
    for variables, part in _apart(terms):
        if any(var not in box for var in variables) or contains_load([node for node, _ in part]):
            return None
        if prod(box[var][1] for var in variables) > _MOST_POINTS:
            return None
        values = _values(part, variables, box)
        if not values:
            return None
        low, high = low + min(values), high + max(values)
    return low, high


def tried_values(expr: Expr, box: Box) -> set[int] | None:
    """All values of an expression; None for too many points, or data.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> sorted(tried_values(i // 2 * 3, {i: (0, 6)}))
    [0, 3, 6]
    """
    variables = variables_of(expr)
    if any(var not in box for var in variables) or contains_load(expr):
        return None
    if prod(box[var][1] for var in variables) > _MOST_POINTS:
        return None
    return _values([(expr, 1)], variables, box) or None


def surely_holds(condition: Expr, box: Box) -> bool:
    """Whether a comparison holds at all points, as far as trying them shows.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> surely_holds((i + 4) // 8 <= (i + 28) // 32 * 4 + 1, {i: (0, 32)})
    True
    """
    name = op_name(condition)
    if name not in ("le", "lt", "ge", "gt"):
        return False
    left, right = operands(condition)
    if not is_integer(left):
        return False
    if name in ("ge", "gt"):
        left, right = right, left
    found = tried_bounds(sub(right, left), box)
    return found is not None and found[0] >= (name in ("lt", "gt"))


def as_bounds(condition: Expr, box: Box, given: Sequence[Expr] = ()) -> list[Expr]:
    """``i // 2 * 3 < i → i == 1``: a condition that holds in one interval of its only variable, as
    far as others that are `given` hold, as linear conditions; itself where it does not.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> as_bounds(i // 2 * 3 < i, {i: (0, 48)}), as_bounds(i % 2 < 1, {i: (0, 48)})
    ([i == 1], [i % 2 < 1])
    >>> as_bounds(te.all(i // 3 > 1, i % 12 < 9), {i: (0, 12)}), as_bounds(i // 2 >= 0, {i: (0, 9)})
    ([i >= 6, i <= 8], [])
    >>> as_bounds(i <= (i + 2) // 3 * 2 + 14, {i: (0, 48)}, [(i + 2) % 3 <= 1])
    [i <= 46]
    """
    variables = variables_of(condition)
    if len(variables) != 1 or variables[0] not in box:
        return [condition]
    [var] = variables
    low, extent = box[var]
    given = [one for one in given if all(same_node(var, own) for own in variables_of(one))]
    if not 0 < extent <= _MOST_POINTS or contains_load([condition, *given]):
        return [condition]
    try:
        holds = compile_integers([condition, *given], variables)
    except UnsolvableError:
        return [condition]
    found = {place: holds(place) for place in range(low, low + extent)}
    counted = [place for place, (_, *others) in found.items() if all(others)]
    places = [place for place in counted if found[place][0]]
    if not places or places != [p for p in counted if places[0] <= p <= places[-1]]:
        return [condition]
    first, last = (const(place, dtype_of(var)) for place in (places[0], places[-1]))
    if len(places) == 1:
        return [compare("eq", var, first)]
    lower = [compare("ge", var, first)] if places[0] > counted[0] else []
    return [*lower, *([compare("le", var, last)] if places[-1] < counted[-1] else [])]


def _apart(terms: Sequence[tuple[Expr, int]]) -> list[tuple[list[Var], list[tuple[Expr, int]]]]:
    """The terms in groups that have no variable in common."""
    groups: list[tuple[list[Var], list[tuple[Expr, int]]]] = []
    for node, factor in terms:
        own, part, apart = variables_of(node), [(node, factor)], []
        for variables, others in groups:
            if any(same_node(var, one) for var in variables for one in own):
                own = [*variables, *(v for v in own if not any(same_node(v, o) for o in variables))]
                part = [*others, *part]
            else:
                apart.append((variables, others))
        groups = [*apart, (own, part)]
    return groups


def _values(terms: Sequence[tuple[Expr, int]], variables: Sequence[Var], box: Box) -> set[int]:
    """The values of a sum of terms; nothing if an operator is unknown."""
    try:
        values = compile_integers([node for node, _ in terms], variables)
    except UnsolvableError:
        return set()
    factors = [factor for _, factor in terms]
    ranges = [range(box[var][0], sum(box[var])) for var in variables]
    return {
        sum(k * value for k, value in zip(factors, values(*point), strict=True))
        for point in itertools.product(*ranges)
    }
