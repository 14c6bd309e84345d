"""Sums that read a circular dimension, over a copy of it that goes on beyond its end.

Vectors along what is summed would break where each result passes the end: elsewhere for each tap of
a filter. Over the copy they are those of a plain window.

    ``dk[r] = Σ_t g[t]*x[(t - r + 3)%160], r < 7  →  copy[p] = x[(p - 3)%160], p < 166,
    dk[r] = Σ_t g[t]*copy[t - r + 6]``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....expr.build import add, const, sub
from ....expr.dtypes import integer_range
from ....expr.integers.intervals import Intervals, contains, range_intervals
from ....expr.linear_terms import linear_sum, linear_terms
from ....expr.nodes import (
    Expr,
    Tensor,
    Var,
    binary,
    const_value,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import contains_load, depends_on, expand_lets, postorder, rewrite
from ....graph.stage import (
    Extent,
    axis_range,
    data_axis,
    loop_axes,
    make_stage,
    reduction_of,
    reduction_stage,
    shape_of,
)
from ...cost import MIN_LANES, STORE
from ...kernel import Kernel, iterations, size_of, with_root

Key = tuple[tuple[int, int], int]  #: of a tensor, and the number of a dimension


@dataclass(frozen=True)
class _Circle:
    """A dimension of a tensor that is read modulo its size, and the places that are read."""

    tensor: Tensor
    dimension: int
    low: int
    high: int

    @property
    def key(self) -> Key:
        """Equal for reads that one copy serves."""
        return tensor_key(self.tensor), self.dimension

    @property
    def size(self) -> int:
        """How many places there are until they repeat."""
        size = shape_of(self.tensor)[self.dimension]
        assert isinstance(size, int), "only literal sizes are unrolled"
        return size

    @property
    def shape(self) -> list[Extent]:
        """The shape of the copy."""
        shape = list(shape_of(self.tensor))
        shape[self.dimension] = self.high - self.low + 1
        return shape

    def copy(self) -> Tensor:
        """A stage that copies all places."""
        axes = [data_axis(f"i{number}", extent) for number, extent in enumerate(self.shape)]
        indices: list[Expr] = [axis.var for axis in axes]
        place = indices[self.dimension]
        place = add(place, const(self.low % self.size, dtype_of(place)))
        indices[self.dimension] = binary("floormod", place, const(self.size, dtype_of(place)))
        name = f"{self.tensor.op.name}_circle"
        return make_stage(name, axes, [load(self.tensor, indices)])[0]


def over_unrolled_circles(kernel: Kernel) -> tuple[list[Kernel], Kernel] | None:
    """Kernels that copy what a reduction reads circularly, and the kernel over the copies.

    None if it reads nothing circularly along the last axis of what is reduced or of the results, or
    if the copies are too many for what vectors save.
    """
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or reduction.init:
        return None
    sources = list(map(expand_lets, reduction.sources))
    ranges = {axis.var: axis_range(axis) for axis in loop_axes(op)}
    intervals = Intervals(range_intervals(ranges))
    last = [axis.var for axis in (*op.axis[-1:], *reduction.axes[-1:])]
    circles: dict[Key, _Circle] = {}
    places: dict[int, tuple[Key, Expr]] = {}
    for node in filter(is_load, postorder(sources)):
        found = _circle_of(node, intervals, last)
        if found is None:
            continue
        one, place = found
        known = circles.get(one.key, one)
        low, high = min(known.low, one.low), max(known.high, one.high)
        circles[one.key] = replace(known, low=low, high=high)
        places[node_id(node)] = one.key, place
    copied = sum(size_of(one.shape) for one in circles.values())
    if not circles or MIN_LANES * iterations(op) < STORE * copied:
        return None
    copies = {key: one.copy() for key, one in circles.items()}

    def read(node: Expr) -> Expr | None:
        if node_id(node) not in places:
            return None
        key, place = places[node_id(node)]
        indices = list(operands(node))
        indices[key[1]] = sub(place, const(circles[key].low, dtype_of(place)))
        return load(copies[key], indices)

    moved = replace(reduction, sources=tuple(rewrite(source, read) for source in sources))
    outputs = reduction_stage(op.name, list(op.axis), moved)
    before = [replace(kernel, root=copy.op, epilogue=None) for copy in copies.values()]
    return before, with_root(kernel, outputs)


def _circle_of(
    read: Expr, intervals: Intervals, last: Sequence[Var]
) -> tuple[_Circle, Expr] | None:
    """``x[(t + 159*r + 3)%160] → the places -3 to 162, t - r + 3``"""
    tensor = load_tensor(read)
    for number, (index, size) in enumerate(zip(operands(read), shape_of(tensor), strict=True)):
        if op_name(index) != "floormod" or contains_load(index) or not depends_on(index, last):
            continue
        place, divisor = operands(index)
        if not isinstance(size, int) or const_value(divisor) != size or size < MIN_LANES:
            continue
        terms, constant = linear_terms(place)
        near = [(node, (factor + size // 2) % size - size // 2) for node, factor in terms]
        nearest = linear_sum(near, constant % size, dtype_of(place))
        low, high = intervals.of(nearest)
        turn = (low + high + 1) // (2 * size) * size  # one copy serves reads of the same turn
        if not contains(integer_range(dtype_of(place)), (low, high + turn)):
            continue  # as of a symbolic number of places, of which there is no copy
        nearest = sub(nearest, const(turn, dtype_of(place)))
        return _Circle(tensor, number, low - turn, high - turn), nearest
    return None
