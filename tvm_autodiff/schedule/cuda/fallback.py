"""The rule that always applies: a thread for each element of each stage.

In: any kernel. Out: one function a stage. The body of a stage that te cannot see into keeps its
loops; those that it calls parallel become threads.
"""

from __future__ import annotations

from dataclasses import replace

from tvm.s_tir.schedule import ScheduleError

from ...errors import LoweringError
from ...ir.launches import launches_threads
from ...ir.opaque_threads import bind_parallel
from ...ir.primfunc import StageFunction, stage_function
from ...ir.stage import Operation, is_compute, outputs_of
from ..kernels import Kernel
from ..machine import Machine
from .threads import bind_flat, finished, fused, own_loops, schedule_of


def fallback(kernel: Kernel, machine: Machine) -> list[StageFunction]:
    """Schedule any kernel: correct first."""
    return [_stage(op, machine) for op in kernel.ops]


def _stage(op: Operation, machine: Machine) -> StageFunction:
    unscheduled = stage_function([op], outputs_of(op))
    if not is_compute(op):
        return _opaque(op, unscheduled)
    try:
        return _bound(unscheduled, op, machine, registers=True)
    except ScheduleError:
        return _bound(unscheduled, op, machine, registers=False)


def _bound(
    unscheduled: StageFunction, op: Operation, machine: Machine, registers: bool
) -> StageFunction:
    schedule, blocks = schedule_of(unscheduled)
    for block in blocks:
        # a reduction whose bounds vary along the output is a block inside of this one
        loops = len(schedule.get_loops(block)) > len(op.axis)
        # copies are made before loops are split: TVM forgets the bounds of a copy made afterwards
        count = op.num_outputs if registers and loops else 0
        copies = [schedule.cache_write(block, number, "local") for number in range(count)]
        spatial, reduced = own_loops(schedule, block, op)
        inner = bind_flat(schedule, fused(schedule, spatial), machine)
        for copy in copies:
            schedule.reverse_compute_at(copy, inner)
        if copies:
            schedule.decompose_reduction(block, reduced[0])
    return finished(schedule, unscheduled)


def _opaque(op: Operation, unscheduled: StageFunction) -> StageFunction:
    if launches_threads(unscheduled.func):
        return unscheduled
    func = bind_parallel(unscheduled.func)
    if func is None:
        raise LoweringError(
            f"stage {op.name} is a te.extern that calls functions of the host, which a GPU cannot: "
            "write it as a te.compute, or as loops in its body"
        )
    return replace(unscheduled, func=func)
