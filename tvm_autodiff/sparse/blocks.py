"""Stores contributions in tensors of values, with one element for each point.

Each `Block` is a te tensor in which the contributions of one box lie side by side, so that the
values of a row are neighbours in memory. It also records the entry of each value.

    J[i, i] += u(i); J[i, i+1] += v(i)  →  values[i, s] = if s == 0 then u(i) else v(i)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..expr.build import compare, const, if_then_else
from ..expr.fold import fold
from ..expr.nodes import Axis, Expr, Tensor, const_value, dtype_of
from ..expr.rewrite import substituter
from ..expr.simplify import collect_terms, simplify
from ..graph.bounded_stage import bounded_stage
from ..graph.stage import Extent, axis_range, data_axis, rename_bounds, renew_axis, sum_over
from .contributions import Contribution
from .points import Array, Points, Sizes, points_of

_Shapes = tuple[Sequence[int], Sequence[int]]

#: the maximum number of contributions that share a tensor; the choice between them is unrolled
_MOST_SLOTS = 16


@dataclass(frozen=True, eq=False)
class Placed:
    """A contribution, and the entries of its points."""

    part: Contribution
    points: Points

    @staticmethod
    def of(part: Contribution, shapes: _Shapes, sizes: Sizes) -> Placed:
        """A contribution with its points, over the axes that it does not sum over."""
        places = part.rows, part.place
        return Placed(part, points_of(_kept(part), *places, part.on_indices, shapes, sizes))

    @property
    def above(self) -> bool:
        """Whether all entries lie above the diagonal."""
        return bool((self.points.columns > self.points.rows).all())

    @property
    def any_above(self) -> bool:
        """Whether any entry lies above the diagonal."""
        return bool((self.points.columns > self.points.rows).any())

    @property
    def middle(self) -> tuple[float, float]:
        """The approximate position of the entries."""
        rows, columns = self.points.rows, self.points.columns
        return (float(np.mean(rows)), float(np.mean(columns))) if len(rows) else (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Block:
    """Contributions over equal boxes, and the tensor of their values.

    Attributes
    ----------
    values : Tensor
        A tensor over the box, with one more axis if there are several contributions.
    slots : tuple of int
        The numbers of the contributions, in the order of that axis.
    """

    values: Tensor
    slots: tuple[int, ...]

    def places(self, placed: Sequence[Placed], columns: int) -> tuple[Array, Array]:
        """``row * columns + column`` of each value's entry, and the value's position in the
        flattened tensor.

        Parameters
        ----------
        placed : sequence of Placed
            All contributions with their points.
        columns : int
            The number of columns of the matrix.
        """
        count = len(self.slots)
        points = [placed[slot].points for slot in self.slots]
        inside = [
            np.arange(prod(at.box)) if at.inside is None else np.flatnonzero(at.inside)
            for at in points
        ]
        keys = [at.rows * columns + at.columns for at in points]
        positions = [place * count + number for number, place in enumerate(inside)]
        if len({len(place) for place in inside}) == 1:  # interleaved, as the values are
            return np.stack(keys, 1).reshape(-1), np.stack(positions, 1).reshape(-1)
        return np.concatenate(keys), np.concatenate(positions)


def blocks_of(parts: Sequence[Contribution], name: str) -> list[Block]:
    """The values of contributions as tensors whose stages have a given name; slots keep their
    order.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, part in enumerate(parts):
        box = tuple(_text(axis_range(axis)) for axis in part.axes)
        # a sum is a separate stage
        groups.setdefault((number,) if part.summed() else box, []).append(number)
    found = []
    for group in groups.values():
        for first in range(0, len(group), _MOST_SLOTS):
            chosen = tuple(group[first : first + _MOST_SLOTS])
            found.append(Block(_values([parts[number] for number in chosen], name), chosen))
    return found


def _kept(part: Contribution) -> list[Axis]:
    """The axes that a contribution does not sum over."""
    summed = part.summed()
    return [axis for axis in part.axes if not any(axis is other for other in summed)]


def _text(pair: tuple[Extent, Extent]) -> str:
    return ", ".join(str(part) for part in pair)


def _values(slots: Sequence[Contribution], name: str) -> Tensor:
    """The tensor of the values of some contributions over equal boxes."""
    summed = slots[0].summed()
    extents = [_number(axis_range(axis)[1]) for axis in _kept(slots[0])]
    axes = [data_axis(f"i{n}", extent) for n, extent in enumerate(extents)]
    bodies: list[Expr] = []
    for slot in slots:
        pairs = zip(_kept(slot), axes, strict=True)
        table = {old.var: _shifted(new, old) for old, new in pairs}
        inner = [renew_axis(axis) for axis in summed]
        table |= {old.var: new.var for old, new in zip(summed, inner, strict=True)}
        move = substituter(table)
        renewed = [rename_bounds(axis, move) for axis in inner]
        bodies.append(sum_over(collect_terms(fold(move(slot.guarded))), renewed))
    if len(bodies) == 1:
        return bounded_stage(name, axes, bodies)[0]
    slot_axis = data_axis("s", len(bodies))
    body = bodies[-1]
    for number in reversed(range(len(bodies) - 1)):
        here = compare("eq", slot_axis.var, const(number, dtype_of(slot_axis.var)))
        body = if_then_else(here, bodies[number], body)
    return bounded_stage(name, [*axes, slot_axis], [body])[0]


def _number(extent: Extent) -> Extent:
    """``min(0 + 3, 1) - 0 → 1``"""
    value = extent if isinstance(extent, int) else const_value(simplify(extent))
    return extent if value is None else int(value)


def _shifted(new: Axis, old: Axis) -> Expr:
    low = axis_range(old)[0]
    return new.var if isinstance(low, int) and low == 0 else new.var + low
