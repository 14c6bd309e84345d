"""Schedules elementwise kernels that read along another axis than they write: transposes.

One read is contiguous along an output axis other than the last. A square tile is read in memory
order and written in the order of the output, through shared memory.
"""

from __future__ import annotations

from typing import Any

from ...codegen.stages.primfunc import StageFunction, stage_function
from ...expr.nodes import Tensor, is_load, load_tensor, node_id, operands, tensor_key
from ...expr.rewrite import postorder
from ...graph.stage import Operation, axis_range, axis_vars, bodies
from ..declined import Declined, no_gain, other_kind
from ..kernel import Kernel, iterations
from ..machine import Machine
from ..nest.access import strides_along
from ..primitives import extent_of, schedule_of, scheduled
from .blocks.threads import BLOCK, LONG_ROW, WARP, fused, own_loops


def transposition(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel that transposes."""
    op = kernel.root
    found = _transposed_read(op)
    if found is None:
        return other_kind("no read runs through memory along another axis than the write")
    if iterations(op) < LONG_ROW:
        return no_gain("everything is in the cache anyway")
    axis, tensor = found
    unscheduled = stage_function([op], kernel.outputs)
    number = [tensor_key(t) for t in unscheduled.inputs].index(tensor_key(tensor))
    schedule, blocks = schedule_of(unscheduled)
    if len(blocks) != 1:
        return Declined("TVM makes several blocks of it")
    block = blocks[0]
    copy = schedule.cache_read(block, unscheduled.func.params[number].name, "shared")
    loops, _ = own_loops(schedule, block, op)
    rows_out, rows = schedule.split(loops[axis], [None, WARP])
    columns_out, columns = schedule.split(loops[-1], [None, WARP])
    others = [loop for place, loop in enumerate(loops[:-1]) if place != axis]
    schedule.reorder(*others, rows_out, columns_out, rows, columns)
    grid = fused(schedule, [*others, rows_out, columns_out])
    schedule.bind(grid, "blockIdx.x")
    _share(schedule, rows, columns)
    schedule.compute_at(copy, grid, preserve_unit_loops=True)
    mine = schedule.get_loops(copy)[1:]
    # the copy's last axis is the contiguous one of the input
    wide = [loop for loop in mine if extent_of(schedule, loop) != 1]
    if len(wide) != 2 or wide[-1] is not mine[-1]:
        return Declined("a tile of what it reads has not two axes")
    _share(schedule, wide[0], wide[1])
    schedule.storage_align(copy, 0, axis=-2, factor=WARP, offset=1)
    return [scheduled(schedule, unscheduled)]


def _share(schedule: Any, rows: Any, columns: Any) -> None:
    """Rows of a tile, eight at a time, over threads along its columns."""
    serial, y = schedule.split(rows, [None, BLOCK // WARP])
    schedule.reorder(y, columns, serial)
    schedule.bind(y, "threadIdx.y")
    schedule.bind(columns, "threadIdx.x")


def _transposed_read(op: Operation) -> tuple[int, Tensor] | None:
    """The axis along which the only non-contiguous read is contiguous, and its tensor."""
    variables = axis_vars(op)
    if len(variables) < 2 or not all(isinstance(axis_range(a)[1], int) for a in op.axis):
        return None
    keys = [node_id(var) for var in variables]
    found: tuple[int, Tensor] | None = None
    for node in postorder(bodies(op)):
        if not is_load(node) or not operands(node):
            continue
        strides = strides_along([node], variables[-1], variables)
        if strides is not None and strides[0] in (0, 1):
            continue
        places = [keys.index(key) for key in map(node_id, operands(node)) if key in keys]
        plain = len(places) == len(operands(node)) == len(set(places))
        if found is not None or not plain or places[-1] == len(variables) - 1:
            return None
        found = places[-1], load_tensor(node)
    return found
