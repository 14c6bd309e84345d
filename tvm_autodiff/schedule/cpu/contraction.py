"""Schedules reductions that reuse operands: matrix products, convolutions and their gradients,
pairwise distances.

The reduced body may be any elementwise function of operands, at least one of which is constant
along some output axis. The result is a register-tiled function, and copies of operands that it
reads. The tile with the fewest estimated cycles is chosen, from index forms, extents and the number
of operations only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...codegen.primfunc import StageFunction
from ...expr.build import true
from ...expr.nodes import Axis, Expr, Tensor, Var, dtype_of, load, node_id, tensor_key
from ...expr.rewrite import map_loads, substituter
from ...graph.stage import (
    Operation,
    Reduction,
    bodies,
    bounds_of,
    data_axis,
    is_compute,
    make_stage,
    outputs_of,
    reduction_of,
    reduction_stage,
    renew_axis,
)
from ..declined import NO_REDUCTION, NOT_COMPUTED, Declined, no_gain, other_kind
from ..kernel import SYMBOLIC_SIZE, Kernel, size_of
from ..machine import Machine
from ..nest.elementwise_body import Body, body_of
from ..nest.products import Product, product_of
from ..rewrites.quotient_axes import split_at_quotients
from ..rewrites.split_reduction import divisor_at_least, split_reduction
from ..rule import Made, Rest, in_parts, with_last, writes_to
from .loops.crossed import crossed
from .tiles.copies import needs_copy
from .tiles.nests import Nest, nest_of, padded_extents, ranges_of
from .tiles.packing import TileAxes, pack, packed_size
from .tiles.symbolic_rows import SIZES, BlockKernel, block_kernel, over_all_rows
from .tiles.tile_choice import (
    best_tile,
    estimated_cycles,
    plain_cycles,
    reduction_order,
    tile_cycles,
    tile_order,
    worth_turning,
)
from .tiles.tiling import Tile, schedule_tile

MIN_ITERATIONS = 4_096  #: below this a kernel is not worth a tile
WHOLE_BLOCKS = 0.8  #: the time of blocks of rows for one of equal tiles, to be worth their rest
MIN_OUTPUTS = 1_024  #: for each thread, below which parts of a reduction keep threads busy


def contraction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that reduces a body with reuse."""
    if not is_compute(kernel.root):
        return NOT_COMPUTED
    if reduction_of(kernel.root) is None:
        return NO_REDUCTION
    split = split_at_quotients(kernel)
    if split is not None:
        launches = _contraction(split.kernel, machine)
        if not isinstance(launches, Declined):
            return with_last(launches, lambda launch: split.merged(launch, kernel))
    return _contraction(kernel, machine)


def _contraction(kernel: Kernel, machine: Machine) -> Made | Declined:
    found = _body(kernel)
    if isinstance(found, Declined):
        return found
    if len(found.operands) < 2:
        return other_kind("it does not combine several operands")
    epilogue = () if kernel.epilogue is None else bodies(kernel.epilogue)
    dtype = dtype_of(kernel.root.output(0))
    nest = nest_of(found, dtype, machine, epilogue, kernel.repetition)
    if nest is None:
        return Declined("an extent of its loops is symbolic or empty")
    reused = any(set(nest.spatial) - operand.variables() for operand in found.operands)
    if not reused:
        return other_kind("no operand is read again along an output axis")
    if nest.iterations < MIN_ITERATIONS:
        return no_gain(f"it has fewer than {MIN_ITERATIONS} iterations")
    split = _split(kernel, nest, machine)
    if split is not None:
        partial, combined = split
        return in_parts(_contraction(partial, machine), partial, combined, kernel)
    blocks = _in_blocks(kernel, nest, machine)
    if blocks is not None:
        return blocks
    tile = best_tile(nest, machine)
    if tile is None:
        return Declined("no tile fits its loops")
    if estimated_cycles(nest, tile, machine) > plain_cycles(nest, machine):
        return no_gain("its best tile is estimated slower than plain loops")
    return _emit(kernel, nest, tile, machine)


def _in_blocks(kernel: Kernel, nest: Nest, machine: Machine) -> Made | None:
    """The kernel in blocks of rows along an axis of symbolic extent, where that is fastest."""
    symbolic = [n for n, key in enumerate(nest.spatial) if key not in nest.extents]
    if not symbolic:
        return None
    one = replace(machine, threads=1)  # blocks are divided among threads, not their tiles
    tile = best_tile(nest, one)
    least = plain_cycles(nest, one)
    if tile is not None:
        # the rest of the rows has smaller tiles
        least = min(least, WHOLE_BLOCKS * estimated_cycles(nest, tile, one))
    best: tuple[BlockKernel, Nest, Tile] | None = None
    for number in symbolic:
        for size in SIZES:
            block = block_kernel(kernel, number, size)
            found = None if block is None else _body(block.kernel)
            if block is None or found is None or isinstance(found, Declined):
                break
            epilogue = () if block.kernel.epilogue is None else bodies(block.kernel.epilogue)
            inside = nest_of(found, nest.dtype, one, epilogue, block.kernel.repetition)
            tile = None if inside is None else best_tile(inside, one, number)
            if inside is None or tile is None or tile.vector != len(nest.spatial) - 1:
                continue  # the results of a block are not transposed afterwards
            cycles = estimated_cycles(inside, tile, one) * SYMBOLIC_SIZE / size
            if cycles < least:
                least, best = cycles, (block, inside, tile)
    if best is None:
        return None
    block, inside, tile = best
    launches = _emit(block.kernel, inside, tile, machine, blocks=True)
    if isinstance(launches, Declined):
        return None
    *copies, tiled = launches
    assert isinstance(tiled, StageFunction)
    reads = {tensor_key(t) for copy in copies for t in copy.inputs}
    if reads & set(block.whole):
        return None  # a copy of each block would be needed
    threads = machine.worth_threads(nest.iterations)  # at the call the size decides again
    last = over_all_rows(tiled, block, kernel, machine, threads)
    return None if last is None else [*copies, last]


def _body(kernel: Kernel) -> Product | Body | Declined:
    """What a kernel reduces: a product of operands, or a body of any form.

    It is a product if no operand varies along all outputs unless it is a read.
    """
    product = product_of(kernel.root)
    if product is not None and len(product.operands) > 1:
        spatial = {node_id(axis.var) for axis in product.axes}
        if all(one.is_load or spatial - one.variables() for one in product.operands):
            return product
    return body_of(kernel.root)


def _split(kernel: Kernel, nest: Nest, machine: Machine) -> tuple[Kernel, Kernel] | None:
    """The parts of a reduction that stay in a core's cache while all outputs pass over them."""
    if len(kernel.outputs) > 1:
        return None  # no rule for one value combines several
    sizes = [packed_size(operand, ranges_of(nest.extents)) for operand in nest.body.operands]
    outputs = size_of([nest.extents.get(key, SYMBOLIC_SIZE) for key in nest.spatial])
    if any(size is None for size in sizes):
        return None
    itemsize = nest.itemsize
    total = sum(size or 0 for size in sizes)
    if total * itemsize <= machine.cache_bytes or outputs * itemsize > machine.cache_bytes // 4:
        return None
    if outputs >= MIN_OUTPUTS * machine.threads and _stays(nest, machine):
        return None
    shared = set(nest.reduced)
    for operand in nest.body.operands:
        shared &= {atom[0][0] for atom in operand.atoms if len(atom) == 1}
    for number, key in enumerate(nest.reduced):
        if key in shared and key in nest.extents:
            wanted = -(-total * itemsize * 2 // machine.cache_bytes)
            parts = divisor_at_least(nest.extents[key], max(wanted, machine.threads))
            if parts > 1 and outputs * parts <= total:
                return split_reduction(kernel, number, parts)
    return None


def _stays(nest: Nest, machine: Machine) -> bool:
    """Whether operands that every tile reads stay in the cache.

    The operand that the outermost loop runs through is read once.
    """
    first = nest.spatial[tile_order(nest, nest.extents)[0]]
    held = 0
    for operand in nest.body.operands:
        size = packed_size(operand, ranges_of(nest.extents)) or 0
        held += (
            size if first not in operand.variables() else size * 16 // nest.extents.get(first, 16)
        )
    # panels that were packed before the loop over steps are contiguous, and evict little else
    packed = nest.repetition.times > 1 and any(map(nest.is_fixed, nest.body.operands))
    return held * nest.itemsize <= (machine.cache_bytes if packed else machine.cache_bytes // 2)


def _emit(
    kernel: Kernel, nest: Nest, tile: Tile, machine: Machine, *, blocks: bool = False
) -> Made | Declined:
    """The copies of operands, and the tile; with `blocks`, its loops are serial and write the
    results themselves.
    """
    padded = padded_extents(nest, tile)
    assert tile.vector is not None
    reduced = reduction_order(nest, tile)
    tile_axes = TileAxes(
        nest.spatial[tile.vector],
        {nest.spatial[axis]: factor for axis, factor in tile.factors.items()},
        tuple(nest.spatial[axis] for axis, _ in tile.unrolled),
        tuple(nest.reduced[axis] for axis in reduced),
    )
    launches: list[StageFunction | Rest] = []
    reads: list[Expr] = []
    name = kernel.root.name
    for number, operand in enumerate(nest.body.operands):
        if not needs_copy(operand, nest, tile, machine, padded):
            reads.append(operand.expr)
            continue
        copied = pack(
            operand,
            f"{name}_pack{number}",
            nest.loops(padded),
            nest.spatial,
            tile_axes,
        )
        if copied is None:
            return Declined("an operand cannot be packed")
        tensor, read = copied
        launches.append(Rest(Kernel(tensor.op)))
        reads.append(read)
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
    launches.append(
        schedule_tile(
            accumulate,
            consume,
            results,
            _moved(tile, places),
            machine,
            not blocks and machine.worth_threads(cycles),
            straight,
            [places.index(axis) for axis in tile_order(nest, padded)],
        )
    )
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
