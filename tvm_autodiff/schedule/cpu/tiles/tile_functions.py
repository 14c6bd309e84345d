"""The functions of a register tile: copies of operands, the tile, and a transposition of its
results where that is faster than to write them in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....codegen.stages.primfunc import StageFunction
from ....expr.build import true
from ....expr.nodes import Axis, Expr, Tensor, Var, dtype_of, load, node_id, tensor_key
from ....expr.rewrite import map_loads, substituter
from ....graph.stage import (
    Operation,
    Reduction,
    bodies,
    bounds_of,
    data_axis,
    make_stage,
    outputs_of,
    reduction_stage,
    renew_axis,
)
from ...declined import Declined
from ...kernel import Kernel
from ...machine import Machine
from ...nest.elementwise_body import reduced_body
from ...rule import Made, Rest, writes_to
from ..loops.crossed import crossed
from ..loops.parallel import threads_of
from .copies import needs_copy
from .nests import Nest, nest_of, padded_extents
from .packing import TileAxes, pack
from .tile_choice import reduction_order, tile_cycles, tile_order, worth_turning
from .tiling import Tile, schedule_tile


def nest_of_kernel(kernel: Kernel, machine: Machine) -> Nest | None:
    """The loops of what a kernel reduces, or None if there are none."""
    found = reduced_body(kernel.root)
    if isinstance(found, Declined):
        return None
    epilogue = () if kernel.epilogue is None else bodies(kernel.epilogue)
    dtype = dtype_of(kernel.root.output(0))
    return nest_of(found, dtype, machine, epilogue, kernel.repetition)


def tile_functions(
    kernel: Kernel, nest: Nest, tile: Tile, machine: Machine, *, blocks: bool = False
) -> Made | Declined:
    """The copies of operands, and the tile; with `blocks`, its loops are serial and write the
    results themselves.
    """
    padded = padded_extents(nest, tile)
    inner = inner_axes(nest, tile)
    launches: list[StageFunction | Rest] = []
    reads: list[Expr] = []
    name = kernel.root.name
    for number, operand in enumerate(nest.body.operands):
        if not needs_copy(operand, nest, tile, machine, padded):
            reads.append(operand.expr)
            continue
        copied = pack(operand, f"{name}_pack{number}", nest.loops(padded), nest.spatial, inner)
        if copied is None:
            return Declined("an operand cannot be packed")
        tensor, read = copied
        launches.append(Rest(Kernel(tensor.op)))
        reads.append(read)
    return [*launches, *tile_function(kernel, nest, tile, machine, reads, blocks=blocks)]


def inner_axes(nest: Nest, tile: Tile) -> TileAxes:
    """The innermost variables of a tile."""
    assert tile.vector is not None
    return TileAxes(
        nest.spatial[tile.vector],
        {nest.spatial[axis]: factor for axis, factor in tile.factors.items()},
        tuple(nest.spatial[axis] for axis, _ in tile.unrolled),
        tuple(nest.reduced[axis] for axis in reduction_order(nest, tile)),
    )


def tile_function(
    kernel: Kernel,
    nest: Nest,
    tile: Tile,
    machine: Machine,
    reads: Sequence[Expr],
    *,
    blocks: bool,
) -> Made:
    """The tile over the values of its operands, and the function that transposes its results if
    there is one.
    """
    assert tile.vector is not None
    padded = padded_extents(nest, tile)
    reduced = reduction_order(nest, tile)
    name = kernel.root.name
    sources = nest.body.over(reads, frozenset(nest.spatial[axis] for axis, _ in tile.unrolled))
    places = [axis for axis in range(len(nest.spatial)) if axis != tile.vector] + [tile.vector]
    accumulate = _stage(nest, padded, sources, f"{name}_acc", places, reduced)
    consume, results = _consumers(kernel, accumulate, places), kernel.outputs
    straight = tile.vector == len(nest.spatial) - 1 and _in_vectors(nest, tile)
    turned: Kernel | None = None
    if not (straight or blocks) and len(results) == 1 and worth_turning(nest, tile, machine):
        kept = _kept(accumulate)
        [last] = _consumers(kernel, kept, places)
        if not isinstance(crossed(Kernel(last), machine), Declined):
            turned = Kernel(last)
            consume, results, straight = [kept], [kept.output(0)], True
    cycles = tile_cycles(nest, tile, replace(machine, threads=1))
    launches: Made = [
        schedule_tile(
            accumulate,
            consume,
            results,
            _moved(tile, places),
            machine,
            not blocks and threads_of(kernel, machine, cycles) > 1,
            straight,
            [places.index(axis) for axis in tile_order(nest, padded)],
        )
    ]
    return launches if turned is None else writes_to([*launches, Rest(turned)], kernel)


def _in_vectors(nest: Nest, tile: Tile) -> bool:
    """Whether the lanes of each result vector are all inside the result, or all outside."""
    assert tile.vector is not None
    return nest.extents[nest.spatial[tile.vector]] % tile.width == 0


def _kept(accumulate: Operation) -> Operation:
    """The results in the order of the accumulators."""
    axes = [renew_axis(axis) for axis in accumulate.axis]
    read = load(accumulate.output(0), [axis.var for axis in axes])
    return make_stage(f"{accumulate.name}_kept", axes, [read])[0].op


def _moved(tile: Tile, places: Sequence[int]) -> Tile:
    """The tile over axes in another order."""
    assert tile.vector is not None
    unrolled = tuple((places.index(axis), factor) for axis, factor in tile.unrolled)
    return replace(tile, vector=places.index(tile.vector), unrolled=unrolled)


def _stage(
    nest: Nest,
    padded: Mapping[int, int],
    sources: Sequence[Expr],
    name: str,
    places: Sequence[int],
    order: Sequence[int],
) -> Operation:
    """The accumulators: whole tiles, the vectorised axis last."""
    axes: list[Axis] = []
    table: dict[Var, Expr] = {}
    for axis in (nest.body.axes[place] for place in places):
        extent = padded.get(node_id(axis.var), bounds_of(axis)[1])
        fresh = data_axis(axis.var.name, extent, dtype_of(axis.var))
        axes.append(fresh)
        table[axis.var] = fresh.var
    summed = [nest.body.reduction.axes[place] for place in order]
    reduced = [renew_axis(axis) for axis in summed]
    for old, new in zip(summed, reduced, strict=True):
        table[old.var] = new.var
    found = nest.body.reduction
    renamed = tuple(map(substituter(table), sources))
    moved = Reduction(found.combiner, renamed, tuple(reduced), true(), ())
    return reduction_stage(name, axes, moved)[0].op


def _consumers(kernel: Kernel, tile: Operation, places: Sequence[int]) -> list[Operation]:
    """The stages that read the accumulators: the epilogue of the kernel, or a copy for each."""
    if kernel.epilogue is None:
        copies = []
        for accumulated in outputs_of(tile):
            axes = [renew_axis(axis) for axis in kernel.root.axis]
            read = load(accumulated, [axes[place].var for place in places])
            copies.append(make_stage(f"{kernel.root.name}_out", axes, [read])[0].op)
        return copies
    root = tensor_key(kernel.root.output(0))

    def permuted(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        if tensor_key(tensor) != root:
            return None
        return load(tile.output(0), [indices[place] for place in places])

    body = map_loads(bodies(kernel.epilogue)[0], permuted)
    return [make_stage(kernel.epilogue.name, list(kernel.epilogue.axis), [body])[0].op]
