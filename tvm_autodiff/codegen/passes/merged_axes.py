"""Gives parameters of a function other dimensions over the same memory.

No data moves: ``s[g, r]`` and ``out[g*R + r]`` are the same element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ...expr.build import cast, const, mul
from ...expr.nodes import Expr, const_value, dtype_of, op_name
from ...graph.stage import Extent
from ..stages.primfunc import PrimFunc

Indices = list[Expr]


def with_merged_parameter(
    func: PrimFunc, number: int, shape: Sequence[Extent], groups: Sequence[tuple[int, ...]]
) -> PrimFunc:
    """``s[g, r] → out[g*R + r]``: the function whose parameter `number` has `shape`.

    Dimension n consists of the dimensions in ``groups[n]``: one, or two consecutive ones.
    """
    old = func.params[number]
    extents = {dim: old.shape[dim] for dims in groups for dim in dims[1:]}

    def merged(indices: Sequence[Expr]) -> Indices:
        found = []
        for dims in groups:
            value = indices[dims[0]]
            for dim in dims[1:]:
                scalar, _, _ = dtype_of(value).partition("x")  # of the lanes of a vector
                start = _times(value, cast(scalar, extents[dim]))
                value = _added(start, indices[dim])
            found.append(value)
        return found

    def region(lows: Sequence[Expr], ends: Sequence[Expr]) -> tuple[Indices, Indices]:
        return merged(lows), merged(ends)

    return _with_parameter(func, number, shape, merged, region)


def _times(value: Expr, extent: Expr) -> Expr:
    """A number, or a vector of them, times an extent."""
    number = const_value(extent)
    return value * extent if number is None else mul(value, const(number, dtype_of(value)))


def _added(start: Expr, index: Expr) -> Expr:
    """``start + (i .. i + 8) → start + i .. start + i + 8``: a vector of neighbours stays one."""
    if op_name(index) == "ramp" and op_name(start) != "ramp" and "x" not in dtype_of(start):
        return tirx.Ramp(start + index.base, index.stride, index.lanes)
    return start + index  # of vectors, one may be a scalar


def with_split_parameter(
    func: PrimFunc, number: int, shape: Sequence[Extent], groups: Sequence[tuple[int, ...]]
) -> PrimFunc:
    """``x[p] → x[0, p]``: the function whose parameter `number` has `shape`.

    Its dimension n has been those in ``groups[n]``, of which the last one is accessed beyond its
    end: the next row begins there.
    """

    def split(indices: Sequence[Expr]) -> Indices:
        found: Indices = []
        for index, dims in zip(indices, groups, strict=True):
            scalar, _, _ = dtype_of(index).partition("x")  # of the lanes of a vector
            found += [*(const(0, scalar) for _ in dims[1:]), index]
        return found

    def region(lows: Sequence[Expr], ends: Sequence[Expr]) -> tuple[Indices, Indices]:
        low, end = split(lows), split(ends)
        for dim in (dim for dims in groups if len(dims) > 1 for dim in dims):
            low[dim] = const(0, dtype_of(low[dim]))
            last, dtype = shape[dim] - 1, dtype_of(end[dim])
            end[dim] = const(last, dtype) if isinstance(last, int) else cast(dtype, last)
        return low, end

    return _with_parameter(func, number, shape, split, region)


def _with_parameter(
    func: PrimFunc,
    number: int,
    shape: Sequence[Extent],
    moved: Callable[[Sequence[Expr]], Indices],
    covered: Callable[[Sequence[Expr], Sequence[Expr]], tuple[Indices, Indices]],
) -> PrimFunc:
    """The function with another parameter in place of one, and its indices and regions `moved`."""
    old = func.params[number]
    new = tirx.decl_buffer(tuple(shape), str(old.dtype), old.name)

    def stored(node: Any) -> Any:
        if not node.buffer.same_as(old):
            return node
        return tirx.BufferStore(new, node.value, moved(list(node.indices)))

    def loaded(node: Any) -> Any:
        # a reduction that accumulates in its result reads it
        if not node.source.same_as(old):
            return node
        return tirx.BufferLoad(new, moved(list(node.indices)))

    def region(node: Any) -> Any:
        if not node.source.same_as(old):
            return node
        parts = list(node.region)
        lows, ends = covered([p.min for p in parts], [p.min + p.extent - 1 for p in parts])
        ranges = [
            tvm.ir.Range.from_min_extent(low, end - low + 1)
            for low, end in zip(lows, ends, strict=True)
        ]
        return tirx.BufferRegion(new, ranges)

    kind = type(tirx.BufferRegion(new, [tvm.ir.Range(0, extent) for extent in shape]))
    changes = [(tirx.BufferStore, stored), (tvm.ir.TensorLoad, loaded), (kind, region)]
    body = tvm_ffi.structural_map(func.body, changes)
    params = [*func.params[:number], new, *func.params[number + 1 :]]
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)
