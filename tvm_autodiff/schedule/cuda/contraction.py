"""Schedules reductions that reuse operands: matrix products, convolutions and their gradients.

A block of threads computes a tile of the output from tiles of both operands in shared memory, and
each thread a small tile in registers. Small outputs with long reductions use two functions. Guards
are evaluated where a tile is fetched, never in the inner loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...codegen.stages.primfunc import StageFunction, stage_function
from ...expr.build import mul
from ...expr.dtypes import itemsize
from ...expr.nodes import Expr, Tensor, dtype_of, load, node_id, tensor_key
from ...expr.rewrite import map_loads
from ...graph.stage import (
    Operation,
    bodies,
    data_axis,
    make_stage,
    reduce_axis,
    renew_axis,
    sum_over,
)
from ..declined import Declined, no_gain, other_kind
from ..kernel import Kernel
from ..machine import Machine
from ..nest.products import product_of
from ..primitives import schedule_of, scheduled
from ..rule import Made, Rest, over_split_axes, writes_to
from .blocks.block_tile import BlockTile, best_tile, plain_cycles, tile_cycles
from .blocks.matrices import Matrices, flat_index, matrices_of, matrix_stage, runs_along
from .blocks.parts import split_for_device
from .blocks.threads import BLOCK, LONG_ROW, WARP
from .blocks.tile_loops import tile_loops


def contraction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that sums products with reuse."""
    return over_split_axes(_contraction, kernel, machine)


def _contraction(kernel: Kernel, machine: Machine) -> Made | Declined:
    found = product_of(kernel.root)
    if found is None:
        return other_kind("it does not sum a product")
    matrices = matrices_of(found)
    if matrices is None:
        return Declined("its product is not one of two matrices over axes that begin at 0")
    _, rows, columns, _ = matrices.sizes
    if min(rows, columns) < 2 or prod(matrices.sizes) < 8 * LONG_ROW:
        return no_gain("it is too small or too narrow for a tile")
    dtype = dtype_of(kernel.root.output(0))
    costs = (matrices.sizes, max(4, itemsize(dtype)), machine)
    tile = best_tile(*costs)
    certain = min(rows, columns) >= BLOCK // WARP
    if not certain and tile_cycles(tile, *costs) >= plain_cycles(*costs):
        return no_gain("its best tile is estimated slower than plain loops")
    split = split_for_device(kernel, matrices.reduced, tile.parts)
    if split is None:
        return [_written(kernel, matrices, found.scale, tile, machine)]
    partial, combined = split
    first = _part(partial, replace(tile, parts=1), machine)
    if first is None:  # a guard that ties a part to an output is in the way
        whole = best_tile(*costs, whole=True)
        return [_written(kernel, matrices, found.scale, whole, machine)]
    return [*writes_to([first], partial), *writes_to([Rest(combined)], kernel)]


def _part(kernel: Kernel, tile: BlockTile, machine: Machine) -> StageFunction | None:
    found = product_of(kernel.root)
    matrices = None if found is None else matrices_of(found)
    if found is None or matrices is None:
        return None
    return _written(kernel, matrices, found.scale, tile, machine)


def _written(
    kernel: Kernel, matrices: Matrices, scale: Sequence[Expr], tile: BlockTile, machine: Machine
) -> StageFunction:
    if matrices.literal:
        return _tiled(kernel, matrices, scale, tile)
    return tile_loops(kernel, matrices, scale, tile, machine)


def _tiled(
    kernel: Kernel, matrices: Matrices, scale: Sequence[Expr], tile: BlockTile
) -> StageFunction:
    left, right, total, consumer = _stages(kernel, matrices, scale, tile)
    unscheduled = stage_function([left, right, total, consumer], [consumer.output(0)])
    schedule, blocks = schedule_of(unscheduled)
    fetch_left, fetch_right, products, result = blocks
    copy = schedule.cache_write(products, 0, "local")
    batch, i, j, k = schedule.get_loops(products)
    rows, y, row = schedule.split(i, [None, tile.sides[0], tile.rows])
    columns, x, column = schedule.split(j, [None, tile.sides[1], tile.columns])
    steps, step = schedule.split(k, [None, tile.step])
    schedule.reorder(batch, rows, columns, y, x, steps, step, row, column)
    grid = schedule.fuse(batch, rows, columns)
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(y, "threadIdx.y")
    schedule.bind(x, "threadIdx.x")
    schedule.reverse_compute_at(copy, x, preserve_unit_loops=True)
    schedule.reverse_compute_inline(result)
    variables = [axis.var for axis in (*kernel.root.axis, *matrices.reduced)]
    for number, (fetch, operands, axes) in enumerate(
        (
            (fetch_left, matrices.left, matrices.rows),
            (fetch_right, matrices.right, matrices.columns),
        )
    ):
        registers = schedule.cache_read(products, number, "local")
        schedule.compute_at(registers, step, preserve_unit_loops=True)
        _vectorize(schedule, registers, (tile.rows, tile.columns)[number])
        schedule.set_scope(fetch, 0, "shared")
        schedule.compute_at(fetch, steps, preserve_unit_loops=True)
        along_reduced = not runs_along(operands, axes, variables) and runs_along(
            operands, matrices.reduced, variables
        )
        _fetch(schedule, fetch, tile, along_reduced)
    for loop in schedule.get_loops(copy)[-2:]:
        schedule.unroll(loop)
    schedule.unroll(row)
    schedule.unroll(column)
    # unrolled by CUDA's compiler: the source stays short
    schedule.annotate(x, "pragma_auto_unroll_max_step", 4096)
    schedule.annotate(x, "pragma_unroll_explicit", 0)
    schedule.decompose_reduction(products, steps)
    return scheduled(schedule, unscheduled, kernel.outputs)


def _fetch(schedule: Any, block: Any, tile: BlockTile, along_reduced: bool) -> None:
    """All threads of a block copy a tile; neighbouring threads copy neighbouring elements."""
    k, i = schedule.get_loops(block)[-2:]
    if along_reduced:
        schedule.reorder(i, k)
        # rows of the tile are written across: apart by one more, they meet in no bank
        schedule.storage_align(block, 0, axis=-2, factor=32, offset=4)
    loop = schedule.fuse(i, k) if along_reduced else schedule.fuse(k, i)
    serial, y, x = schedule.split(loop, [None, *tile.sides])
    schedule.reorder(y, x, serial)
    schedule.bind(y, "threadIdx.y")
    schedule.bind(x, "threadIdx.x")


def _vectorize(schedule: Any, block: Any, count: int) -> None:
    """Four elements at a time out of shared memory."""
    loop = schedule.get_loops(block)[-1]
    if count >= 4:
        _, lanes = schedule.split(loop, [None, 4])
        schedule.vectorize(lanes)
    elif count == 2:
        schedule.vectorize(loop)


def _stages(
    kernel: Kernel, matrices: Matrices, scale: Sequence[Expr], tile: BlockTile
) -> tuple[Operation, Operation, Operation, Operation]:
    """Both matrices, their product over whole tiles, and the stage of the program that reads it."""
    batch, rows, columns, reduced = matrices.sizes
    padded_rows = -(-rows // tile.block_rows) * tile.block_rows
    padded_columns = -(-columns // tile.block_columns) * tile.block_columns
    padded = -(-reduced // tile.step) * tile.step
    name = kernel.root.name
    left = matrix_stage(
        f"{name}_left",
        matrices.left,
        (matrices.batch, matrices.reduced, matrices.rows),
        (batch, padded, padded_rows),
    )
    right = matrix_stage(
        f"{name}_right",
        matrices.right,
        (matrices.batch, matrices.reduced, matrices.columns),
        (batch, padded, padded_columns),
    )
    flat = [
        data_axis(n, extent)
        for n, extent in zip("bij", (batch, padded_rows, padded_columns), strict=True)
    ]
    b, i, j = (axis.var for axis in flat)
    k = reduce_axis("k", padded)
    source = mul(load(left, [b, k.var, i]), load(right, [b, k.var, j]))
    total = make_stage(f"{name}_tile", flat, [sum_over(source, [k])])[0]
    return left.op, right.op, total.op, _consumer(kernel, matrices, scale, total)


def _consumer(
    kernel: Kernel, matrices: Matrices, scale: Sequence[Expr], total: Tensor
) -> Operation:
    """The epilogue of the kernel, or a copy, over the product's flat axes."""
    axes = kernel.root.axis

    def element(indices: Sequence[Expr]) -> Expr:
        places = {node_id(axis.var): index for axis, index in zip(axes, indices, strict=True)}
        groups = (matrices.batch, matrices.rows, matrices.columns)
        value = load(total, [flat_index(group, places, "int32") for group in groups])
        for factor in scale:
            value = mul(factor, value)
        return value

    if kernel.epilogue is None:
        fresh = [renew_axis(axis) for axis in axes]
        body = element([axis.var for axis in fresh])
        return make_stage(f"{kernel.root.name}_out", fresh, [body])[0].op
    root = tensor_key(kernel.root.output(0))

    def read(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        return element(indices) if tensor_key(tensor) == root else None

    body = map_loads(bodies(kernel.epilogue)[0], read)
    return make_stage(kernel.epilogue.name, list(kernel.epilogue.axis), [body])[0].op
