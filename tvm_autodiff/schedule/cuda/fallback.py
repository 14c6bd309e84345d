"""The rule that always applies: a thread for each element of each stage.

There is one function per stage; a kernel that is too large for TVM becomes one function in small
statements. The body of an opaque stage keeps its loops, and its parallel loops become threads.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...codegen.loop_nest import function, parameter, sequence
from ...codegen.passes.launches import launches_threads
from ...codegen.passes.opaque_threads import allocated_bytes, bind_parallel
from ...codegen.stages.primfunc import RefusedStageError, StageFunction, stage_function
from ...errors import LoweringError
from ...graph.stage import (
    Operation,
    Reduction,
    axis_range,
    is_compute,
    make_stage,
    outputs_of,
    reduction_of,
    renew_axis,
)
from ..declined import Declined
from ..kernel import Kernel, too_large
from ..machine import Machine
from ..primitives import by_tvm, schedule_of, scheduled
from ..statement_loops import statement_loops
from .blocks.threads import bind_flat, fused, own_loops


def fallback(kernel: Kernel, machine: Machine) -> list[StageFunction]:
    """Schedule any kernel, correctness first."""
    if too_large(kernel, expanded=True) is not None:
        launch = _in_statements(kernel, machine)
        if launch is not None:
            return [launch]
    try:
        return [_stage(op, machine) for op in kernel.ops]
    except RefusedStageError:  # as of two bounds of one datum, which TVM hashes in vain
        launch = _in_statements(kernel, machine)
        if launch is None:
            raise
        return [launch]


def _in_statements(kernel: Kernel, machine: Machine) -> StageFunction | None:
    launch = statement_loops(kernel, machine)
    if isinstance(launch, Declined):
        return None
    return replace(launch, func=bind_parallel(launch.func))


def _stage(op: Operation, machine: Machine) -> StageFunction:
    if is_compute(op) and any(axis_range(axis)[1] == 0 for axis in op.axis):
        return _nothing(op)
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is not None and any(axis_range(axis)[1] == 0 for axis in reduction.axes):
        return _identities(op, reduction, machine)
    unscheduled = stage_function([op], outputs_of(op))
    if not is_compute(op):
        return _opaque(op, unscheduled, machine)
    kept = by_tvm(partial(_bound, registers=True), unscheduled, op, machine)
    return _bound(unscheduled, op, machine, registers=False) if isinstance(kept, Declined) else kept


def _nothing(op: Operation) -> StageFunction:
    """A function for a result without elements."""
    outputs = outputs_of(op)
    func = function([parameter(tensor, f"r{n}") for n, tensor in enumerate(outputs)], sequence([]))
    return StageFunction(func, (), tuple(outputs))


def _identities(op: Operation, reduction: Reduction, machine: Machine) -> StageFunction:
    """``Σ over nothing → 0``."""
    axes = [renew_axis(axis) for axis in op.axis]
    filled = make_stage(op.name, axes, list(reduction.combiner.identity))[0].op
    return replace(_stage(filled, machine), outputs=tuple(outputs_of(op)))


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
    return scheduled(schedule, unscheduled)


def _opaque(op: Operation, unscheduled: StageFunction, machine: Machine) -> StageFunction:
    if launches_threads(unscheduled.func):
        return unscheduled
    needed = allocated_bytes(unscheduled.func)
    if needed > machine.local_bytes:
        raise LoweringError(
            f"stage {op.name} needs {needed:,} bytes beside its arguments, and a thread of a GPU "
            f"has {machine.local_bytes:,}: build it for the CPU"
        )
    func = bind_parallel(unscheduled.func)
    if func is None:
        raise LoweringError(
            f"stage {op.name} is a te.extern that calls functions of the host, which a GPU cannot: "
            "write it as a te.compute, or as loops in its body"
        )
    return replace(unscheduled, func=func)
