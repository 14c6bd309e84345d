"""Schedules loops of small steps as one function, whose step calls nothing.

The function is the plain loop nest of the stages of a step, with cheap stages inlined into their
readers. The compiler sees the whole step, and keeps a small state in registers.
"""

from __future__ import annotations

from dataclasses import replace

from ....codegen.stages.primfunc import StageFunction, stage_function
from ....graph.graph import topological
from ....graph.kinds.loop import Loop
from ....graph.kinds.rewind import (
    KeptLoop,
    Rewind,
    loops_in,
    reused_by,
    stage_of_loops,
    with_loops,
)
from ....graph.stage import (
    Operation,
    axis_range,
    is_compute,
    is_placeholder,
    loop_axes,
    outputs_of,
)
from ...cost import KERNEL_CALL
from ...declined import Declined, no_gain, other_kind
from ...fusion.kernels import inline_producers
from ...kernel import Kernel, iterations
from ...machine import Machine
from ...rewrites.normal_form import normal_form


def small_loop(
    kernel: Kernel, kind: Loop | KeptLoop | Rewind, machine: Machine, kernels: int
) -> list[StageFunction] | Declined:
    """The function of a loop with small steps."""
    inlined = []
    points = 0
    for loop in loops_in(kind):
        outputs = inline_producers(normal_form(loop.step.outputs))
        ops = [op for op in topological(outputs) if not is_placeholder(op)]
        if not all(is_compute(op) and op.num_outputs == 1 and _is_literal(op) for op in ops):
            return other_kind(
                "a step has stages other than te.compute stages of literal size with one result"
            )
        points += sum(map(iterations, ops))
        inlined.append(replace(loop, step=loop.step.with_outputs(outputs)))
    if points > kernels * KERNEL_CALL:
        return no_gain(f"a step of {points} points is worth the calls of {kernels} kernels")
    made = stage_of_loops(kernel.root.name, with_loops(kind, inlined))
    launch = stage_function([made[0].op], made)
    outputs = outputs_of(kernel.root)
    reuses = tuple((outputs[n], tensor) for n, tensor in reused_by(kind))
    return [replace(launch, outputs=tuple(outputs), reuses=reuses)]


def _is_literal(op: Operation) -> bool:
    return all(isinstance(bound, int) for axis in loop_axes(op) for bound in axis_range(axis))
