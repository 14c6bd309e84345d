"""The plain loop nest of a loop over time: its step, written once, inside a loop.

TVM alone can lower it. Programs compiled with `build` call kernels instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvm.script.ir_builder import IRBuilder, tirx as T

from ...expr.build import cast
from ...expr.nodes import Tensor, dtype_of, tensor_key
from ..stage import index_dtype, shape_of
from .step_nest import StepNest, copied

if TYPE_CHECKING:
    from .loop import Loop


def loop_nest(name: str, loop: Loop, inputs: Sequence[Tensor]) -> tuple[list[Any], list[Any], Any]:
    """The buffers of the inputs and the results of a loop, and the body over them.

    Parameters
    ----------
    name : str
        The name of the function.
    loop : Loop
        The loop to compute.
    inputs : sequence of Tensor
        The tensors that the loop reads, each once.
    """
    length = loop.length
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        sources = read_buffers(inputs)
        finals, stacks = result_buffers(loop)
        for tensor, final in zip(loop.init, finals, strict=True):
            copied(final, (), sources[tensor_key(tensor)], (), shape_of(tensor))
        step = step_over(loop, finals, stacks, sources)
        with T.serial(0, length) as count:
            time = length - 1 - count if loop.reverse else count
            step.write(cast(index_dtype(length), time))
    return list(sources.values()), [*finals, *stacks], builder.get().body


def read_buffers(inputs: Sequence[Tensor]) -> dict[tuple[int, int], Any]:
    """One parameter for each of the tensors."""
    return {
        tensor_key(tensor): T.arg(f"p{n}", T.buffer(tensor.shape, dtype_of(tensor)))
        for n, tensor in enumerate(inputs)
    }


def result_buffers(loop: Loop) -> tuple[list[Any], list[Any]]:
    """Parameters for the final carries and for the stacked outputs."""
    finals = [
        T.arg(f"out{n}", T.buffer(shape_of(carry), dtype_of(carry)))
        for n, carry in enumerate(loop.step.carries)
    ]
    stacks = [
        T.arg(f"ys{n}", T.buffer([loop.length, *shape_of(y)], dtype_of(y)))
        for n, y in enumerate(loop.step.ys)
    ]
    return finals, stacks


def step_over(
    loop: Loop,
    carries: Sequence[Any],
    stacks: Sequence[Any],
    sources: dict[tuple[int, int], Any],
    states: Sequence[Any] = (),
) -> StepNest:
    """The step of a loop over its sources; the first of its sequences may be `states` instead."""
    sequences = [(state, False) for state in states]
    sequences += [(sources[tensor_key(tensor)], True) for tensor in loop.xs]
    consts = [sources[tensor_key(tensor)] for tensor in loop.consts]
    return StepNest(loop.step, carries, sequences, consts, stacks)
