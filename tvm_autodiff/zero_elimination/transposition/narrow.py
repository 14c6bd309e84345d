"""Sums that only part of a gradient's elements have, computed for that part alone.

In: a gathered term with guards such as ``b == 4`` or ``b <= 3`` on single axes of the gradient:
the border that a clamp sends its reads to. Out: the sum as a stage over the sub-box that the
guards leave, read where they hold, in place of a sum of zeros everywhere else. Only where that is
less work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...expr.build import add, all_of, compare, const, if_then_else, sub, zero_like
from ...expr.nodes import Axis, Expr, Tensor, dtype_of, is_integer, load, node_id, op_name, operands
from ...expr.rewrite import variables_of
from ...expr.simplify import linear_terms
from ...graph.stage import axis_range, data_axis, renew_axis
from .assemble import assemble
from .gather import Gathered, Target
from .residues import known_volume

#: part of the work that must remain at most, for one more stage to pay
_WORTHWHILE = 0.9


def narrow_to_guards(
    whole: Gathered, target: Target, gather_at: Callable[[Target], Gathered | None], name: str
) -> Gathered:
    """``Σ_k if b == 4 and c then f  →  if b == 4 then part[], part[] = Σ_k if c then f[b := 4]``.

    Parameters
    ----------
    whole : Gathered
        The term over all elements of the target.
    target : Target
        The axes of the gradient, their places not given.
    gather_at : callable
        Gathers the same term at another target.
    name : str
        Of the part's stage.

    Guards that make two axes of the gradient equal, as of a diagonal, leave one of them.

    Returns
    -------
    Gathered
        A guarded read of the part, or `whole` where that is cheaper.
    """
    bounds = [_bounds(whole.guards, axis) for axis in target.axes]
    sums = [axis_range(axis)[1] for axis in whole.axes]
    extents = [axis_range(axis)[1] for axis in target.axes]
    if not sums:
        return whole
    twins = _twins(whole.guards, target.axes)
    sizes = [
        extent if bound is None else max(0, bound[1] - bound[0] + 1)
        for place, (bound, extent) in enumerate(zip(bounds, extents, strict=True))
        if place not in twins
    ]
    narrow = known_volume(extents) + known_volume([*sizes, *sums])
    if narrow > _WORTHWHILE * known_volume([*extents, *sums]):
        return whole
    part = _part(target, bounds, twins)
    gathered = gather_at(part)
    if gathered is None:
        return whole
    stage = assemble(name, part, [[gathered]], dtype=dtype_of(whole.source))
    return replace(whole, axes=(), guards=(), source=_read(whole, target, bounds, twins, stage))


def _bounds(guards: Sequence[Expr], axis: Axis) -> tuple[int, int] | None:
    """The least and largest value that guards on this axis alone leave to it; None if symbolic."""
    extent = axis_range(axis)[1]
    if not isinstance(extent, int):
        return None
    low, high = 0, extent - 1
    for guard in guards:
        found = _interval(guard, axis)
        if found is not None:
            low, high = max(low, found[0]), min(high, found[1])
    return low, high


def _interval(guard: Expr, axis: Axis) -> tuple[int, int] | None:
    """The values that a comparison of the axis with a literal leaves."""
    name = op_name(guard)
    if name not in _INTERVALS or not is_integer(operands(guard)[0]):
        return None
    if any(node_id(var) != node_id(axis.var) for var in variables_of(guard)):
        return None
    left, right = operands(guard)
    terms, constant = linear_terms(sub(left, right))
    if len(terms) != 1 or node_id(terms[0][0]) != node_id(axis.var) or abs(terms[0][1]) != 1:
        return None
    sign = terms[0][1]
    low, high = _INTERVALS[name]  # of sign*b + constant
    if sign > 0:
        return low - constant, high - constant
    return constant - high, constant - low


_FAR = 1 << 40
#: comparison of ``left - right`` with zero → the interval it must lie in
_INTERVALS = {
    "eq": (0, 0),
    "le": (-_FAR, 0),
    "lt": (-_FAR, -1),
    "ge": (0, _FAR),
    "gt": (1, _FAR),
}


def _twins(guards: Sequence[Expr], axes: Sequence[Axis]) -> dict[int, int]:
    """Axes that a guard makes equal to an earlier one: place → place of the other."""
    place_of = {node_id(axis.var): place for place, axis in enumerate(axes)}
    found: dict[int, int] = {}
    for guard in guards:
        if op_name(guard) != "eq":
            continue
        places = sorted(place_of.get(node_id(side), -1) for side in operands(guard))
        first, second = places
        if first >= 0 and first != second and first not in found and second not in found:
            found[second] = first
    return found


def _part(
    target: Target, box: Sequence[tuple[int, int] | None], twins: Mapping[int, int]
) -> Target:
    """The elements of a sub-box as a target with axes that start at zero.

    None in the box is a whole axis; a twin has no axis of its own.
    """
    axes: list[Axis] = []
    places: list[Expr] = []
    for place, (axis, bound) in enumerate(zip(target.axes, box, strict=True)):
        if place in twins:
            places.append(places[twins[place]])
        elif bound is None:
            axes.append(renew_axis(axis))
            places.append(axes[-1].var)
        else:
            low, high = bound
            dtype = dtype_of(axis.var)
            axes.append(data_axis(axis.var.name, high - low + 1, dtype))
            offset = const(low, dtype)
            places.append(offset if high == low else add(axes[-1].var, offset))
    return Target(target.prefix, tuple(axes), tuple(places))


def _read(
    whole: Gathered,
    target: Target,
    box: Sequence[tuple[int, int] | None],
    twins: Mapping[int, int],
    stage: Tensor,
) -> Expr:
    """The part where the element lies in it, zero elsewhere."""
    inside: list[Expr] = []
    indices: list[Expr] = [axis.var for axis in target.prefix]
    for place, (axis, bound) in enumerate(zip(target.axes, box, strict=True)):
        if place in twins:
            inside.append(compare("eq", axis.var, target.axes[twins[place]].var))
        elif bound is None:
            indices.append(axis.var)
        else:
            inside += _within(axis, *bound)
            indices.append(sub(axis.var, const(bound[0], dtype_of(axis.var))))
    return if_then_else(all_of(inside), load(stage, indices), zero_like(whole.source))


def _within(axis: Axis, low: int, high: int) -> list[Expr]:
    """``low <= axis <= high`` without what the axis's own range says."""
    dtype = dtype_of(axis.var)
    if low == high:
        return [compare("eq", axis.var, const(low, dtype))]
    conditions: list[Expr] = []
    if low > 0:
        conditions.append(compare("ge", axis.var, const(low, dtype)))
    if high < axis_range(axis)[1] - 1:
        conditions.append(compare("le", axis.var, const(high, dtype)))
    return conditions
