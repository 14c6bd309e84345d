"""Schedules reductions along columns: sums, maxima and products that no other rule takes.

There are two functions if the output is small and the reduction long: split-K parts in parallel,
then their combination. Along a contiguous output axis, whole vectors of outputs are reduced.
"""

from __future__ import annotations

from dataclasses import replace

from ...codegen.stages.primfunc import StageFunction, external_reads, stage_function
from ...expr.nodes import Axis, Tensor, dtype_of, load, tensor_key
from ...expr.rewrite import substituter
from ...graph.free_variables import free_variables
from ...graph.graph import retarget
from ...graph.stage import (
    Operation,
    Reduction,
    axis_range,
    bodies,
    loop_axes,
    make_stage,
    reduction_of,
    reduction_stage,
    renew_axis,
    renewed,
)
from ..cost import LATENCY, MIN_LANES, STORE
from ..declined import Declined
from ..kernel import Kernel, iterations, size_of, unknown_size
from ..machine import Machine
from ..nest.access import has_branches, is_flat, strides_along
from ..primitives import extent_of, schedule_of, scheduled
from ..rewrites.guards import selected
from ..rewrites.sums.split_reduction import split_reduction
from ..rule import Made, in_parts
from .loops.column_strips import column_strips
from .loops.guarded_columns import guarded_columns
from .loops.parallel import parts_for_threads, threads_of
from .tiles.tiling import Tile, schedule_tile


def reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that reduces one value."""
    if kernel.root.num_outputs != 1:
        return Declined("it reduces several values at once")
    split = parts_for_threads(kernel, machine)
    if split is not None:
        partial, combined = split
        return in_parts(_reduced(partial, machine), partial, combined, kernel)
    return _reduced(kernel, machine)


def _reduced(kernel: Kernel, machine: Machine) -> Made | Declined:
    """The function of a kernel, and what combines the lanes of its vectors if they are parts."""
    lanes = _lanes(kernel, machine)
    if lanes is None:
        return [_columns_of(kernel, machine)]
    partial, combined = lanes
    plain = _selected(partial)
    tile = Tile(0, machine.lanes(dtype_of(kernel.root.output(0))))
    return in_parts([_columns(partial, plain, tile, machine)], partial, combined, kernel)


def _lanes(kernel: Kernel, machine: Machine) -> tuple[Kernel, Kernel] | None:
    """``out[i] = ⊕_k x[i, k%n]  →  part[p, i] = ⊕_k x[i, (k*P + p)%n], out[i] = ⊕_p part[p, i]``
    where no axis has vectors of memory: one by one, each element waits for the one before.
    """
    root = kernel.root
    plain, lanes = _selected(kernel), machine.lanes(dtype_of(root.output(0)))
    axis = plain.axes[-1]
    low, extent = axis_range(axis)
    if low != 0 or not isinstance(extent, int) or extent % lanes or lanes < MIN_LANES:
        return None
    extents = [axis_range(axis)[1] for axis in root.axis]
    if not all(isinstance(n, int) for n in extents):
        return None
    if STORE * lanes * size_of(extents) > iterations(root, machine.symbolic_size):
        return None
    variables = [one.var for one in (*root.axis, *plain.axes)]
    columns = root.axis[-1].var if len(root.axis) else None
    strides = strides_along(plain.sources, columns, variables) if columns is not None else None
    if (strides and max(strides) == 1) or has_branches(plain.sources, axis.var):
        return None
    return split_reduction(kernel, len(plain.axes) - 1, lanes, interleaved=True)


def _selected(kernel: Kernel) -> Reduction:
    """The reduction of a kernel, without branches where reads are safe."""
    found = reduction_of(kernel.root)
    assert found is not None
    axes = [*kernel.root.axis, *found.axes]
    return replace(found, sources=selected(found.sources, axes))


def _columns_of(kernel: Kernel, machine: Machine) -> StageFunction:
    found = reduction_of(kernel.root)
    assert found is not None
    lanes = machine.lanes(dtype_of(kernel.root.output(0)))
    if kernel.epilogue is None and is_flat(kernel.root, lanes):
        return _flat_columns(kernel, lanes, machine)
    plain = _selected(kernel)
    if _symbolic_columns(kernel, plain):
        return column_strips(kernel, plain, machine)
    tile = _column_tile(kernel.root, plain, lanes)
    if tile is not None:
        return _columns(kernel, plain, tile, machine)
    pieces = guarded_columns(kernel, machine)
    if not isinstance(pieces, Declined):
        return pieces
    return _columns(kernel, found, Tile(None), machine)


def _symbolic_columns(kernel: Kernel, found: Reduction) -> bool:
    """Whether every read is contiguous along the last output axis, of symbolic extent."""
    op = kernel.root
    if not len(op.axis) or has_branches(found.sources, op.axis[-1].var):
        return False
    low, extent = axis_range(op.axis[-1])
    strides = strides_along(list(found.sources), op.axis[-1].var, [a.var for a in loop_axes(op)])
    if low != 0 or isinstance(extent, int) or max(strides or [0]) != 1:
        return False
    used = [var for one in kernel.ops for var in free_variables(one)]
    parameters = [*external_reads(kernel.ops), *kernel.outputs]
    if unknown_size(used, parameters) is not None:
        return False
    return all(axis_range(axis)[0] == 0 for axis in op.axis)


def _column_tile(op: Operation, found: Reduction, lanes: int) -> Tile | None:
    """Vectors of outputs, when every read is contiguous along the last output axis."""
    if not len(op.axis) or has_branches(found.sources, op.axis[-1].var):
        return None
    last = op.axis[len(op.axis) - 1]
    extent = axis_range(last)[1]
    strides = strides_along(list(found.sources), last.var, [a.var for a in loop_axes(op)])
    if not isinstance(extent, int) or strides is None or not strides or max(strides) != 1:
        return None
    widths = (w for w in (lanes, lanes // 2, lanes // 4) if w >= MIN_LANES and extent % w == 0)
    width = next(widths, None)
    if width is None:
        return None
    vectors = next(v for v in range(LATENCY, 0, -1) if extent % (width * v) == 0)
    return Tile(len(op.axis) - 1, width, vectors)


def _flat_columns(kernel: Kernel, lanes: int, machine: Machine) -> StageFunction:
    unscheduled = stage_function([kernel.root], kernel.outputs)
    schedule, [block] = schedule_of(unscheduled)
    loops = schedule.get_loops(block)
    rank = len(kernel.root.axis)
    fused = schedule.fuse(*loops[:rank])
    total = extent_of(schedule, fused)
    assert total is not None
    vectors = next(v for v in range(LATENCY, 0, -1) if total % (lanes * v) == 0)
    outer, group, vector = schedule.split(fused, [None, vectors, lanes])
    schedule.reorder(outer, *loops[rank:], group, vector)
    schedule.unroll(group)
    schedule.vectorize(vector)
    if threads_of(kernel, machine) > 1:
        schedule.parallel(outer)
    init = schedule.decompose_reduction(block, loops[rank])
    group, vector = schedule.get_loops(init)[-2:]
    schedule.unroll(group)
    schedule.vectorize(vector)
    return scheduled(schedule, unscheduled)


def _columns(kernel: Kernel, found: Reduction, tile: Tile, machine: Machine) -> StageFunction:
    op = kernel.root
    axes = [renew_axis(axis) for axis in op.axis]
    accumulate = _renamed(op, found, axes, f"{op.name}_acc")
    consume = _consumer(kernel, accumulate.output(0))
    return schedule_tile(
        accumulate,
        [consume],
        kernel.outputs,
        tile,
        machine,
        threads_of(kernel, machine) > 1,
        vectorize_consumer=tile.vector is not None and not has_branches(bodies(consume)),
    )


def _renamed(op: Operation, found: Reduction, axes: list[Axis], name: str) -> Operation:
    reduced, table = renewed(found.axes)
    spatial = {old.var: new.var for old, new in zip(op.axis, axes, strict=True)}
    source = substituter(spatial | table)(found.sources[0])
    plain = Reduction(found.combiner, (source,), tuple(reduced), found.condition, ())
    return reduction_stage(name, axes, plain)[0].op


def _consumer(kernel: Kernel, result: Tensor) -> Operation:
    """The use of the reduced value: the epilogue, or a copy."""
    op = kernel.root
    if kernel.epilogue is None:
        axes = [renew_axis(axis) for axis in op.axis]
        body = load(result, [axis.var for axis in axes])
        return make_stage(f"{op.name}_out", axes, [body])[0].op
    root = tensor_key(op.output(0))
    new = retarget(kernel.epilogue, lambda t: result if tensor_key(t) == root else None)
    return new[0].op
