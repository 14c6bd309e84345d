"""Several axes as one: the number of their points, and the indices of a point from its number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from ..expr.build import add, cast, const, mul
from ..expr.nodes import Axis, Expr, Var, binary, dtype_of
from ..graph.stage import axis_range


def flat_dtype(axes: Sequence[Axis]) -> str:
    """The dtype of the number of a point; sizes that are not known may need a wider one."""
    wide = any(dtype_of(axis.var) == "int64" for axis in axes)
    count = prod(extent for _, extent in map(axis_range, axes) if isinstance(extent, int))
    return "int64" if wide or count >= 2**31 else "int32"


def flat_extent(axes: Sequence[Axis]) -> Expr:
    """The number of points."""
    dtype = flat_dtype(axes)
    literal = prod(extent for _, extent in map(axis_range, axes) if isinstance(extent, int))
    sizes = [extent for _, extent in map(axis_range, axes) if not isinstance(extent, int)]
    return reduce(mul, (cast(dtype, size) for size in sizes), const(literal, dtype))


def indices_at(axes: Sequence[Axis], place: Expr) -> dict[Var, Expr]:
    """The index along each axis of a point, from its number in row-major order.

    ``(i, j) = (place // n, place % n)``
    """
    dtype, table, rest = dtype_of(place), {}, place
    for number, axis in reversed(list(enumerate(axes))):
        low, extent = axis_range(axis)
        size = const(extent, dtype) if isinstance(extent, int) else cast(dtype, extent)
        own = const(0, dtype) if extent == 1 else binary("floormod", rest, size) if number else rest
        if extent != 1:
            rest = binary("floordiv", rest, size)
        start = const(low, dtype) if isinstance(low, int) else cast(dtype, low)
        table[axis.var] = cast(dtype_of(axis.var), add(own, start))
    return table
