"""A scatter-add as a GPU function: the loop nests that te cannot express, bound to threads.

In: tensors of positions and updates and the shape of the result, as for `scatter_kernel`. Out: a
PrimFunc over them. Either each thread adds one update with an atomic addition, in no fixed order,
or each owns a slice of the result and adds all that belongs to it in order. Which one is left to
the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .build import compare, const, mul
from .nodes import Expr, Tensor, binary, const_value, dtype_of
from .scatter_kernel import inside_result

_BLOCK = 256  #: threads of a block
_MAX_GRID = 65_536  #: blocks; beyond, threads go on with the next elements


def scatter_add_threads(
    positions: Sequence[Tensor],
    updates: Tensor,
    shape: Sequence[Any],
    dims: Sequence[int],
    *,
    atomic: bool,
    grid: int,
) -> Any:
    """The function ``(*positions, updates, out)`` of a scatter-add.

    Parameters
    ----------
    positions, updates, shape, dims
        As `scatter_add_stage` takes them.
    atomic : bool
        A thread for each update, which adds it atomically; else one for each slice.
    grid : int
        Blocks where the number of elements is symbolic.
    """
    dtype = dtype_of(updates)
    rank = len(positions[0].shape)
    points, trailing = list(updates.shape)[:rank], list(updates.shape)[rank:]
    scattered = [extent for extent, dim in zip(shape, dims, strict=True) if dim >= 0]
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("scatter_add")
        places = [
            T.arg(f"p{n}", T.buffer(tensor.shape, dtype_of(tensor)))
            for n, tensor in enumerate(positions)
        ]
        values = T.arg("updates", T.buffer(updates.shape, dtype))
        out = T.arg("out", T.buffer(list(shape), dtype))

        def add_update(point: Sequence[Expr], rest: Sequence[Expr], store: Callable) -> None:
            where = [buffer[tuple(point)] for buffer in places]
            with T.If(inside_result(where, shape, dims)), T.Then():
                order = iter(rest)
                index = [where[d] if d >= 0 else next(order) for d in dims]
                store(index, _at(values, [*point, *rest]))

        def add_in_order(index: Sequence[Expr], value: Expr) -> None:
            T.buffer_store(out, out[tuple(index)] + value, list(index))

        def add_atomically(index: Sequence[Expr], value: Expr) -> None:
            address = tirx.call_intrin("handle", "tirx.address_of", out[tuple(index)])
            T.evaluate(tirx.call_extern(dtype, "atomicAdd", address, value))

        if atomic:
            with _each_thread(list(shape), grid) as index:
                T.buffer_store(out, const(0, dtype), list(index))
            with _each_thread([*points, *trailing], grid) as index:
                add_update(index[:rank], index[rank:], add_atomically)
        else:
            with _each_thread(trailing, grid) as rest:
                with ExitStack() as loops:
                    free = [loops.enter_context(T.serial(0, extent)) for extent in scattered]
                    first, second = iter(free), iter(rest)
                    index = [next(first) if d >= 0 else next(second) for d in dims]
                    T.buffer_store(out, const(0, dtype), index)
                with ExitStack() as loops:
                    point = [loops.enter_context(T.serial(0, extent)) for extent in points]
                    add_update(point, rest, add_in_order)
    return builder.get()


@contextmanager
def _each_thread(extents: Sequence[Any], grid: int) -> Iterator[list[Expr]]:
    """A thread for each point of a box; gives the indices of the point."""
    total = reduce(_product, extents, 1)
    size = _literal(total)
    blocks = grid if size is None else max(1, min(-(-size // _BLOCK), _MAX_GRID))
    with ExitStack() as loops:
        block = loops.enter_context(T.thread_binding(0, blocks, thread="blockIdx.x"))
        thread = loops.enter_context(T.thread_binding(0, _BLOCK, thread="threadIdx.x"))
        place = block * _BLOCK + thread
        if size is None or blocks * _BLOCK < size:
            again = binary("floordiv", total + (blocks * _BLOCK - 1), _like(total, blocks * _BLOCK))
            place = loops.enter_context(T.serial(0, again)) * (blocks * _BLOCK) + place
        loops.enter_context(T.If(compare("lt", place, _like(place, total))))
        loops.enter_context(T.Then())
        yield _unflatten(place, extents)


def _product(left: Any, right: Any) -> Any:
    a, b = _literal(left), _literal(right)
    if a is not None and b is not None:
        return a * b
    return right if a == 1 else mul(_like(right, left), right)


def _literal(extent: Any) -> int | None:
    value = extent if isinstance(extent, int) else const_value(extent)
    return None if value is None else int(value)


def _like(sample: Any, value: Any) -> Any:
    """A literal of the dtype of an expression; other values as they are."""
    if not isinstance(value, int) or isinstance(sample, int):
        return value
    return const(value, dtype_of(sample))


def _unflatten(place: Expr, extents: Sequence[Any]) -> list[Expr]:
    """Indices of a point from its number in row-major order."""
    indices: list[Expr] = []
    for number, extent in enumerate(reversed(extents)):
        known = _literal(extent)
        size = extent if known is None else const(known, dtype_of(place))
        last = number == len(extents) - 1
        indices.append(place if last else binary("floormod", place, size))
        place = binary("floordiv", place, size)
    return list(reversed(indices))


def _at(buffer: Any, indices: Sequence[Expr]) -> Expr:
    return buffer[tuple(indices)]
