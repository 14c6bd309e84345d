"""The plain loop nests of a loop that keeps some of its states, and of its reverse loop.

The most recent state is held in separate buffers. Kept states are copied from there, and restored
states are copied back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvm.script.ir_builder import IRBuilder, tirx as T

from ...expr.build import cast, compare
from ...expr.nodes import Expr, Tensor, dtype_of, tensor_key
from ..stage import Extent, index_dtype, shape_of
from .loop_nest import read_buffers, result_buffers, step_over
from .rewind_control import (
    Backward,
    Forward,
    Where,
    number,
    wide,
    written_backward,
    written_forward,
)
from .step_nest import copied

if TYPE_CHECKING:
    from .rewind import KeptLoop, Rewind

Nest = tuple[list[Any], list[Any], Any]


def kept_nest(name: str, kept: KeptLoop, inputs: Sequence[Tensor]) -> Nest:
    """The buffers of the inputs and of the results, and the body over them."""
    loop = kept.loop
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        sources = read_buffers(inputs)
        finals, stacks = result_buffers(loop)
        rows = _rows([loop.step.carries[n] for n in kept.carries], kept.slots, "kept")
        for tensor, final in zip(loop.init, finals, strict=True):
            copied(final, (), sources[tensor_key(tensor)], (), shape_of(tensor))
        step = step_over(loop, finals, stacks, sources)

        def run(at: Expr, stop: Expr, row: Expr) -> None:
            with T.serial(0, stop - at) as count:
                step.write(_time(loop.length, at + count, loop.reverse))
            with T.If(compare("ge", row, number(0))), T.Then():
                for n, array in zip(kept.carries, rows, strict=True):
                    copied(array, (row,), finals[n], (), shape_of(loop.step.carries[n]))

        written_forward(loop.length, Forward(run, kept.slots))
    return list(sources.values()), [*finals, *stacks, *rows], builder.get().body


def rewind_nest(name: str, rewind: Rewind, inputs: Sequence[Tensor]) -> Nest:
    """The buffers of the inputs and of the results, and the body over them."""
    ahead, back, slots = rewind.ahead, rewind.back, rewind.slots
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        sources = read_buffers(inputs)
        finals, stacks = result_buffers(back)
        carries = ahead.step.carries
        rows = _rows(carries, slots, "rows")
        positions = T.arg("positions", T.buffer([slots], "int64"))
        given = [sources[tensor_key(tensor)] for tensor in rewind.kept]
        first = [sources[tensor_key(tensor)] for tensor in ahead.init]
        states = [T.alloc_buffer(shape_of(carry), dtype_of(carry)) for carry in carries]
        for tensor, final in zip(back.init, finals, strict=True):
            copied(final, (), sources[tensor_key(tensor)], (), shape_of(tensor))
        forth = step_over(ahead, states, [], sources)
        pullback = step_over(back, finals, stacks, sources, states)

        def restored(where: Where) -> None:
            """Copy the state from its location."""
            begins = compare("eq", where.slot, number(0))
            with T.If(begins):
                with T.Then():
                    _all_copied(states, (), first, (), carries)
                with T.Else(), T.If(where.given):
                    with T.Then():
                        _all_copied(states, (), given, (where.slot - number(1),), carries)
                    with T.Else():
                        _all_copied(states, (), rows, (where.slot - number(1),), carries)

        def run(at: Expr, stop: Expr, where: Where, row: Expr) -> None:
            restored(where)
            with T.serial(0, stop - at) as count:
                forth.write(_time(ahead.length, at + count, ahead.reverse))
            with T.If(compare("ge", row, number(0))), T.Then():
                _all_copied(rows, (row,), states, (), carries)

        def pull(done: Expr, time: Expr, where: Where) -> None:
            with T.If(where.held):
                with T.Then():
                    restored(where)
                with T.Else(), T.If(compare("eq", done, number(0))), T.Then():
                    _all_copied(states, (), given, (number(slots - 1),), carries)
            pullback.write(_time(ahead.length, time, ahead.reverse))

        written_backward(ahead.length, Backward(run, pull, positions, slots))
    return list(sources.values()), [*finals, *stacks, *rows, positions], builder.get().body


def _rows(carries: Sequence[Tensor], slots: int, name: str) -> list[Any]:
    """Parameters for the arrays of kept states."""
    return [
        T.arg(f"{name}{n}", T.buffer([slots, *shape_of(carry)], dtype_of(carry)))
        for n, carry in enumerate(carries)
    ]


def _all_copied(
    targets: Sequence[Any],
    there: tuple[Expr, ...],
    sources: Sequence[Any],
    here: tuple[Expr, ...],
    carries: Sequence[Tensor],
) -> None:
    for target, source, carry in zip(targets, sources, carries, strict=True):
        copied(target, there, source, here, shape_of(carry))


def _time(length: Extent, done: Expr, reverse: bool) -> Expr:
    """The position in its sequences that a step reads."""
    time = wide(length) - number(1) - done if reverse else done
    return cast(index_dtype(length), time)
