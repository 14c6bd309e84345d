"""Counts the points of a loop nest whose ranges may depend on other loops, under conditions.

Loops that share no range and no condition are counted separately and multiplied, so windows in
several dimensions cost the sum of their sizes. Each group is counted point by point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import UnsolvableError
from ..nodes import Expr, Var, node_id
from ..rewrite import variables_of
from .integer_functions import compile_integers

#: the maximum number of points counted in one group
_MOST_POINTS = 1 << 18

Loop = tuple[Var, Any, Any]  #: variable, minimum, extent; these are expressions or ints


@dataclass
class _Group:
    """A group of dependent loops, in order, with the conditions on them."""

    loops: list[Loop] = field(default_factory=list)
    conditions: list[Expr] = field(default_factory=list)


def loop_points(loops: Sequence[Loop], conditions: Sequence[Expr] = ()) -> int | None:
    """The number of points, or None if there are too many or a value is unknown.

    Parameters
    ----------
    loops : sequence of (variable, minimum, extent)
        Loops from the outermost to the innermost. A range may depend on variables of earlier loops.
    conditions : sequence of Expr
        Conditions on the variables. A point counts if all of them hold.

    Examples
    --------
    >>> from tvm import te
    >>> i, j, k = te.var("i"), te.var("j"), te.var("k")
    >>> loop_points([(i, 0, 4), (j, 0, i + 1), (k, 0, 5)], [k < 3])
    30
    """
    total = 1
    for group in _groups(loops, conditions):
        count = _points(group)
        if count is None:
            return None
        total *= count
    return total


def _groups(loops: Sequence[Loop], conditions: Sequence[Expr]) -> list[_Group]:
    """Loops joined by their ranges and by conditions, as a union of sets."""
    group_of = {node_id(var): n for n, (var, _, _) in enumerate(loops)}

    def join(exprs: Iterable[Expr | int]) -> int | None:
        met = [
            node_id(var)
            for expr in exprs
            if not isinstance(expr, int)
            for var in variables_of(expr)
            if node_id(var) in group_of
        ]
        if not met:
            return None
        first = group_of[met[0]]
        merged = {group_of[key] for key in met}
        for key, group in group_of.items():
            if group in merged:
                group_of[key] = first
        return met[0]

    for var, low, extent in loops:
        join((var, low, extent))
    places = [join((condition,)) for condition in conditions]
    groups: dict[int | None, _Group] = {}
    for loop in loops:
        groups.setdefault(group_of[node_id(loop[0])], _Group()).loops.append(loop)
    for place, condition in zip(places, conditions, strict=True):
        key = None if place is None else group_of[place]
        groups.setdefault(key, _Group()).conditions.append(condition)
    return list(groups.values())


def _points(group: _Group) -> int | None:
    if len(group.loops) == 1 and not group.conditions and isinstance(group.loops[0][2], int):
        return max(0, group.loops[0][2])
    known: list[Var] = []
    pending = list(group.conditions)
    points: list[tuple[int, ...]] = [()]
    try:
        for var, low, extent in group.loops:
            bounds = compile_integers([low, extent], known)
            ranges = [bounds(*point) for point in points]
            if sum(max(0, size) for _, size in ranges) > _MOST_POINTS:
                return None
            known.append(var)
            points = [
                (*point, n)
                for point, (start, size) in zip(points, ranges, strict=True)
                for n in range(start, start + size)
            ]
            ids = {node_id(v) for v in known}
            ready = [c for c in pending if all(node_id(v) in ids for v in variables_of(c))]
            if ready:
                holds = compile_integers(ready, known)
                points = [point for point in points if all(holds(*point))]
                pending = [c for c in pending if not any(c is other for other in ready)]
        if pending:  # on no loop, or on something that is not known
            return len(points) if all(compile_integers(pending, known)()) else 0
    except (UnsolvableError, KeyError):
        return None
    return len(points)
