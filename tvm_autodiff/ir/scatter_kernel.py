"""A scatter-add as one opaque stage: the loop nest that te cannot express.

In: positions, updates and the shape of the result. Out: a tensor that lowers like any stage.
Updates are added in iteration order by one thread for each slice of the trailing axes, so repeated
positions are right and the result does not depend on the number of threads. When to scatter is
`zero_elimination.scatter`'s to decide.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Any

from tvm import te
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .build import all_of, cast, compare, const, zero_like
from .nodes import Expr, Tensor, const_value, dtype_of

#: attribute of a scatter-add stage: its `dims`
SCATTER_DIMS = "tvm_autodiff.scatter_add"

#: elements of the innermost trailing axis that one task adds up
_SLICE = 64


def scatter_add_stage(
    name: str,
    positions: Sequence[Tensor],
    updates: Tensor,
    shape: Sequence[Any],
    dims: Sequence[int],
    attrs: dict[str, Any],
) -> Tensor:
    """``out[..., p_d[n], ..., j, ...] += updates[n, j]`` for all points n and trailing indices j.

    Parameters
    ----------
    name : str
        Name of the stage.
    positions : sequence of Tensor
        Integer tensors over the points n, one for each scattered dimension; a point with a position
        outside of the result is left out.
    updates : Tensor
        Over the points n and then the trailing axes, in the order of the result's dimensions.
    shape : sequence of int or Expr
        Of the result.
    dims : sequence of int
        For each dimension of the result the number of its position, or -1 for a trailing axis.
    attrs : dict
        Attributes of the stage.
    """
    rank = len(positions[0].shape)
    points, trailing = list(updates.shape)[:rank], list(updates.shape)[rank:]
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
            outer, inner = _trailing_loops(trailing, tasks)
            scattered = [extent for extent, dim in zip(shape, dims, strict=True) if dim >= 0]
            with ExitStack() as loops:
                free = [loops.enter_context(T.serial(0, extent)) for extent in scattered]
                last = inner(loops)
                order = iter(free)
                rest = iter([*outer, *last])
                T.buffer_store(out, zero, [next(order) if d >= 0 else next(rest) for d in dims])
            with ExitStack() as loops:
                point = [loops.enter_context(T.serial(0, extent)) for extent in points]
                place = [buffer[tuple(point)] for buffer in places]
                loops.enter_context(T.If(inside_result(place, shape, dims)))
                loops.enter_context(T.Then())
                last = inner(loops)
                rest = iter([*outer, *last])
                index = [place[d] if d >= 0 else next(rest) for d in dims]
                update = [*point, *outer, *last]
                added = out[tuple(index)] + values[tuple(update)]
                T.buffer_store(out, added, index)
    return te.extern_primfunc([*positions, updates], builder.get(), name=name, attrs=attrs)


def _trailing_loops(trailing: Sequence[Any], tasks: ExitStack) -> tuple[list[Any], Any]:
    """One parallel loop over the trailing axes, the innermost cut into slices where its size is
    known: TVM runs no parallel loop inside another.

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


def inside_result(place: Sequence[Expr], shape: Sequence[Any], dims: Sequence[int]) -> Expr:
    """Whether a point falls into the result."""
    conditions: list[Expr] = []
    for extent, dim in zip(shape, dims, strict=True):
        if dim >= 0:
            where = place[dim]
            literal = isinstance(extent, int)
            end = const(extent, dtype_of(where)) if literal else cast(dtype_of(where), extent)
            conditions += [
                compare("ge", where, zero_like(where)),
                compare("lt", where, end),
            ]
    return all_of(conditions)
