"""Chooses the register tile with the fewest estimated cycles for a reduction with reuse.

The result has the vectorised axis, and the unrolled ones with their factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product as all_choices

from ....expr.nodes import Axis, node_id, op_name
from ....expr.rewrite import postorder
from ...cost import (
    CALL,
    LATENCY,
    MARGIN,
    MEMORY_BYTE,
    MIN_LANES,
    NEAR_BYTE,
    STORE,
    TURNED,
)
from ...machine import Machine
from ...nest.access import strides_along
from ...nest.reductions.elementwise_body import Body, Steps
from ...nest.reductions.products import Operand
from ...rewrites.conditions.guards import selected
from .copies import copy_cycles, launch_cycles, turn_cycles
from .loop_order import TileOrders, streamed_bytes
from .nests import Nest, padded_extents
from .tile import Tile, factors_of

_BRANCHES = frozenset(("if_then_else",))  #: what keeps plain loops from vectors


def best_tile(
    nest: Nest, machine: Machine, rows: int | None = None, like: Tile | None = None
) -> Tile | None:
    """The tile of least estimated time, or None when no axis can be vectorised.

    With `rows`, the whole axis of that number is unrolled; with `like`, vectors are those of that
    tile. Half vectors are tried where whole ones have no tile, or one that copies for longer than
    it computes: they do half of the work in a cycle, but read in place what whole ones would read
    beyond.
    """
    lanes = machine.lanes(nest.dtype)
    if like is not None:
        tiles = _tiles(nest, machine, like.width)
        same = _best_of(filter(like.has_vectors_of, tiles), nest, machine, rows)
        return None if same is None else same[1]
    whole = _best_of(_tiles(nest, machine, lanes), nest, machine, rows)
    if whole is not None and 2 * tile_cycles(nest, whole[1], machine) >= whole[0]:
        return whole[1]
    half = _best_of(_tiles(nest, machine, lanes // 2), nest, machine, rows)
    found = [one for one in (whole, half) if one is not None]
    return min(found, key=lambda one: one[0])[1] if found else None


def _best_of(
    tiles: Iterator[Tile], nest: Nest, machine: Machine, rows: int | None
) -> tuple[float, Tile] | None:
    """The tile of least estimated time, copies included, after that time."""
    found: list[tuple[float, int, Tile, dict[int, int]]] = []
    for tile in tiles:
        if rows is not None and dict(tile.unrolled).get(rows) != nest.extents[nest.spatial[rows]]:
            continue
        padded = padded_extents(nest, tile)
        found.append((_cycles(nest, tile, machine, padded), len(found), tile, padded))
    best: tuple[float, int, Tile] | None = None
    # few tiles are better without their copies than the best one with them
    for cycles, number, tile, padded in sorted(found, key=lambda one: one[:2]):
        if best is not None and (cycles, number) >= best[:2]:
            break
        cycles += TileOrders(nest, tile, padded, machine).far_cycles()
        copies = copy_cycles(nest, tile, machine, padded)
        if copies is not None and (best is None or (cycles + copies, number) < best[:2]):
            best = (cycles + copies, number, tile)
    return None if best is None else (best[0], best[2])


def _tiles(nest: Nest, machine: Machine, lanes: int) -> Iterator[Tile]:
    """Every promising tile with vectors of up to `lanes` elements, in a fixed order."""
    # a function of many steps needs additional registers
    calls = any(weight >= CALL for _, weight in nest.steps)
    registers = machine.vector_registers // 4 if calls else machine.accumulators
    registers //= len(nest.body.reduction.sources)
    for vector, key in enumerate(nest.spatial):
        if key not in nest.extents or not all(_vectorizable(o, key) for o in nest.body.operands):
            continue
        extent = nest.extents[key]
        # inner axes first: among equal tiles the first counts, and neighbours share cache lines
        others = [
            (axis, factors_of(nest.extents[other]))
            for axis, other in reversed(list(enumerate(nest.spatial)))
            if axis != vector and nest.extents.get(other, 1) > 1
        ]
        width = min(lanes, _power_of_two(extent))
        if width < MIN_LANES:
            continue
        for vectors in range(1, LATENCY + 1):
            if width * vectors > extent + width - 1:
                break
            yield Tile(vector, width, vectors)
            for count in (1, 2):
                for chosen in combinations(others, count):
                    for factors in all_choices(*(choices for _, choices in chosen)):
                        unrolled = 1
                        for factor in factors:
                            unrolled *= factor
                        if unrolled * vectors <= registers:
                            axes = [axis for axis, _ in chosen]
                            pairs = tuple(zip(axes, factors, strict=True))
                            yield Tile(vector, width, vectors, pairs)


def _power_of_two(extent: int) -> int:
    return 1 << max(0, extent - 1).bit_length()


def _vectorizable(operand: Operand, key: int) -> bool:
    """Whether the operand, copied if need be, is contiguous along a variable, or does not vary."""
    forms = [atom for atom in operand.atoms if any(k == key for k, _ in atom)]
    return not forms or (len(forms) == 1 and dict(forms[0])[key] == 1)


def _cycles(nest: Nest, tile: Tile, machine: Machine, padded: Mapping[int, int]) -> float:
    """An estimate of the time of a tile's loops, in cycles of one core; copies come on top."""
    assert tile.vector is not None
    vector_key = nest.spatial[tile.vector]
    cost = machine.vector_cycles(tile.width * nest.itemsize)
    unrolled = {nest.spatial[axis]: factor for axis, factor in tile.unrolled}
    loads = 0.0
    for operand in nest.body.operands:
        mine = operand.variables()
        registers = 1.0
        for key, factor in unrolled.items():
            registers *= factor if key in mine else 1
        loads += registers * (tile.vectors * cost if vector_key in mine else 0.5)
    computed = 0.0
    for along, weight in nest.steps:
        # what no step of the reduction changes is computed before, and read at worst
        repeated = 1.0 if along.intersection(nest.reduced) else min(1.0, 1 / weight)
        for key, factor in unrolled.items():
            repeated *= factor if key in along else 1
        computed += weight * repeated * (tile.vectors * cost if vector_key in along else 0.5)
    total = nest.count(nest.reduced, padded)
    streamed = NEAR_BYTE * streamed_bytes(nest, tile, machine, padded) / max(1, total)
    once = max(computed, loads, streamed, LATENCY) + 0.15 * loads + 1.0
    tiles = 1
    for axis, key in enumerate(nest.spatial):
        tiles *= padded.get(key, nest.symbolic) // tile.factors.get(axis, 1)
    written = nest.count(nest.spatial, padded)
    threads = min(machine.threads, tiles)
    direct = written * _write_cycles(nest, tile, machine) / threads
    apart = _cycles_apart(nest, tile, machine) if nest.finishing else direct
    writes = min(direct, turning_cycles(nest, machine), apart)
    # among equals, the tile that is simpler, and two vectors for each number that is spread out
    simpler = 1 + 0.01 * len(tile.unrolled) + (0.1 if tile.vectors == 1 else 0)
    return (once * total * tiles / threads + writes) * simpler


def _write_cycles(nest: Nest, tile: Tile, machine: Machine) -> float:
    """The cycles to finish and write an element, by the distance of a vector's lanes in memory."""
    assert tile.vector is not None
    inner = nest.spatial[tile.vector + 1 :]
    vector_call = nest.finishing / machine.lanes(nest.dtype)
    if not inner:
        return 0.3 + vector_call
    stride = nest.count(inner) * nest.itemsize
    # a write to another page reads its line from memory and writes it back
    far = 2 * machine.line_bytes * MEMORY_BYTE
    each = 3 * TURNED if stride < machine.page_bytes else far
    return each + nest.finishing


def turning_cycles(nest: Nest, machine: Machine) -> float:
    """The cycles to write results along the vectorised axis and to transpose them afterwards."""
    written = nest.count(nest.spatial)
    # written, read again, and written
    each = 1.5 * turn_cycles(written, nest, machine)
    each += nest.finishing / machine.lanes(nest.dtype)
    return launch_cycles(written, each, machine)


def _cycles_apart(nest: Nest, tile: Tile, machine: Machine) -> float:
    """The cycles to write sums in their order, and to finish them in a pass of its own."""
    written = nest.count(nest.spatial)
    plain = written * _write_cycles(replace(nest, finishing=0.0), tile, machine) / machine.threads
    each = turn_cycles(written, nest, machine)  # read again, and written
    each += nest.finishing / machine.lanes(nest.dtype)
    return plain + launch_cycles(written, each, machine)


def worth_finishing_apart(nest: Nest, tile: Tile, machine: Machine) -> bool:
    """Whether expensive functions of results are better computed in a pass of its own.

    Results that lie apart in memory are finished one by one, and each is a copy of the code.
    """
    direct = nest.count(nest.spatial) * _write_cycles(nest, tile, machine) / machine.threads
    return nest.finishing > 0 and _cycles_apart(nest, tile, machine) < direct


def worth_turning(nest: Nest, tile: Tile, machine: Machine) -> bool:
    """Whether results are better transposed by a separate function."""
    written = nest.count(nest.spatial)
    direct = written * _write_cycles(nest, tile, machine) / machine.threads
    return turning_cycles(nest, machine) < direct


def tile_cycles(nest: Nest, tile: Tile, machine: Machine) -> float:
    """The estimated time of a tile without copies, in cycles of one core."""
    return _cycles(nest, tile, machine, padded_extents(nest, tile))


def estimated_cycles(nest: Nest, tile: Tile, machine: Machine) -> float:
    """The estimated time of a tile, copies included, in cycles of one core."""
    padded = padded_extents(nest, tile)
    cycles = _cycles(nest, tile, machine, padded)
    cycles += TileOrders(nest, tile, padded, machine).far_cycles()
    return cycles + (copy_cycles(nest, tile, machine, padded) or 0.0)


def plain_cycles(nest: Nest, machine: Machine) -> float:
    """The estimated time without a tile or a copy.

    Products whose operands are all read again take one each cycle, since what they read comes from
    a distant cache. With a guard, or a computed operand, each point takes as long as to store an
    element twice: a copy of a few times the points saves more than its own time.
    """
    inside: Steps = ()
    results = [key for key in nest.spatial if nest.extents.get(key) != 1]
    if isinstance(nest.body, Body):
        inside = nest.body.inside
    elif any(o.guards or not o.is_load for o in nest.body.operands):
        return 2 * STORE * nest.iterations / machine.threads
    elif not any(o.variables().issuperset(results) for o in nest.body.operands):
        return nest.iterations / machine.threads
    return _plain_cycles(nest, inside, machine) / machine.threads


def _plain_cycles(nest: Nest, inside: Steps, machine: Machine) -> float:
    """The cycles of all points: in vectors if reads are contiguous, else one by one."""
    last = nest.reduced[-1]
    work = sum(weight for along, weight in (*nest.steps, *inside) if last in along)
    lanes = machine.lanes(nest.dtype)
    reduction = nest.body.reduction
    sources = selected(reduction.sources, [*nest.body.axes, *reduction.axes])
    branches = any(op_name(node) in _BRANCHES for node in postorder(sources))
    vector = machine.vector_cycles(machine.vector_bytes)
    point = (0.5 * len(nest.body.operands) + work) * vector
    each = point / lanes
    # LLVM writes out what is reduced in a few steps, and makes vectors of results
    few = nest.count(nest.reduced) <= MIN_LANES
    if not branches and (few or _lies_along(nest.body.axes[-1], lanes, nest)):
        return MARGIN * each * nest.iterations
    narrow = min(lanes, _power_of_two(nest.extents.get(node_id(nest.body.axes[-1].var), lanes)))
    if not branches and narrow >= MIN_LANES and _lies_along(nest.body.axes[-1], narrow, nest):
        return MARGIN * point / narrow * nest.iterations
    if not branches and _lies_along(reduction.axes[-1], lanes, nest):
        extent = nest.extents.get(last, nest.symbolic)
        filled = extent / (-(-extent // lanes) * lanes)
        halvings = lanes.bit_length() - 1  # until the lanes of a sum are one
        summed = LATENCY * halvings * nest.count(nest.spatial)
        return MARGIN * each * nest.iterations / filled + summed
    return max(1.0, 0.5 * work) * nest.iterations


def _lies_along(axis: Axis, lanes: int, nest: Nest) -> bool:
    """Whether neighbours along an axis are neighbours in memory in every read that varies."""
    reads = [operand.expr for operand in nest.body.operands]
    strides = strides_along(reads, axis.var, nest.variables)
    long = nest.extents.get(node_id(axis.var), nest.symbolic) >= lanes
    return bool(strides) and long and max(strides or ()) == 1
