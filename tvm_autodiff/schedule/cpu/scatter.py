"""Scatter-adds: updates added at places that are data.

In: a kernel that is a scatter-add stage. Out: one function. Each thread owns a range of the first
scattered dimension, goes through all places in order and adds what falls into its range: rows are
added whole and in vectors, and the result is the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.build import add, all_of, cast, compare, const, mul, sub
from ...ir.loop_nest import (
    PARALLEL,
    VECTORIZED,
    Statement,
    bind,
    counter,
    element,
    function,
    loop,
    parameter,
    sequence,
    store,
    when,
)
from ...ir.nodes import Expr, Var, binary, dtype_of
from ...ir.primfunc import StageFunction
from ...ir.scatter_kernel import SCATTER_DIMS, inside_result
from ...ir.stage import Extent, is_extern, shape_of, tensor_key
from ..declined import Declined, no_gain, other_kind
from ..kernel import Kernel, size_of
from ..machine import Machine
from .parallel import worth_threads

MIN_TRAILING = 4  #: elements of a row below which looking for places costs more than adding


def scatter(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a scatter-add of rows."""
    op = kernel.root
    if not is_extern(op) or SCATTER_DIMS not in op.attrs:
        return other_kind("it is no scatter-add")
    dims = [int(dim) for dim in op.attrs[SCATTER_DIMS]]
    *positions, updates = list(op.inputs)
    [result] = kernel.outputs
    shape = shape_of(result)
    trailing = [extent for extent, dim in zip(shape, dims, strict=True) if dim < 0]
    if dims[-1] >= 0:
        return Declined("its last axis is scattered")
    if not isinstance(shape[-1], int):
        return Declined("the extent of its last axis is symbolic")
    if size_of(trailing) < MIN_TRAILING:
        return no_gain(f"its rows have fewer than {MIN_TRAILING} elements")
    points = shape_of(updates)[: len(shape_of(positions[0]))]
    work = size_of([*points, *trailing]) + size_of(shape)
    chunks = machine.threads if worth_threads(work, machine) else 1
    inputs = list({tensor_key(tensor): tensor for tensor in op.inputs}.values())
    buffers = {tensor_key(t): parameter(t, f"p{n}") for n, t in enumerate(inputs)}
    out = parameter(result, "out")
    lanes = machine.lanes(dtype_of(result))
    first = next(n for n, dim in enumerate(dims) if dim >= 0)
    chunk = counter("chunk", chunks)
    (low, high), bounds = _range(chunk, shape[first], chunks)

    index = [counter("i", extent) for extent in shape]
    own: list[Expr] = [*index]
    own[first] = add(low, index[first])
    extents = [*shape[:first], sub(high, low), *shape[first + 1 :]]
    cleared = _loops(index, extents, store(out, const(0, dtype_of(result)), own), lanes)

    point = [counter("n", extent) for extent in points]
    where = [element(buffers[tensor_key(tensor)], point) for tensor in positions]
    free = [counter("j", extent) for extent in trailing]
    rest = iter(free)
    at = [where[dim] if dim >= 0 else next(rest) for dim in dims]
    update = element(buffers[tensor_key(updates)], [*point, *free])
    row = _loops(free, trailing, store(out, add(element(out, at), update), at), lanes)
    mine = where[dims[first]]
    conditions = [
        inside_result(where, list(result.shape), dims),
        compare("ge", mine, cast(dtype_of(mine), low)),
        compare("lt", mine, cast(dtype_of(mine), high)),
    ]
    added = _loops(point, points, when(all_of(conditions), row), 1)
    body = sequence([*bounds, cleared, added])
    func = function([*buffers.values(), out], loop(chunk, chunks, body, PARALLEL))
    return [StageFunction(func, tuple(inputs), (result,))]


def _range(chunk: Var, extent: Extent, chunks: int) -> tuple[tuple[Var, Var], list[Statement]]:
    """Where the range of a chunk begins and ends, and the statements that compute it."""
    low, high = counter("low", extent), counter("high", extent)
    dtype = dtype_of(low)
    total = const(extent, dtype) if isinstance(extent, int) else extent
    size = binary("floordiv", add(total, const(chunks - 1, dtype)), const(chunks, dtype))
    begin = binary("min", mul(cast(dtype, chunk), size), total)
    end = binary("min", add(low, size), total)
    return (low, high), [bind(low, begin), bind(high, end)]


def _loops(variables: Sequence[Var], extents: Sequence[Any], body: Statement, lanes: int) -> Any:
    """Loops around a statement, the innermost in vectors where its extent is a multiple of them."""
    for number in range(len(variables) - 1, -1, -1):
        extent = extents[number]
        vector = lanes > 1 and number == len(variables) - 1 and isinstance(extent, int)
        kind = {"kind": VECTORIZED} if vector and extent <= lanes * 8 else {}
        body = loop(variables[number], extent, body, **kind)
    return body
