"""Decides which operands of a register tile are copied into its layout, and estimates the cost in
cycles.

In a loop over time, a copy of what no step changes is made once for all steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from ....expr.nodes import load_tensor
from ....graph.stage import shape_of
from ...cost import LAUNCH_CYCLES, STORE, TURNED
from ...kernel import size_of
from ...machine import Machine
from ...nest.reductions.products import Operand
from .loop_order import reduction_order
from .nests import Nest, ranges_of
from .packing import packed_size
from .panels import panels_of
from .tile import Tile


def copy_cycles(
    nest: Nest, tile: Tile, machine: Machine, padded: Mapping[int, int]
) -> float | None:
    """The time of the copies that a tile needs, and of reads in place that evict each other; None
    if a copy leaves the caches for few reads.
    """
    cycles = 0.0
    for operand in nest.body.operands:
        _, extra = _reading(operand, nest, tile, machine, padded)
        if extra is None:
            return None
        cycles += extra
    return cycles


def needs_copy(
    operand: Operand, nest: Nest, tile: Tile, machine: Machine, padded: Mapping[int, int]
) -> bool:
    """Whether the tile cannot, or should not, read an operand in place."""
    return _reading(operand, nest, tile, machine, padded)[0]


def _reading(
    operand: Operand, nest: Nest, tile: Tile, machine: Machine, padded: Mapping[int, int]
) -> tuple[bool, float | None]:
    """Whether an operand is copied, and the time of the copy or of conflicts in place.

    The time is None for a copy that leaves the caches for few reads. A copy for conflicts has to be
    twice as fast: each line is counted as if nothing hid its way from the second cache.
    """
    if _must_copy(operand, nest, tile, machine, padded):
        return True, _copy_cycles(operand, nest, tile, machine, padded)
    in_place = conflict_cycles(operand, nest, tile, machine, padded)
    once = _copy_cycles(operand, nest, tile, machine, padded) if in_place else None
    if once is not None and 2 * once < in_place:
        return True, once
    return False, in_place


def _copy_cycles(
    operand: Operand, nest: Nest, tile: Tile, machine: Machine, padded: Mapping[int, int]
) -> float | None:
    """The time to copy an operand, or None if the copy leaves the caches for few reads."""
    size = packed_size(operand, ranges_of(padded), nest.symbolic)
    steps = nest.repetition.times if nest.is_fixed(operand) else 1
    held = size * nest.itemsize <= machine.last_cache_bytes // 2
    if not held and STORE * size > nest.count((*nest.spatial, *nest.reduced), padded) * steps:
        return None
    each = _pack_cycles(operand, size, nest, tile, machine)
    if panels_of(operand, nest, tile, padded, machine) is not None:
        # without a function of its own, and what it writes is read from the first cache
        return size * each / 2 / machine.threads
    return launch_cycles(size, each, machine) / steps


def conflict_cycles(
    operand: Operand, nest: Nest, tile: Tile, machine: Machine, padded: Mapping[int, int]
) -> float:
    """The time to read lines of an operand again that others of it evict from the first cache.

    Lines that are a power of two apart share a few sets of the cache. A tile that reads more of
    them than the sets hold reads each from the second cache. Lines that spread over all sets count
    where each step reads from another page, which no processor fetches ahead of its use. A line is
    read again for each step of a loop through it that is not the innermost one.
    """
    strides = {key: nest.stride(operand, key) for key in operand.variables()}
    inside = {nest.spatial[axis]: factor for axis, factor in tile.factors.items()}
    inside |= {key: padded.get(key, nest.symbolic) for key in nest.reduced}
    innermost = nest.reduced[reduction_order(nest, tile, machine)[-1]]
    again, pages = 1, False
    spans: dict[int, int] = {}  # what a window reads along both of its loops overlaps
    for key, count in inside.items():
        stride = strides.get(key, 0)
        if stride is None:
            return 0.0
        distance = abs(stride) * nest.itemsize
        pages |= key == innermost and 2 * distance > machine.page_bytes
        spans[distance] = spans.get(distance, 1) + count - 1
        if key in nest.reduced and key != innermost and 0 < distance < machine.line_bytes:
            again *= min(count, machine.line_bytes // distance)
    lines, sets = 1, {0}
    for distance, count in spans.items():
        if distance < machine.line_bytes:
            count, distance = -(-count * distance // machine.line_bytes), machine.line_bytes
        if count > 1:
            lines *= count
            sets = sets_of(sets, distance, count, machine)
    every = machine.way_bytes // machine.line_bytes
    spread = len(sets) == every and not pages
    if lines <= len(sets) * machine.first_cache_ways // 2 or spread:
        return 0.0
    tiles = nest.count(nest.spatial, padded)
    tiles //= max(1, size_of(list(tile.factors.values())))
    return again * lines * tiles / min(machine.threads, max(1, tiles))


def sets_of(sets: set[int], distance: int, count: int, machine: Machine) -> set[int]:
    """The sets of the first cache that hold lines at ``set + i*distance, i < count``."""
    way, line = machine.way_bytes, machine.line_bytes
    period = way // gcd(distance, way)
    steps = [i * distance % way // line for i in range(min(count, period))]
    return {(one + step) % (way // line) for one in sets for step in steps}


def _pack_cycles(operand: Operand, size: int, nest: Nest, tile: Tile, machine: Machine) -> float:
    """The cycles to copy an element, by the distance in memory of its new neighbours."""
    assert tile.vector is not None
    inner = [tile.vector, *(axis for axis, _ in reversed(tile.unrolled))]
    keys = [nest.spatial[axis] for axis in inner if nest.spatial[axis] in operand.variables()]
    stride = nest.stride(operand, keys[0]) if keys else 1
    if stride == 1:
        return TURNED
    if (stride is not None or _over_symbols(operand)) and not operand.guards:
        return turn_cycles(size, nest, machine)
    far = stride is None or abs(stride) * nest.itemsize >= machine.page_bytes
    return (2 if far else 1) * 3 * TURNED  # element by element: to find it, to read, to write


def _must_copy(
    operand: Operand, nest: Nest, tile: Tile, machine: Machine, padded: Mapping[int, int]
) -> bool:
    """Whether reads in place are impossible, or slow in other ways than by evicting each other."""
    assert tile.vector is not None
    vector_key = nest.spatial[tile.vector]
    if operand.guards or not operand.is_load:
        return True
    if not nest.reads_inside(operand, padded):
        return True
    stride = nest.stride(operand, vector_key)
    if vector_key in operand.variables():
        if stride != 1:
            return True
        return _copy_pays(operand, nest, tile, machine)
    for axis, factor in tile.unrolled:
        step = nest.stride(operand, nest.spatial[axis])
        apart = step is not None and step and step * nest.itemsize % machine.way_bytes == 0
        many = factor > machine.first_cache_ways // 2
        if (step is None and not _over_symbols(operand)) or (apart and many):
            return True  # such rows fall into the same few lines of the cache
    return False


def _over_symbols(operand: Operand) -> bool:
    """Whether the distance in memory of two elements that are read may be a symbolic size."""
    if not operand.is_load:
        return False
    return any(not isinstance(dim, int) for dim in shape_of(load_tensor(operand.expr))[1:])


def _copy_pays(operand: Operand, nest: Nest, tile: Tile, machine: Machine) -> bool:
    """Whether contiguous panels are worth a copy of an operand that could be read in place."""
    assert tile.vector is not None
    key = nest.spatial[tile.vector]
    if nest.extents.get(key, 1) <= tile.width * tile.vectors:
        return False  # it is one panel
    reads = nest.count(key for key in nest.spatial if key not in operand.variables())
    reads //= max(
        1, size_of([f for a, f in tile.unrolled if nest.spatial[a] not in operand.variables()])
    )
    rows = nest.count(key for key in nest.reduced if key in operand.variables())
    panel = rows * tile.width * tile.vectors * nest.itemsize
    if nest.repetition.times > 1 and nest.is_fixed(operand):
        # rows of other panels push out those of this one before the first cache is full
        return reads * nest.repetition.times >= STORE and panel > machine.way_bytes
    # a larger panel leaves the first cache between two uses
    return reads >= STORE and panel > machine.first_cache_bytes // 2


def turn_cycles(elements: int, nest: Nest, machine: Machine) -> float:
    """The cycles per element to write in another order."""
    far = elements * nest.itemsize > machine.cache_bytes // 2
    return 2 * TURNED if far else TURNED


def launch_cycles(elements: int, each: float, machine: Machine) -> float:
    """Cycles of a function that does little with each of many elements."""
    threads = machine.threads_for(elements * each)
    return LAUNCH_CYCLES + elements * each / threads
