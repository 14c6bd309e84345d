"""Schedules reductions by cooperating threads: sums, maxima, arg-reductions, user-defined reducers.

Few elements with long reductions use two functions: parts over the whole device, then their
combination. Neighbouring threads of a block read neighbouring elements, and combine their values by
shuffles and shared memory:

- rows, contiguous along a reduced axis: threads along it, one warp or more per output;
- columns, contiguous along an output axis: threads along that, and rows of them share the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...codegen.stages.primfunc import StageFunction, stage_function
from ...graph.stage import Operation, Reduction, axis_range, reduction_of
from ..declined import Declined, no_gain
from ..kernel import Kernel, iterations, size_of
from ..machine import Machine
from ..primitives import extent_of, schedule_of, scheduled
from ..rule import Made, in_parts
from .blocks.parts import HELPERS, goes_down_columns, parts_for_device
from .blocks.threads import BLOCK, WARP, fused, own_loops

SHORT = 8  #: elements that a thread reduces faster alone than with others

@dataclass(frozen=True)
class _Shape:
    """Threads of a block: along the outputs, and along the reduction."""

    outputs: int
    together: int
    rows: bool  #: whether neighbouring threads reduce one output


def reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that reduces with more threads than outputs."""
    found = reduction_of(kernel.root)
    assert found is not None
    if any(axis_range(axis)[0] != 0 for axis in found.axes):
        return Declined("a reduce axis does not begin at 0")
    outputs = size_of([axis_range(axis)[1] for axis in kernel.root.axis])
    length = iterations(kernel.root) // max(1, outputs)
    columns = goes_down_columns(kernel.root, found)
    if length <= (SHORT if columns else WARP) or outputs == 0:
        return no_gain("a thread for each output has little to reduce")
    split = parts_for_device(kernel, found, outputs, machine)
    if split is not None:
        partial, combined = split
        return in_parts(reduction(partial, machine), partial, combined, kernel)
    shape = _shape(kernel.root, found, outputs, length, machine)
    if shape is None:
        return no_gain("a thread for each output keeps the device busy")
    return [_together(kernel, shape, machine)]


def _shape(
    op: Operation, found: Reduction, outputs: int, length: int, machine: Machine
) -> _Shape | None:
    enough = machine.multiprocessors * machine.block_threads
    if goes_down_columns(op, found):
        if outputs >= enough:
            return None  # a thread for each output keeps the device busy
        together = _power_of_two(min(length // 4, HELPERS, -(-enough // outputs)))
        return _Shape(WARP, together, rows=False) if together > 1 else None
    together = WARP
    while together < BLOCK and together * 4 <= length and outputs * together < enough:
        together *= 2
    # one output to a block where it needs more than a warp: all its threads then meet
    return _Shape(BLOCK // WARP if together == WARP else 1, together, rows=True)


def _power_of_two(number: int) -> int:
    return 1 << max(0, number.bit_length() - 1)


def _together(kernel: Kernel, shape: _Shape, machine: Machine) -> StageFunction:
    op = kernel.root
    unscheduled = stage_function(kernel.ops, kernel.outputs)
    schedule, blocks = schedule_of(unscheduled)
    block = blocks[0]
    readers = blocks[1:]
    if not readers:
        readers = [schedule.cache_write(block, n, "local") for n in range(op.num_outputs)]
    else:
        schedule.set_scope(block, 0, "local")
    spatial, reduced = own_loops(schedule, block, op)
    grid, thread, inner = _outputs(schedule, fused(schedule, spatial), shape, machine)
    serial, help_ = schedule.split(fused(schedule, reduced), [None, shape.together])
    schedule.reorder(help_, serial)
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(help_, "threadIdx.x" if shape.rows else "threadIdx.y")
    schedule.bind(thread, "threadIdx.y" if shape.rows else "threadIdx.x")
    for reader in readers:
        schedule.reverse_compute_at(reader, inner)
    return scheduled(schedule, unscheduled)


def _outputs(schedule: Any, loop: Any, shape: _Shape, machine: Machine) -> tuple[Any, Any, Any]:
    """Loops over blocks and over outputs in a block, and the loop inside which an output is
    computed.
    """
    extent = extent_of(schedule, loop)
    if extent is not None:
        # TVM loses the guard of the threads behind a single output: all of them would write it
        grid, thread = schedule.split(loop, [None, min(shape.outputs, max(1, extent))])
        return grid, thread, thread
    again, grid, thread = schedule.split(loop, [None, 4 * machine.multiprocessors, shape.outputs])
    schedule.reorder(grid, thread, again)
    return grid, thread, again
