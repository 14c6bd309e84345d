"""Register tiles of reductions over output axes of symbolic extent: blocks of rows, panels of
vectors, or both. The cheapest by estimate is taken, where it beats tiles along the other axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from ....cost import LATENCY, MARGIN, MAX_COPIES, MIN_LANES, STORE
from ....kernel import Kernel, iterations
from ....machine import Machine
from ....rule import Made, Rest, writes_to
from ...loops.parallel import threads_of
from ..nests import Nest
from ..tile import Tile
from ..tile_choice import best_tile, estimated_cycles, plain_cycles, tile_cycles
from ..tile_functions import nest_of_kernel
from .column_panels import panel_functions
from .operands_in_order import InOrder, with_operands_in_order
from .row_blocks import row_functions


@dataclass(frozen=True)
class _Blocks:
    """The size of blocks along symbolic axes, their tile, and the estimated time of all."""

    sizes: Mapping[int, int]
    tile: Tile
    cycles: float


def _cycles(blocks: _Blocks) -> float:
    return blocks.cycles


@dataclass(frozen=True)
class _Choice:
    """The cheapest blocks of a kernel over copies of operands, whose loops are a nest."""

    over: InOrder
    nest: Nest
    blocks: _Blocks


def symbolic_tiles(kernel: Kernel, nest: Nest, machine: Machine) -> Made | None:
    """The functions of a kernel in blocks, or None if that is not fastest."""
    symbolic = _symbolic(nest)
    if not symbolic:
        return None
    one = replace(machine, threads=1)  # blocks are divided among threads, not their tiles
    tile = best_tile(nest, one)
    least = plain_cycles(nest, one)
    last = len(nest.spatial) - 1
    if tile is not None:
        least = min(least, estimated_cycles(nest, tile, one) * _preference(tile, symbolic, last))
    threads = threads_of(kernel, machine)
    best = _best(kernel, nest, machine)
    if best is None or best.blocks.cycles >= least:
        return None
    copied, inside, blocks = best.over, best.nest, best.blocks
    if last in symbolic:
        made = panel_functions(copied.kernel, inside, blocks.sizes, blocks.tile, machine, threads)
    else:
        made = row_functions(copied.kernel, inside, blocks.sizes, blocks.tile, one, threads)
    return None if made is None else writes_to([*map(Rest, copied.copies), *made], kernel)


def symbolic_cycles(kernel: Kernel, machine: Machine) -> float:
    """The estimated time of a kernel in blocks, and of copies of its operands and of its results;
    infinite where there are no blocks.
    """
    nest = nest_of_kernel(kernel, machine)
    best = None if nest is None or not _symbolic(nest) else _best(kernel, nest, machine)
    if nest is None or best is None:
        return float("inf")
    copied = sum(iterations(copy.root, machine.symbolic_size) for copy in best.over.copies)
    return best.blocks.cycles + STORE * (copied + nest.count(nest.spatial))


def _symbolic(nest: Nest) -> list[int]:
    """The numbers of the output axes of symbolic extent."""
    return [n for n, key in enumerate(nest.spatial) if key not in nest.extents]


def _best(kernel: Kernel, nest: Nest, machine: Machine) -> _Choice | None:
    """The cheapest blocks; None where there are none, or operands cannot be copied for them."""
    symbolic, last = _symbolic(nest), len(nest.spatial) - 1
    one = replace(machine, threads=1)
    if last not in symbolic:
        best = min(_rows(symbolic, nest, one), key=_cycles, default=None)
        if best is not None:
            return _Choice(InOrder(kernel, ()), nest, best)
    found = with_operands_in_order(kernel, nest)
    inside = None if found is None else nest_of_kernel(found.kernel, machine)
    if found is None or inside is None:
        return None
    blocks = _panels(inside, one) if last in symbolic else _rows(symbolic, inside, one)
    best = min(blocks, key=_cycles, default=None)
    return None if best is None else _Choice(found, inside, best)


def _preference(tile: Tile, symbolic: list[int], last: int) -> float:
    """What the time of blocks is compared with, in units of the time of a tile of literal axes."""
    if last in symbolic:
        return 1.0  # what panels leave has a tile of its own
    if any(axis < max(symbolic) for axis, _ in tile.unrolled):
        return MARGIN  # its rows are a symbolic size apart, each in a page of its own
    return 1 / MARGIN  # what blocks leave has smaller tiles


def _sizes(machine: Machine) -> list[int]:
    """The rows that a block may have: whole vectors of so many rows fill the accumulators."""
    return [n for n in range(MIN_LANES, MAX_COPIES) if machine.accumulators % n == 0]


def _rows(symbolic: list[int], nest: Nest, one: Machine) -> Iterator[_Blocks]:
    """Blocks of rows whose vectors lie along the last axis."""
    for number in symbolic:
        for size in _sizes(one):
            inside = nest.in_blocks({nest.spatial[number]: size})
            tile = best_tile(inside, one, number)
            # the results of a block are not transposed afterwards
            if tile is not None and tile.vector == len(nest.spatial) - 1:
                cycles = estimated_cycles(inside, tile, one) * one.symbolic_size / size
                yield _Blocks({number: size}, tile, cycles)


def _panels(nest: Nest, one: Machine) -> Iterator[_Blocks]:
    """Panels of vectors along the last axis, and of these blocks of rows along another one."""
    last, lanes = len(nest.spatial) - 1, one.lanes(nest.dtype)
    others = [n for n, key in enumerate(nest.spatial[:last]) if key not in nest.extents]
    rows: list[dict[int, int]] = [{}, *({n: size} for n in others for size in _sizes(one))]
    for row, vectors in product(rows, range(1, LATENCY + 1)):
        sizes = {**row, last: vectors * lanes}
        inside = nest.in_blocks({nest.spatial[n]: size for n, size in sizes.items()})
        tile = best_tile(inside, one, next(iter(row), None), Tile(last, lanes, vectors))
        if tile is None:
            continue
        count = prod(one.symbolic_size / size for size in sizes.values())
        yield _Blocks(sizes, tile, tile_cycles(inside, tile, one) * count)
