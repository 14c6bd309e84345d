"""A scatter-add as one opaque stage, with a loop nest that te cannot express.

One thread for each slice of the trailing axes adds the updates in iteration order, so repeated
positions are correct and the result does not depend on the number of threads.
`zero_elimination.strategies.scatter_add` decides when a scatter is used.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tvm import te
from tvm.script.ir_builder import IRBuilder, tirx as T

from ...expr.build import all_of, cast, compare, const, zero_like
from ...expr.nodes import Expr, Tensor, call_node, const_value, dtype_of
from ..stage import Extent, Operation, index_dtype, is_extern, shape_of

#: attributes of a scatter-add stage: the fields of its `ScatterLayout`
_DIMS, _PLACES, _UPDATES = (
    f"tvm_autodiff.scatter_add.{name}" for name in ("dims", "places", "updates")
)

#: the dtype in which an index tensor's values are computed, if it is not int64
_INDEX_DTYPES = dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16", "bool"), "int32")

#: the number of elements of the innermost trailing axis that one task sums
_SLICE = 64


@dataclass(frozen=True)
class ScatterLayout:
    """Assigns the axes of a scatter-add's operands.

    A scatter-add runs over points and trailing axes: ``out[p_d[points], ..., trailing] +=
    updates[points, trailing]``. The axes of the operands keep their order.

    Attributes
    ----------
    dims : tuple of int
        For each dimension of the result, the number of its position tensor, or -1 for a trailing
        axis.
    places : tuple of tuple of int
        For each position tensor, the point axis of each of its dimensions.
    updates : tuple of int
        For each dimension of the updates, the number of a point axis, or ``-1 - d`` for the
        trailing axis of the result's dimension d. Updates lack the axes that they do not depend
        on. Each point axis occurs here or in a position.
    """

    dims: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    updates: tuple[int, ...]

    @staticmethod
    def points_first(dims: Sequence[int], points: int) -> ScatterLayout:
        """The layout with positions over all points, and updates over points followed by trailing
        axes.
        """
        own = tuple(range(points))
        trailing = tuple(-1 - dim for dim, number in enumerate(dims) if number < 0)
        count = sum(number >= 0 for number in dims)
        return ScatterLayout(tuple(dims), (own,) * count, (*own, *trailing))

    @property
    def trailing(self) -> tuple[int, ...]:
        """The dimensions of the result that are trailing axes."""
        return tuple(dim for dim, number in enumerate(self.dims) if number < 0)

    @property
    def points(self) -> int:
        """The number of point axes."""
        return len({axis for axes in (self.updates, *self.places) for axis in axes if axis >= 0})

    @property
    def order(self) -> tuple[int, ...]:
        """All axes as the loops are nested: those of the updates, then points, then rows."""
        rows = (-1 - dim for dim in self.trailing)
        own = set(self.updates)
        return (*self.updates, *(n for n in (*range(self.points), *rows) if n not in own))

    @property
    def shared(self) -> int:
        """The number of leading dimensions whose elements have updates of their own.

        Without those whose updates lie beside each other in memory.
        """
        count = next((dim for dim, number in enumerate(self.dims) if number >= 0), len(self.dims))
        common = 0
        for dim, axis in enumerate(self.updates[:count]):
            if axis != -1 - dim:
                break
            common += 1
        return common if self.updates[-1:] and -count <= self.updates[-1] < 0 else count

    def place(self, number: int, index: Mapping[int, Expr]) -> list[Expr]:
        """The indices of a position tensor, from the axis indices."""
        return [index[axis] for axis in self.places[number]]

    def update(self, index: Mapping[int, Expr]) -> list[Expr]:
        """The indices of the updates, from the axis indices."""
        return [index[axis] for axis in self.updates]

    def element(self, places: Sequence[Expr], index: Mapping[int, Expr]) -> list[Expr]:
        """The indices of the result, from the position values and the axis indices."""
        return [
            places[number] if number >= 0 else index[-1 - dim]
            for dim, number in enumerate(self.dims)
        ]


@dataclass(frozen=True)
class ScatterAdd:
    """The contents of a scatter-add stage."""

    positions: tuple[Tensor, ...]
    updates: Tensor
    result: Tensor
    layout: ScatterLayout

    @property
    def extents(self) -> dict[int, Extent]:
        """The extent of each axis: point axes by number, trailing axes by ``-1 - d``."""
        layout = self.layout
        return extents_of(layout, self.positions, self.updates, shape_of(self.result))


def extents_of(
    layout: ScatterLayout, positions: Sequence[Tensor], updates: Tensor, shape: Sequence[Any]
) -> dict[int, Extent]:
    """The extent of each axis, in the order of the loops."""
    found = {-1 - dim: shape[dim] for dim in layout.trailing}
    for axes, tensor in zip(layout.places, positions, strict=True):
        found |= dict(zip(axes, shape_of(tensor), strict=True))
    found |= dict(zip(layout.updates, shape_of(updates), strict=True))
    return {axis: found[axis] for axis in layout.order}


def scatter_of(op: Operation) -> ScatterAdd | None:
    """The scatter-add that a stage is, or None for any other stage."""
    if not is_extern(op) or _DIMS not in op.attrs:
        return None
    *positions, updates = list(op.inputs)
    layout = ScatterLayout(
        tuple(int(dim) for dim in op.attrs[_DIMS]),
        tuple(tuple(int(axis) for axis in axes) for axes in op.attrs[_PLACES]),
        tuple(int(axis) for axis in op.attrs[_UPDATES]),
    )
    return ScatterAdd(tuple(positions), updates, op.output(0), layout)


def scatter_add_stage(
    name: str,
    positions: Sequence[Tensor],
    updates: Tensor,
    shape: Sequence[Any],
    layout: ScatterLayout,
) -> Tensor:
    """``out[..., p_d[n], ..., j, ...] += updates[n, j]`` for all points n and trailing indices j.

    Parameters
    ----------
    name : str
        Name of the stage.
    positions : sequence of Tensor
        Integer tensors over points, one for each scattered dimension. Points with a position
        outside the result are skipped.
    updates : Tensor
        The updates, over the points and the trailing axes on which they depend.
    shape : sequence of int or Expr
        The shape of the result.
    layout : ScatterLayout
        The assignment of axes.
    """
    extents = extents_of(layout, positions, updates, shape)
    attrs = {
        _DIMS: list(layout.dims),
        _PLACES: [list(axes) for axes in layout.places],
        _UPDATES: list(layout.updates),
    }
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        places = [
            T.arg(f"p{n}", T.buffer(tensor.shape, dtype_of(tensor)))
            for n, tensor in enumerate(positions)
        ]
        values = T.arg("updates", T.buffer(updates.shape, dtype_of(updates)))
        out = T.arg("out", T.buffer(list(shape), dtype_of(updates)))
        zero = const(0, dtype_of(updates))
        with ExitStack() as tasks:
            outer, inner = _trailing_loops([extents[-1 - dim] for dim in layout.trailing], tasks)

            def trailing_index(loops: ExitStack) -> dict[int, Expr]:
                indices = [*outer, *inner(loops)]
                pairs = zip(layout.trailing, indices, strict=True)
                return {-1 - dim: index for dim, index in pairs}

            with ExitStack() as loops:
                free = [
                    loops.enter_context(T.serial(0, extent))
                    for extent, dim in zip(shape, layout.dims, strict=True)
                    if dim >= 0
                ]
                order = iter(free)
                here = trailing_index(loops)
                cleared = [
                    next(order) if number >= 0 else here[-1 - dim]
                    for dim, number in enumerate(layout.dims)
                ]
                T.buffer_store(out, zero, cleared)
            with ExitStack() as loops:
                index: dict[int, Expr] = {
                    axis: loops.enter_context(T.serial(0, extents[axis]))
                    for axis in layout.order
                    if axis >= 0
                }
                found = [
                    nest_index(buffer[tuple(layout.place(number, index))])
                    for number, buffer in enumerate(places)
                ]
                loops.enter_context(T.If(inside_result(found, shape, layout.dims)))
                loops.enter_context(T.Then())
                index |= trailing_index(loops)
                target = layout.element(found, index)
                added = out[tuple(target)] + values[tuple(layout.update(index))]
                T.buffer_store(out, added, target)
    return te.extern_primfunc([*positions, updates], builder.get(), name=name, attrs=attrs)


def _trailing_loops(trailing: Sequence[Any], tasks: ExitStack) -> tuple[list[Any], Any]:
    """One parallel loop over the trailing axes, because TVM does not nest parallel loops. The
    innermost axis is cut into slices if its size is known.

    Returns the indices of the outer axes, and a function that opens the loop over a slice.
    """
    if not trailing:
        return [], lambda loops: []
    size = const_value(trailing[-1])
    if size is None or (size % _SLICE and len(trailing) == 1) or size == _SLICE:
        return _parallel(trailing, tasks), lambda loops: []
    if size % _SLICE:
        outer = _parallel(trailing[:-1], tasks)
        return outer, lambda loops: [loops.enter_context(T.serial(0, trailing[-1]))]
    *outer, block = _parallel([*trailing[:-1], int(size) // _SLICE], tasks)
    return outer, lambda loops: [block * _SLICE + loops.enter_context(T.serial(0, _SLICE))]


def _parallel(extents: Sequence[Any], tasks: ExitStack) -> list[Any]:
    """The indices of a loop nest that runs as one parallel loop."""
    task = tasks.enter_context(T.parallel(0, reduce(operator.mul, extents)))
    indices: list[Any] = []
    for extent in reversed(extents[1:]):
        indices.append(task % extent)
        task = task // extent
    return [task, *reversed(indices)]


def as_index(position: Expr) -> Expr:
    """A position in a signed dtype that can index a buffer, and holds all valid positions."""
    return cast(_INDEX_DTYPES.get(dtype_of(position), "int64"), position)


def nest_index(position: Expr) -> Expr:
    """`as_index` in what TVM lowers: it takes the int64 of a uint64 for non-negative."""
    if dtype_of(position) == "uint64":
        return call_node("reinterpret", (position,), "int64")
    return as_index(position)


def inside_result(place: Sequence[Expr], shape: Sequence[Any], dims: Sequence[int]) -> Expr:
    """Whether a point lies in the result; positions are in the form of `as_index`."""
    conditions: list[Expr] = []
    for extent, dim in zip(shape, dims, strict=True):
        if dim >= 0:
            conditions += inside(place[dim], extent)
    return all_of(conditions)


def inside(place: Expr, extent: Extent) -> list[Expr]:
    """``0 <= place``, ``place < extent``, in a dtype that holds both."""
    value = const_value(extent)
    wide = "int64" if value is not None and value >= 2**31 else index_dtype(extent)
    if "int64" in (wide, dtype_of(place)):
        place = cast("int64", place)
    end = cast(dtype_of(place), extent) if value is None else const(value, dtype_of(place))
    return [compare("ge", place, zero_like(place)), compare("lt", place, end)]
