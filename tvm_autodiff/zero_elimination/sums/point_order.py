"""Keeps the points of a solved reduction in the order in which they were written.

The first of equal numbers is the one that a maximum has its derivative from, so a reducer that is
no sum takes its points in order. New axes are sorted and reversed until they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...errors import UnsolvableError
from ...expr.build import const, sub
from ...expr.linear_terms import linear_terms
from ...expr.nodes import (
    COMPARISONS,
    INDEX_DTYPES,
    Axis,
    Expr,
    Var,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import depends_on, rewrite, substituter
from ...expr.simplify import simplify
from ...graph.stage import axis_range, reduce_axis_over
from .sum import Sum


@dataclass(frozen=True)
class _Step:
    """An axis, and by how much it moves the first of the places that it moves."""

    axis: Axis
    level: int  #: the number of that place
    factor: int


def with_points_in_order(found: Sum, places: Sequence[Expr]) -> Sum:
    """``max_{t<4} x[j - t], k = j - t  →  max_{t<4} x[j - 3 + t]``.

    Parameters
    ----------
    found : Sum
        The solved reduction.
    places : sequence of Expr
        The axes of the reduction as it was written, outermost first, in terms of the new axes.

    Raises
    ------
    UnsolvableError
        If the order of the new points is not found to be that of the written ones.
    """
    steps = sorted(
        (_step(axis, found.axes, places) for axis in found.axes),
        key=lambda step: (step.level, -abs(step.factor)),
    )
    for number, step in enumerate(steps):
        inner = [other for other in steps[number + 1 :] if other.level == step.level]
        if inner and abs(step.factor) <= sum(map(_length, inner)):
            raise UnsolvableError("the places of several axes interleave")
    backward = {step.axis.var: _from_the_end(step.axis) for step in steps if step.factor < 0}
    if not backward and all(s.axis is axis for s, axis in zip(steps, found.axes, strict=True)):
        return found
    reverse = substituter(backward)

    def move(expr: Expr) -> Expr:
        return rewrite(reverse(expr), partial(_simplified, list(backward)))

    def moved(exprs: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(map(move, exprs))

    return replace(
        found,
        axes=tuple(_moved_axis(step.axis, move) for step in steps),
        source=move(found.source),
        guards=moved(found.guards),
        unsolved=moved(found.unsolved),
        masks=moved(found.masks),
        windows=moved(found.windows),
    )


def _simplified(axes: Sequence[Var], node: Expr) -> Expr | None:
    """``x[j - (3 - t)] → x[j + t - 3]``: indices and comparisons in which axes are reversed."""
    parts = operands(node)
    if op_name(node) in COMPARISONS and dtype_of(parts[0]) in INDEX_DTYPES:
        return simplify(node) if depends_on(parts, axes) else None
    if not is_load(node) or not depends_on(parts, axes):
        return None
    return load(load_tensor(node), list(map(simplify, parts)))


def _step(axis: Axis, axes: Sequence[Axis], places: Sequence[Expr]) -> _Step:
    """The first place that an axis moves is a multiple of it beside what does not depend on it, or
    on other axes that move this place first.
    """
    level = next((n for n, place in enumerate(places) if depends_on(place, [axis.var])), None)
    if level is None:
        raise UnsolvableError("an axis moves no place")
    terms, _ = linear_terms(places[level])
    own = [factor for node, factor in terms if node_id(node) == node_id(axis.var)]
    rest = [node for node, _ in terms if node_id(node) != node_id(axis.var)]
    if len(own) != 1 or depends_on(rest, [axis.var]):
        raise UnsolvableError("a place is not linear in an axis")
    return _Step(axis, level, own[0])


def _length(step: _Step) -> int:
    """How far an axis moves a place from its first to its last value."""
    _, extent = axis_range(step.axis)
    if not isinstance(extent, int):
        raise UnsolvableError("the length of an axis inside of others is not known")
    return abs(step.factor) * (extent - 1)


def _from_the_end(axis: Axis) -> Expr:
    """``t → n - 1 - t``; loops over data, whose lengths other axes change, are places as they are.
    """
    _, extent = axis_range(axis)
    dtype = dtype_of(axis.var)
    last = const(extent - 1, dtype) if isinstance(extent, int) else sub(extent, const(1, dtype))
    return sub(last, axis.var)


def _moved_axis(axis: Axis, move: Callable[[Expr], Expr]) -> Axis:
    _, extent = axis_range(axis)
    return axis if isinstance(extent, int) else reduce_axis_over(axis.var, move(extent))
