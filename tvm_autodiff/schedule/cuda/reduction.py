"""Schedules reductions by cooperating threads: sums, maxima, arg-reductions, user-defined reducers.

Few elements with long reductions use two functions: parts over the whole device, then their
combination. Neighbouring threads of a block read neighbouring elements, and combine their values by
shuffles and shared memory:

- rows, contiguous along a reduced axis: threads along it, one warp or more per output;
- columns, contiguous along an output axis: threads along that, and rows of them share the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen.primfunc import StageFunction, stage_function
from ...expr.nodes import Var
from ...graph.stage import Operation, Reduction, axis_range, is_compute, reduction_of
from ..declined import NO_REDUCTION, NOT_COMPUTED, Declined, no_gain
from ..kernel import Kernel, iterations, size_of
from ..machine import Machine
from ..nest.access import strides_along
from ..primitives import extent_of, schedule_of, scheduled
from ..rewrites.split_reduction import parts_of
from ..rule import writes_to
from .blocks.threads import BLOCK, WARP, fused, own_loops
from .fallback import fallback

SHORT = 8  #: elements that a thread reduces faster alone than with others
HELPERS = 32  #: threads that share a column, at most
PART = 4_096  #: elements of a part below which splitting costs more than it gains


@dataclass(frozen=True)
class _Shape:
    """Threads of a block: along the outputs, and along the reduction."""

    outputs: int
    together: int
    rows: bool  #: whether neighbouring threads reduce one output


def reduction(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel that reduces with more threads than outputs."""
    if not is_compute(kernel.root):
        return NOT_COMPUTED
    found = reduction_of(kernel.root)
    if found is None:
        return NO_REDUCTION
    if any(axis_range(axis)[0] != 0 for axis in found.axes):
        return Declined("a reduce axis does not begin at 0")
    outputs = size_of([axis_range(axis)[1] for axis in kernel.root.axis])
    length = iterations(kernel.root) // max(1, outputs)
    columns = _goes_down_columns(kernel.root, found)
    if length <= (SHORT if columns else WARP) or outputs == 0:
        return no_gain("a thread for each output has little to reduce")
    split = parts_for_device(kernel, found, outputs, machine)
    if split is not None:
        partial, combined = split
        first = reduction(partial, machine)
        if isinstance(first, Declined):
            return first
        second = reduction(combined, machine) or fallback(combined, machine)
        return [*writes_to(first, partial), *writes_to(second, kernel)]
    shape = _shape(kernel.root, found, outputs, length, machine)
    if shape is None:
        return no_gain("a thread for each output keeps the device busy")
    return [_together(kernel, shape, machine)]


def parts_for_device(
    kernel: Kernel, found: Reduction, outputs: int, machine: Machine
) -> tuple[Kernel, Kernel] | None:
    """The number of parts that occupies the multiprocessors which the outputs alone do not."""
    columns = _goes_down_columns(kernel.root, found)
    threads = HELPERS if columns else BLOCK // 2
    part = PART // 8 if columns else PART  # below, another launch takes longer
    wanted = min(
        machine.multiprocessors * machine.block_threads // max(1, outputs * threads),
        iterations(kernel.root) // max(1, outputs) // part,
    )
    extents = [axis_range(axis)[1] for axis in found.axes]
    lengths = [extent if isinstance(extent, int) else 0 for extent in extents]
    if wanted < 2 or not lengths:
        return None
    # the outermost axis that is long enough: parts stay in one piece
    axis = next((n for n, length in enumerate(lengths) if length >= wanted), None)
    if axis is None:
        axis = lengths.index(max(lengths))
    parts = min(wanted, lengths[axis])
    return parts_of(kernel, axis, parts) if parts > 1 else None


def _shape(
    op: Operation, found: Reduction, outputs: int, length: int, machine: Machine
) -> _Shape | None:
    enough = machine.multiprocessors * machine.block_threads
    if _goes_down_columns(op, found):
        if outputs >= enough:
            return None  # a thread for each output keeps the device busy
        together = _power_of_two(min(length // 4, HELPERS, -(-enough // outputs)))
        return _Shape(WARP, together, rows=False) if together > 1 else None
    together = WARP
    while together < BLOCK and together * 4 <= length and outputs * together < enough:
        together *= 2
    # one output to a block where it needs more than a warp: all its threads then meet
    return _Shape(BLOCK // WARP if together == WARP else 1, together, rows=True)


def _goes_down_columns(op: Operation, found: Reduction) -> bool:
    """Whether reads touch neighbours along the last output axis, and not along a reduced one."""
    if runs_along_rows(op, found) or not len(op.axis):
        return False
    variables = [axis.var for axis in (*op.axis, *found.axes)]
    return _runs_along(found, op.axis[len(op.axis) - 1].var, variables)


def runs_along_rows(op: Operation, found: Reduction) -> bool:
    """Whether reads touch neighbours along the last reduced axis."""
    variables = [axis.var for axis in (*op.axis, *found.axes)]
    return bool(found.axes) and _runs_along(found, found.axes[-1].var, variables)


def _runs_along(found: Reduction, var: Var, variables: Sequence[Var]) -> bool:
    """Whether reads along a variable touch neighbours, with at least one in every step."""
    strides = strides_along(list(found.sources), var, variables)
    return bool(strides) and max(strides or [0]) == 1


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
