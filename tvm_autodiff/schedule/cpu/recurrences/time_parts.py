"""Schedules loops over few rows with affine states, by splitting time into parts that run side by
side.

For ``h' = a·h + b`` each part is first folded into one step: the product of its a, and what its b
add up to. A short pass over the parts computes their initial states, from which the steps then run
normally. A step thus does not wait for the previous part, and parts are divided among threads.

Rounding differs from that of sequential steps: both stay within the number of steps times the
rounding unit times H, with ``H' = |a|·H + |b|``. If a product overflows, or is too small for its
dtype while the preceding state is not, the folded form is unreliable, and the part runs step by
step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ....codegen.stages.primfunc import StageFunction, launch_of
from ....expr.dtypes import bits_of
from ....expr.nodes import Tensor, dtype_of
from ....graph.kinds.loop import Loop, Step
from ....graph.kinds.rewind import KeptLoop, Rewind
from ....graph.stage import shape_of
from ...cost import LATENCY, MARGIN, MEMORY_BYTE, MIN_LANES, SHORT_LOOP, SYMBOLIC_SIZE
from ...declined import Declined, no_gain, other_kind
from ...kernel import Kernel
from ...machine import Machine
from ...nest.recurrences.affine_states import AffineStates, affine_states
from ...nest.recurrences.row_program import row_program
from ...nest.recurrences.state_latency import latency_of
from ...rewrites.normal_form import normal_form
from ..lanes.part_passes import PartPasses


def time_parts(
    kernel: Kernel, loop: Loop | KeptLoop | Rewind, machine: Machine, kernels: int
) -> list[StageFunction] | Declined:
    """The function of a loop whose time is split into parts."""
    if not isinstance(loop, Loop):
        return other_kind("it keeps states")
    if machine.exact_math:
        return other_kind("exact_math asks for one step after the other")
    if not loop.step.carries:
        return no_gain("nothing is carried")
    step = loop.step.with_outputs(normal_form(loop.step.outputs))
    states = _states(step)
    if isinstance(states, Declined):
        return states
    lanes = min(machine.lanes(dtype_of(carry)) for carry in step.carries)
    length = loop.length if isinstance(loop.length, int) else SYMBOLIC_SIZE**2
    work = length * max(1, len(states.program.bindings))
    threads = machine.threads_for(work)
    reason = _reason_against(replace(loop, step=step), states, lanes, threads)
    if reason is not None:
        return no_gain(reason)
    passes = PartPasses(kernel.root, replace(loop, step=step), states, lanes, threads)
    func, inputs, outputs = passes.function()
    return [launch_of(func, kernel.root, inputs, outputs)]


def _reason_against(loop: Loop, states: AffineStates, lanes: int, threads: int) -> str | None:
    """Why sequential steps are as fast, or None."""
    if lanes < MIN_LANES:
        return "vectors are short"
    if isinstance(loop.length, int) and loop.length < threads * lanes * SHORT_LOOP:
        return "its steps are few"
    read, written = (sum(map(_bytes_of, part)) for part in (loop.step.xs, loop.step.ys))
    moved = (states.passes * read + written) * MEMORY_BYTE / threads
    if moved * MARGIN >= LATENCY * latency_of(states.program) + 1:
        return "its rows are as fast side by side"
    return None


def _bytes_of(tensor: Tensor) -> int:
    count = prod(int(dim) for dim in shape_of(tensor))
    return count * bits_of(dtype_of(tensor)) // 8


def _states(step: Step) -> AffineStates | Declined:
    """The states of a step, one for each component."""
    if not all(isinstance(dim, int) for tensor in step.xs for dim in shape_of(tensor)):
        return other_kind("it reads something of a size that is not literal")
    program = row_program(step, 0, SHORT_LOOP)
    if isinstance(program, Declined):
        return program
    states = affine_states(program)
    if states is None:
        return other_kind("its states do not change affinely, each by itself")
    return states
