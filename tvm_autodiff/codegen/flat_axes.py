"""Several axes as one: the number of their points, and the indices of a point from its number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from ..expr.build import add, cast, const, mul
from ..expr.nodes import Axis, Expr, Var, binary, dtype_of
from ..graph.stage import Extent, axis_range


def flat_dtype(axes: Sequence[Axis]) -> str:
    """The dtype of the number of a point; sizes that are not known may need a wider one."""
    wide = any(dtype_of(axis.var) == "int64" for axis in axes)
    count = prod(extent for _, extent in map(axis_range, axes) if isinstance(extent, int))
    return "int64" if wide or count >= 2**31 else "int32"


def flat_extent(axes: Sequence[Axis]) -> Expr:
    """The number of points."""
    return number_of_points([extent for _, extent in map(axis_range, axes)], flat_dtype(axes))


def number_of_points(extents: Sequence[Extent], dtype: str) -> Expr:
    """The product of extents."""
    literal = prod(extent for extent in extents if isinstance(extent, int))
    sizes = [cast(dtype, extent) for extent in extents if not isinstance(extent, int)]
    return reduce(mul, sizes, const(literal, dtype))


def unflattened(place: Expr, extents: Sequence[Extent]) -> list[Expr]:
    """The indices of a point from its number in row-major order: ``[place // n, place % n]``."""
    dtype, rest = dtype_of(place), place
    indices: list[Expr] = []
    for number, extent in reversed(list(enumerate(extents))):
        if isinstance(extent, int) and extent == 1:
            indices.append(const(0, dtype))
            continue
        size = const(extent, dtype) if isinstance(extent, int) else cast(dtype, extent)
        indices.append(binary("floormod", rest, size) if number else rest)
        rest = binary("floordiv", rest, size)
    return indices[::-1]


def indices_at(axes: Sequence[Axis], place: Expr) -> dict[Var, Expr]:
    """The index along each axis of a point, from its number in row-major order."""
    dtype, table = dtype_of(place), {}
    ranges = [axis_range(axis) for axis in axes]
    indices = unflattened(place, [extent for _, extent in ranges])
    for axis, (low, _), index in zip(axes, ranges, indices, strict=True):
        start = const(low, dtype) if isinstance(low, int) else cast(dtype, low)
        table[axis.var] = cast(dtype_of(axis.var), add(index, start))
    return table
