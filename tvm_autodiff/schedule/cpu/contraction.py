"""Reductions whose operands are read again and again: matrix products, convolutions, their gradients.

In: a kernel that sums a product of operands, at least one of which does not vary along some output axis. Out: a
register-tiled function, and the copies of operands that it reads. The tile is the one of least estimated cycles; only
index forms and extents are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product as all_of_lists

from ...ir.build import mul
from ...ir.graph import retarget
from ...ir.nodes import Expr, Tensor, Var, dtype_of, load, node_id
from ...ir.primfunc import StageFunction
from ...ir.rewrite import map_loads, substituter
from ...ir.stage import (
    Axis,
    Operation,
    axis_range,
    bodies,
    data_axis,
    make_stage,
    outputs_of,
    reduction_of,
    reduction_stage,
    renew_axis,
    sum_over,
    tensor_key,
)
from ..access import (
    Interval,
    Operand,
    Product,
    in_range_guards,
    last_index_stride,
    literal_ranges,
    product_of,
)
from ..kernels import Kernel, size_of
from ..machine import Machine
from .elementwise import elementwise
from .packing import TileAxes, pack, packed_size
from .parallel import worth_threads
from .reduction import reduction
from .split import divisor_at_least, split_reduction, writes_to
from .tiling import Tile, schedule_tile

MIN_ITERATIONS = 4_096  #: below this a kernel is not worth a tile
MAX_UNROLL = 16


@dataclass(frozen=True)
class Nest:
    """The loops of a sum of products and what its operands depend on."""

    product: Product
    spatial: tuple[int, ...]  #: ids of the output axes
    reduced: tuple[int, ...]
    extents: dict[int, int]  #: of the loops with a literal extent
    dtype: str

    @property
    def variables(self) -> list[Var]:
        """All loop variables, output axes first."""
        return [axis.var for axis in (*self.product.axes, *self.product.reduction.axes)]


def contraction(kernel: Kernel, machine: Machine) -> list[StageFunction] | None:
    """Schedule a kernel that sums a product with reuse; None for others."""
    found = product_of(kernel.root)
    if found is None or len(found.operands) < 2:
        return None
    nest = _nest(found, dtype_of(kernel.root.output(0)))
    if nest is None:
        return None
    total = size_of(list(nest.extents.values()))
    reused = any(set(nest.spatial) - operand.variables() for operand in found.operands)
    if not reused or total < MIN_ITERATIONS:
        return None
    split = _split(kernel, nest, machine)
    if split is not None:
        partial, combined = split
        first = contraction(partial, machine)
        second = reduction(combined, machine)
        if first is None or second is None:
            return None
        return [*writes_to(first, partial), *writes_to(second, kernel)]
    tile = _best_tile(nest, machine)
    if tile is None:
        return None
    return _emit(kernel, nest, tile, machine)


def _split(kernel: Kernel, nest: Nest, machine: Machine) -> tuple[Kernel, Kernel] | None:
    """Parts of the reduction small enough to stay in a core's cache while all outputs pass over them."""
    sizes = [packed_size(operand, _ranges(nest.extents)) for operand in nest.product.operands]
    outputs = size_of([nest.extents.get(key, 64) for key in nest.spatial])
    if any(size is None for size in sizes):
        return None
    itemsize = machine.vector_bytes // machine.lanes(nest.dtype)
    total = sum(size or 0 for size in sizes)
    if total * itemsize <= machine.cache_bytes or outputs * itemsize > machine.cache_bytes // 4:
        return None
    shared = set(nest.reduced)
    for operand in nest.product.operands:
        shared &= {atom[0][0] for atom in operand.atoms if len(atom) == 1}
    for number, key in enumerate(nest.reduced):
        if key in shared and key in nest.extents:
            wanted = -(-total * itemsize * 2 // machine.cache_bytes)
            parts = divisor_at_least(nest.extents[key], max(wanted, machine.threads))
            if parts > 1 and outputs * parts <= total:
                return split_reduction(kernel, number, parts)
    return None


def _nest(found: Product, dtype: str) -> Nest | None:
    if not found.axes or not found.reduction.axes:
        return None
    extents: dict[int, int] = {}
    for axis in (*found.axes, *found.reduction.axes):
        low, extent = axis_range(axis)
        if low != 0:
            return None
        if isinstance(extent, int):
            extents[node_id(axis.var)] = extent
    return Nest(
        found,
        tuple(node_id(axis.var) for axis in found.axes),
        tuple(node_id(axis.var) for axis in found.reduction.axes),
        extents,
        dtype,
    )


def _best_tile(nest: Nest, machine: Machine) -> Tile | None:
    best: tuple[float, Tile] | None = None
    for tile in _tiles(nest, machine):
        cycles = _cycles(nest, tile, machine)
        if cycles is not None and (best is None or cycles < best[0]):
            best = (cycles, tile)
    return None if best is None else best[1]


def _tiles(nest: Nest, machine: Machine) -> Iterator[Tile]:
    """Every tile worth looking at, in a fixed order."""
    registers = machine.vector_registers * 3 // 4
    lanes = machine.lanes(nest.dtype)
    for vector, key in enumerate(nest.spatial):
        if key not in nest.extents or not all(_vectorizable(o, key) for o in nest.product.operands):
            continue
        extent = nest.extents[key]
        width = min(lanes, _power_of_two(extent))
        if width < 4:
            continue
        others = [
            (axis, _factors(nest.extents[other]))
            for axis, other in enumerate(nest.spatial)
            if axis != vector and nest.extents.get(other, 1) > 1
        ]
        for vectors in (1, 2, 3, 4):
            if width * vectors > extent + width - 1:
                break
            yield Tile(vector, width, vectors)
            for count in (1, 2):
                for chosen in combinations(others, count):
                    for factors in all_of_lists(*(choices for _, choices in chosen)):
                        unrolled = 1
                        for factor in factors:
                            unrolled *= factor
                        if unrolled * vectors <= registers:
                            axes = [axis for axis, _ in chosen]
                            pairs = tuple(zip(axes, factors, strict=True))
                            yield Tile(vector, width, vectors, pairs)


def _power_of_two(extent: int) -> int:
    return 1 << max(0, extent - 1).bit_length()


def _factors(extent: int) -> list[int]:
    """Tile factors of an axis: those that divide it, else ones that waste little."""
    exact = [factor for factor in range(2, MAX_UNROLL + 1) if extent % factor == 0]
    if any(factor >= 4 for factor in exact) or extent <= 3:
        return exact
    return exact + [factor for factor in (4, 6, 8) if factor < extent]


def _vectorizable(operand: Operand, key: int) -> bool:
    """Whether the operand, copied if need be, is contiguous along a variable, or does not vary."""
    forms = [atom for atom in operand.atoms if any(k == key for k, _ in atom)]
    return not forms or (len(forms) == 1 and dict(forms[0])[key] == 1)


def _padded(nest: Nest, tile: Tile) -> dict[int, int]:
    """Extents with tile axes rounded up to whole tiles."""
    padded = dict(nest.extents)
    for axis, factor in tile.factors.items():
        key = nest.spatial[axis]
        padded[key] = -(-padded[key] // factor) * factor
    return padded


def _ranges(extents: Mapping[int, int]) -> dict[int, Interval]:
    return {key: (0, extent - 1) for key, extent in extents.items()}


def _cycles(nest: Nest, tile: Tile, machine: Machine) -> float | None:
    """An estimate of the time of a tile, in cycles of one core."""
    padded = _padded(nest, tile)
    assert tile.vector is not None
    vector_key = nest.spatial[tile.vector]
    itemsize = machine.vector_bytes / machine.lanes(nest.dtype)
    cost = max(0.5, tile.width * itemsize / 64)  # two loads or products of 32 bytes a cycle
    unrolled = {nest.spatial[axis]: factor for axis, factor in tile.unrolled}
    tile_size = tile.vectors
    for factor in unrolled.values():
        tile_size *= factor
    loads, copies = 0.0, 0.0
    for operand in nest.product.operands:
        mine = operand.variables()
        registers = 1.0
        for key, factor in unrolled.items():
            registers *= factor if key in mine else 1
        loads += registers * (tile.vectors * cost if vector_key in mine else 0.5)
        if _needs_copy(operand, nest, tile, padded):
            size = packed_size(operand, _ranges(padded))
            if size is None:
                return None
            stays = last_index_stride(operand, vector_key, nest.variables) == 1
            copies += size * (0.5 if stays else 1.5)
    products = tile_size * cost
    # an accumulator takes part in one sum every four cycles
    once = max(products, loads, 4.0) + 0.15 * loads + 1.0
    total = size_of([padded.get(key, 64) for key in nest.reduced])
    tiles = 1
    for axis, key in enumerate(nest.spatial):
        tiles *= padded.get(key, 64) // tile.factors.get(axis, 1)
    written = size_of([padded.get(key, 64) for key in nest.spatial])
    writes = written * (0.3 if tile.vector == len(nest.spatial) - 1 else 1.5)
    busy = min(machine.threads, tiles * max(1, min(total // 64, 64)))
    # among equals, the tile that is simpler
    return (once * total * tiles + writes + copies) / busy * (1 + 0.01 * len(tile.unrolled))


def _needs_copy(
    operand: Operand, nest: Nest, tile: Tile, padded: Mapping[int, int]
) -> bool:
    assert tile.vector is not None
    vector_key = nest.spatial[tile.vector]
    if operand.guards or not operand.is_load:
        return True
    if in_range_guards(operand, nest.variables, _ranges(padded)):
        return True
    stride = last_index_stride(operand, vector_key, nest.variables)
    if vector_key in operand.variables():
        if stride != 1:
            return True
        return _copy_pays(operand, nest, tile)
    itemsize = 4
    for axis, _ in tile.unrolled:
        step = last_index_stride(operand, nest.spatial[axis], nest.variables)
        if step is None or (step and step * itemsize % 4096 == 0):
            return True  # rows a page apart fall into the same few lines of the cache
    return False


def _copy_pays(operand: Operand, nest: Nest, tile: Tile) -> bool:
    """Whether panels in one piece are worth a copy of an operand that could be read in place."""
    assert tile.vector is not None
    reads = size_of([nest.extents.get(key, 64) for key in nest.spatial if key not in operand.variables()])
    reads //= max(1, size_of([f for a, f in tile.unrolled if nest.spatial[a] not in operand.variables()]))
    rows = size_of([nest.extents.get(key, 64) for key in nest.reduced if key in operand.variables()])
    key = nest.spatial[tile.vector]
    panels = nest.extents.get(key, 1) > tile.width * tile.vectors
    return panels and reads >= 8 and rows * tile.width * tile.vectors * 4 > 16_384


def _emit(
    kernel: Kernel, nest: Nest, tile: Tile, machine: Machine
) -> list[StageFunction] | None:
    padded = _padded(nest, tile)
    assert tile.vector is not None
    tile_axes = TileAxes(
        nest.spatial[tile.vector],
        tile.width * tile.vectors,
        tuple(nest.spatial[axis] for axis, _ in tile.unrolled),
    )
    launches: list[StageFunction] = []
    factors: list[Expr] = list(nest.product.scale)
    name = kernel.root.name
    for number, operand in enumerate(nest.product.operands):
        if not _needs_copy(operand, nest, tile, padded):
            factors.append(operand.expr)
            continue
        copied = pack(
            operand, f"{name}_pack{number}", nest.variables, nest.spatial, _ranges(padded), tile_axes
        )
        if copied is None:
            return None
        tensor, read = copied
        launches += elementwise(Kernel(tensor.op), machine) or []
        factors.append(read)
    source = factors[0]
    for factor in factors[1:]:
        source = mul(source, factor)
    places = [axis for axis in range(len(nest.spatial)) if axis != tile.vector] + [tile.vector]
    accumulate = _stage(nest, padded, source, f"{name}_acc", places)
    consume, result = _consumer(kernel, accumulate, places)
    dividing = padded == nest.extents
    launches.append(
        schedule_tile(
            accumulate,
            consume,
            result,
            _moved(tile, places),
            machine,
            worth_threads(size_of(list(nest.extents.values())), machine),
            dividing and tile.vector == len(nest.spatial) - 1,
            [places.index(axis) for axis in _order(nest, padded)],
        )
    )
    return launches


def _order(nest: Nest, padded: Mapping[int, int]) -> list[int]:
    """Loops over tiles: those that move through the most memory outside."""
    ranges = _ranges(padded)

    def memory(axis: int) -> int:
        key = nest.spatial[axis]
        return sum(
            packed_size(operand, ranges) or 0
            for operand in nest.product.operands
            if key in operand.variables()
        )

    return sorted(range(len(nest.spatial)), key=lambda axis: -memory(axis))


def _moved(tile: Tile, places: Sequence[int]) -> Tile:
    """The tile over axes in another order."""
    assert tile.vector is not None
    unrolled = tuple((places.index(axis), factor) for axis, factor in tile.unrolled)
    return replace(tile, vector=places.index(tile.vector), unrolled=unrolled)


def _stage(
    nest: Nest, padded: Mapping[int, int], source: Expr, name: str, places: Sequence[int]
) -> Operation:
    """The accumulators: whole tiles, the vectorised axis last."""
    axes: list[Axis] = []
    table: dict[Var, Expr] = {}
    for axis in (nest.product.axes[place] for place in places):
        extent = padded.get(node_id(axis.var), axis.dom.extent)
        fresh = data_axis(axis.var.name, extent, str(axis.var.ty))
        axes.append(fresh)
        table[axis.var] = fresh.var
    reduced = [renew_axis(axis) for axis in nest.product.reduction.axes]
    for old, new in zip(nest.product.reduction.axes, reduced, strict=True):
        table[old.var] = new.var
    return make_stage(name, axes, [sum_over(substituter(table)(source), reduced)])[0].op


def _consumer(
    kernel: Kernel, accumulate: Operation, places: Sequence[int]
) -> tuple[Operation, Tensor]:
    """The stage that reads the accumulators: the epilogue of the kernel, or a copy."""
    tile = accumulate.output(0)
    result = kernel.outputs[0]
    if kernel.epilogue is None:
        axes = [renew_axis(axis) for axis in kernel.root.axis]
        read = load(tile, [axes[place].var for place in places])
        return make_stage(f"{kernel.root.name}_out", axes, [read])[0].op, result
    root = tensor_key(kernel.root.output(0))

    def permuted(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        if tensor_key(tensor) != root:
            return None
        return load(tile, [indices[place] for place in places])

    body = map_loads(bodies(kernel.epilogue)[0], permuted)
    return make_stage(kernel.epilogue.name, list(kernel.epilogue.axis), [body])[0].op, result
