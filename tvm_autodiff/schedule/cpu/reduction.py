"""Schedules reductions without reuse: sums, maxima and products along rows, along columns, or of
everything.

There are two functions if the output is small and the reduction long: split-K parts in parallel,
then their combination. Along a contiguous reduced axis, vectors of partial results are combined at
the end. Along a contiguous output axis, whole vectors of outputs are reduced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...codegen.primfunc import StageFunction, stage_function
from ...expr.build import add, const, mul
from ...expr.nodes import Axis, Expr, Tensor, Var, dtype_of, load, tensor_key
from ...expr.rewrite import map_loads, substituter
from ...graph.graph import retarget
from ...graph.stage import (
    Operation,
    Reduction,
    axis_range,
    bodies,
    data_axis,
    is_compute,
    make_stage,
    reduce_axis,
    reduction_of,
    reduction_stage,
    renew_axis,
    shape_of,
)
from ..declined import EMPTY, NO_REDUCTION, NOT_COMPUTED, Declined
from ..kernel import Kernel, iterations, size_of
from ..machine import Machine
from ..nest.access import has_branches, is_flat, strides_along
from ..primitives import extent_of, schedule_of, scheduled
from ..rewrites.guards import selected
from ..rewrites.split_reduction import divisor_at_least, split_reduction
from ..rule import Made, writes_to
from .loops.parallel import share_out
from .tiles.tiling import Tile, schedule_tile

MAX_VECTORS = 4


def reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that reduces one value."""
    if not is_compute(kernel.root):
        return NOT_COMPUTED
    found = reduction_of(kernel.root)
    if found is None:
        return NO_REDUCTION
    if len(found.sources) != 1:
        return Declined("it reduces several values at once")
    if 0 in shape_of(kernel.root.output(0)):
        return EMPTY
    split = _split(kernel, found, machine)
    if split is not None:
        partial, combined = split
        first, second = reduction(partial, machine), reduction(combined, machine)
        if isinstance(first, Declined):
            return first
        if isinstance(second, Declined):
            return second
        return [*writes_to(first, partial), *writes_to(second, kernel)]
    lanes = machine.lanes(dtype_of(kernel.root.output(0)))
    if kernel.epilogue is None and is_flat(kernel.root, lanes):
        return [_flat_columns(kernel, lanes, machine)]
    axes = [*kernel.root.axis, *found.axes]
    plain = replace(found, sources=selected(found.sources, axes))
    tile = _column_tile(kernel.root, plain, lanes)
    row = None if tile is not None else _row_axis(kernel.root, plain, lanes)
    if row is not None:
        return [_rows(kernel, plain, row, lanes, machine)]
    if tile is not None:
        return [_columns(kernel, plain, tile, machine)]
    return [_columns(kernel, found, Tile(None), machine)]


def _split(kernel: Kernel, found: Reduction, machine: Machine) -> tuple[Kernel, Kernel] | None:
    """The number of parts for the threads that the output axes do not occupy."""
    outputs = size_of([axis_range(axis)[1] for axis in kernel.root.axis])
    if not machine.worth_threads(iterations(kernel.root) / 2):
        return None
    if outputs >= 4 * machine.threads and outputs * 64 > iterations(kernel.root):
        return None
    if outputs >= 256 * machine.threads:
        return None
    for number, axis in enumerate(found.axes):
        extent = axis_range(axis)[1]
        if isinstance(extent, int) and extent >= machine.threads:
            parts = divisor_at_least(extent, machine.threads)
            if parts <= 16 * machine.threads and parts < extent:
                return split_reduction(kernel, number, parts)
    return None


def _guarded(found: Reduction) -> bool:
    return has_branches(found.sources)


def _column_tile(op: Operation, found: Reduction, lanes: int) -> Tile | None:
    """Vectors of outputs, when every read is contiguous along the last output axis."""
    if not len(op.axis) or _guarded(found):
        return None
    last = op.axis[len(op.axis) - 1]
    extent = axis_range(last)[1]
    strides = strides_along(list(found.sources), last.var, _variables(op, found))
    if not isinstance(extent, int) or strides is None or not strides or max(strides) != 1:
        return None
    width = next((w for w in (lanes, lanes // 2, lanes // 4) if w >= 4 and extent % w == 0), None)
    if width is None:
        return None
    vectors = next(v for v in (4, 3, 2, 1) if extent % (width * v) == 0)
    return Tile(len(op.axis) - 1, width, vectors)


def _row_axis(op: Operation, found: Reduction, lanes: int) -> int | None:
    """A reduce axis along which every read is contiguous."""
    if _guarded(found):
        return None
    best: int | None = None
    for number, axis in enumerate(found.axes):
        low, extent = axis_range(axis)
        if low != 0 or not isinstance(extent, int) or extent < lanes:
            continue
        strides = strides_along(list(found.sources), axis.var, _variables(op, found))
        if strides and max(strides) == 1:
            best = number
    return best


def _variables(op: Operation, found: Reduction) -> list[Var]:
    return [axis.var for axis in (*op.axis, *found.axes)]


def _flat_columns(kernel: Kernel, lanes: int, machine: Machine) -> StageFunction:
    unscheduled = stage_function([kernel.root], kernel.outputs)
    schedule, [block] = schedule_of(unscheduled)
    loops = schedule.get_loops(block)
    rank = len(kernel.root.axis)
    fused = schedule.fuse(*loops[:rank])
    total = extent_of(schedule, fused)
    assert total is not None
    vectors = next(v for v in (4, 3, 2, 1) if total % (lanes * v) == 0)
    outer, group, vector = schedule.split(fused, [None, vectors, lanes])
    schedule.reorder(outer, *loops[rank:], group, vector)
    schedule.unroll(group)
    schedule.vectorize(vector)
    if machine.worth_threads(iterations(kernel.root)):
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
    consume = _consumer(kernel, accumulate.output(0), None)
    return schedule_tile(
        accumulate,
        [consume],
        kernel.outputs,
        tile,
        machine,
        machine.worth_threads(iterations(op)),
        vectorize_consumer=tile.vector is not None and not _guards_in(consume),
    )


def _guards_in(op: Operation) -> bool:
    return has_branches(bodies(op))



def _renamed(op: Operation, found: Reduction, axes: list[Axis], name: str) -> Operation:
    reduced = [renew_axis(axis) for axis in found.axes]
    table: dict[Var, Expr] = {
        old.var: new.var
        for old, new in zip((*op.axis, *found.axes), (*axes, *reduced), strict=True)
    }
    source = substituter(table)(found.sources[0])
    plain = Reduction(found.combiner, (source,), tuple(reduced), found.condition, ())
    return reduction_stage(name, axes, plain)[0].op


def _consumer(kernel: Kernel, result: Tensor, rest: Tensor | None) -> Operation:
    """The use of the reduced value: the remainder of the row joins it, then the epilogue."""
    op = kernel.root
    found = reduction_of(op)
    assert found is not None

    def value(indices: list[Expr]) -> Expr:
        main = load(result, indices)
        return main if rest is None else found.combiner.apply([main], [load(rest, indices)])[0]

    if kernel.epilogue is None:
        axes = [renew_axis(axis) for axis in op.axis]
        body = value([axis.var for axis in axes])
        return make_stage(f"{op.name}_out", axes, [body])[0].op
    root = tensor_key(op.output(0))
    if rest is None:
        new = retarget(kernel.epilogue, lambda t: result if tensor_key(t) == root else None)
        return new[0].op
    body = map_loads(
        bodies(kernel.epilogue)[0],
        lambda tensor, indices: value(list(indices)) if tensor_key(tensor) == root else None,
    )
    return make_stage(kernel.epilogue.name, list(kernel.epilogue.axis), [body])[0].op


def _rows(
    kernel: Kernel, found: Reduction, row: int, lanes: int, machine: Machine
) -> StageFunction:
    """``⊕_k f(k) → t[l] = ⊕_o f(o*L + l), (⊕_l t[l]) ⊕ (what is left of the row)``."""
    op = kernel.root
    extent = axis_range(found.axes[row])[1]
    assert isinstance(extent, int)
    # as many vectors at once as leave little of the row to the scalar tail
    most = max(1, min(MAX_VECTORS, extent // (2 * lanes)))
    vectors = max(range(1, most + 1), key=lambda v: (extent // (v * lanes) * v, v))
    length = vectors * lanes
    dtype = dtype_of(found.axes[row].var)
    stages: list[Operation] = []

    def part(name: str, extra: list[Axis], position: Any, inner: list[Axis]) -> Tensor:
        axes = [renew_axis(axis) for axis in op.axis]
        reduced = list(inner)
        table: dict[Var, Expr] = {o.var: n.var for o, n in zip(op.axis, axes, strict=True)}
        for number, axis in enumerate(found.axes):
            if number == row:
                table[axis.var] = position
            else:
                fresh = renew_axis(axis)
                reduced.insert(len(reduced) - len(inner), fresh)
                table[axis.var] = fresh.var
        source = substituter(table)(found.sources[0])
        plain = Reduction(found.combiner, (source,), tuple(reduced), found.condition, ())
        stage = reduction_stage(name, [*axes, *extra], plain)[0]
        stages.append(stage.op)
        return stage

    lane = data_axis("lane", length, dtype)
    outer = reduce_axis("o", extent // length, 0, dtype)
    position = add(mul(outer.var, const(length, dtype)), lane.var)
    partial = part(f"{op.name}_lanes", [lane], position, [outer])
    main = partial
    if vectors > 1:
        main = _across(op, found, partial, "fold", vectors, lanes, dtype)
        stages.append(main.op)
    result = _across(op, found, main, "sum", lanes, 0, dtype)
    stages.append(result.op)
    rest = None
    if extent % length:
        tail = reduce_axis("t", extent % length, 0, dtype)
        begin = const(extent - extent % length, dtype)
        rest = part(f"{op.name}_tail", [], add(tail.var, begin), [tail])
    consume = _consumer(kernel, result, rest)
    stages.append(consume)
    return _schedule_rows(kernel, stages, consume, vectors, lanes, machine)


def _across(
    op: Operation, found: Reduction, lanes: Tensor, name: str, count: int, keep: int, dtype: str
) -> Tensor:
    """Combine lanes: ``count`` groups of ``keep`` into one group, or all of them into one value."""
    axes = [renew_axis(axis) for axis in op.axis]
    over = reduce_axis("l", count, 0, dtype)
    extra = [data_axis("lane", keep, dtype)] if keep else []
    last = add(mul(over.var, const(keep, dtype)), extra[0].var) if keep else over.var
    source = load(lanes, [*(axis.var for axis in axes), last])
    plain = Reduction(found.combiner, (source,), (over,), found.condition, ())
    return reduction_stage(f"{op.name}_{name}", [*axes, *extra], plain)[0]


def _schedule_rows(
    kernel: Kernel,
    stages: list[Operation],
    consume: Operation,
    vectors: int,
    lanes: int,
    machine: Machine,
) -> StageFunction:
    unscheduled = stage_function(stages, [consume.output(0)])
    schedule, blocks = schedule_of(unscheduled)
    reader = blocks[-1]
    loops = schedule.get_loops(reader)
    threads = machine.worth_threads(iterations(kernel.root))
    for block in reversed(blocks[:-1]):
        schedule.set_scope(block, 0, "local")
        if loops:
            schedule.compute_at(block, loops[-1], preserve_unit_loops=True)
    if threads and loops:
        share_out(schedule, loops, machine)
    for block, op in zip(blocks[:-1], stages[:-1], strict=True):
        _vector_loops(schedule, block, op, len(kernel.root.axis), lanes)
    return scheduled(schedule, unscheduled, [kernel.outputs[0]])


def _vector_loops(schedule: Any, block: Any, op: Operation, rank: int, lanes: int) -> None:
    """Put the lanes of a block innermost, as vectors, and take its init out of the loops."""
    found = reduction_of(op)
    assert found is not None
    loops = schedule.get_loops(block)
    has_lanes = len(op.axis) > rank
    count = len(found.axes)
    reduced = loops[len(loops) - count :]
    if has_lanes:
        lane = loops[len(loops) - count - 1]
        group, vector = schedule.split(lane, [None, lanes])
        schedule.reorder(*reduced, group, vector)
        schedule.unroll(group)
        schedule.vectorize(vector)
    init = schedule.decompose_reduction(block, reduced[0])
    if has_lanes:
        mine = schedule.get_loops(init)[-2:]
        schedule.unroll(mine[0])
        schedule.vectorize(mine[1])
