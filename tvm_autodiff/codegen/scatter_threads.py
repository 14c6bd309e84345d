"""A scatter-add as a GPU function: the loop nests that te cannot express, bound to threads.

Either each thread adds one update atomically, in no fixed order, or each thread owns a slice of the
result and adds its updates in order. The schedule decides which one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder, tirx as T

from ..expr.build import cast, compare, const, mul
from ..expr.nodes import Expr, binary, const_value, dtype_of
from ..graph.kinds.scatter_add import ScatterAdd, inside_result, nest_index
from ..graph.stage import index_dtype, shape_of
from .flat_axes import unflattened
from .thread_loops import BLOCK

_MAX_GRID = 65_536  #: blocks; beyond, threads go on with the next elements


def scatter_add_threads(scatter: ScatterAdd, *, atomic: bool, grid: int) -> Any:
    """The function ``(*positions, updates, out)`` of a scatter-add.

    Parameters
    ----------
    scatter : ScatterAdd
        The stage.
    atomic : bool
        Whether each update has a thread that adds it atomically. Otherwise each slice has one.
    grid : int
        The number of blocks if the number of elements is symbolic.
    """
    layout, updates = scatter.layout, scatter.updates
    dtype, shape = dtype_of(updates), shape_of(scatter.result)
    extents = scatter.extents
    trailing = [-1 - dim for dim in layout.trailing]
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("scatter_add")
        places = [
            T.arg(f"p{n}", T.buffer(tensor.shape, dtype_of(tensor)))
            for n, tensor in enumerate(scatter.positions)
        ]
        values = T.arg("updates", T.buffer(updates.shape, dtype))
        out = T.arg("out", T.buffer(list(scatter.result.shape), dtype))

        def add_update(index: Mapping[int, Expr], store: Callable) -> None:
            found = [
                nest_index(buffer[tuple(layout.place(number, index))])
                for number, buffer in enumerate(places)
            ]
            with T.If(inside_result(found, shape, layout.dims)), T.Then():
                store(layout.element(found, index), _at(values, layout.update(index)))

        def add_in_order(index: Sequence[Expr], value: Expr) -> None:
            T.buffer_store(out, out[tuple(index)] + value, list(index))

        def add_atomically(index: Sequence[Expr], value: Expr) -> None:
            address = tirx.call_intrin("handle", "tirx.address_of", out[tuple(index)])
            T.evaluate(tirx.call_extern(dtype, "atomicAdd", address, value))

        if atomic:
            with _each_thread(list(shape), grid) as index:
                T.buffer_store(out, const(0, dtype), list(index))
            with _each_thread(list(extents.values()), grid) as index:
                add_update(dict(zip(extents, index, strict=True)), add_atomically)
        else:
            with _each_thread([extents[axis] for axis in trailing], grid) as rest:
                own = dict(zip(trailing, rest, strict=True))
                with ExitStack() as loops:
                    cleared = [
                        own[-1 - dim] if number < 0 else loops.enter_context(T.serial(0, extent))
                        for dim, (number, extent) in enumerate(zip(layout.dims, shape, strict=True))
                    ]
                    T.buffer_store(out, const(0, dtype), cleared)
                with ExitStack() as loops:
                    points = {
                        axis: loops.enter_context(T.serial(0, extents[axis]))
                        for axis in layout.order
                        if axis >= 0
                    }
                    add_update({**own, **points}, add_in_order)
    return builder.get()


@contextmanager
def _each_thread(extents: Sequence[Any], grid: int) -> Iterator[list[Expr]]:
    """One thread for each point of a box; returns the indices of the point."""
    total = reduce(_product, extents, 1)
    size = _literal(total)
    blocks = grid if size is None else max(1, min(-(-size // BLOCK), _MAX_GRID))
    with ExitStack() as loops:
        block = loops.enter_context(T.thread_binding(0, blocks, thread="blockIdx.x"))
        thread = loops.enter_context(T.thread_binding(0, BLOCK, thread="threadIdx.x"))
        place = block * BLOCK + thread
        if size is not None and index_dtype(size + blocks * BLOCK) == "int64":
            place = cast("int64", place)
        if size is None or blocks * BLOCK < size:
            again: Any = -(-(size or 0) // (blocks * BLOCK))
            if size is None:
                total_up = total + (blocks * BLOCK - 1)
                again = binary("floordiv", total_up, _like(total, blocks * BLOCK))
            place = loops.enter_context(T.serial(0, again)) * (blocks * BLOCK) + place
        loops.enter_context(T.If(compare("lt", place, _like(place, total))))
        loops.enter_context(T.Then())
        known = [extent if _literal(extent) is None else _literal(extent) for extent in extents]
        yield unflattened(place, known)


def _product(left: Any, right: Any) -> Any:
    a, b = _literal(left), _literal(right)
    if a is not None and b is not None:
        return a * b
    if a == 1:
        return right
    return mul(left, _like(left, b)) if b is not None else mul(_like(right, left), right)


def _literal(extent: Any) -> int | None:
    value = extent if isinstance(extent, int) else const_value(extent)
    return None if value is None else int(value)


def _like(sample: Any, value: Any) -> Any:
    """A literal in the dtype of an expression; other values are unchanged."""
    if not isinstance(value, int) or isinstance(sample, int):
        return value
    return const(value, dtype_of(sample))


def _at(buffer: Any, indices: Sequence[Expr]) -> Expr:
    return buffer[tuple(indices)]
