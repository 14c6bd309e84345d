"""Register tiles of reductions over output axes of symbolic extent: blocks of rows, panels of
vectors, or both. The cheapest by estimate is taken, where it beats tiles along the other axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from ....codegen.stages.primfunc import StageFunction
from ....expr.nodes import tensor_key
from ...cost import LATENCY, MARGIN, MAX_COPIES, MIN_LANES
from ...declined import Declined
from ...kernel import Kernel
from ...machine import Machine
from ...rule import Made, Rest, writes_to
from ..loops.parallel import threads_of
from .guarded_operands import without_guards
from .nests import Nest
from .panel_loops import Panels
from .symbolic_panels import panel_functions
from .symbolic_rows import BlockAxis, BlockKernel, block_kernel, over_all_rows
from .tile_choice import best_tile, estimated_cycles, plain_cycles, tile_cycles
from .tile_functions import nest_of_kernel, tile_functions
from .tiling import Tile


@dataclass(frozen=True)
class _Blocks:
    """A kernel of blocks, its tile, and the estimated time of all blocks."""

    block: BlockKernel
    nest: Nest
    tile: Tile
    cycles: float


def _cycles(blocks: _Blocks) -> float:
    return blocks.cycles


def symbolic_tiles(kernel: Kernel, nest: Nest, machine: Machine) -> Made | None:
    """The functions of a kernel in blocks, or None if that is not fastest."""
    symbolic = [n for n, key in enumerate(nest.spatial) if key not in nest.extents]
    if not symbolic:
        return None
    one = replace(machine, threads=1)  # blocks are divided among threads, not their tiles
    tile = best_tile(nest, one)
    least = plain_cycles(nest, one)
    last = len(nest.spatial) - 1
    if tile is not None:
        # the rest of the rows has smaller tiles; that of panels has a tile of its own
        worse = 1.0 if last in symbolic else MARGIN
        least = min(least, estimated_cycles(nest, tile, one) / worse)
    threads = threads_of(kernel, machine) > 1
    if last in symbolic:
        plain = without_guards(kernel, nest)
        if plain is None:
            return None
        best = min(_panels(plain.kernel, nest, one), key=_cycles, default=None)
        if best is None or best.cycles >= least:
            return None
        panels = Panels(plain.kernel, best.block.axes, best.tile, machine, threads)
        made = panel_functions(panels)
        return None if made is None else writes_to([*map(Rest, plain.copies), *made], kernel)
    best = min(_rows(kernel, symbolic, nest, one), key=_cycles, default=None)
    if best is None or best.cycles >= least:
        return None
    launches = tile_functions(best.block.kernel, best.nest, best.tile, machine, blocks=True)
    if isinstance(launches, Declined):
        return None
    *copies, tiled = launches
    assert isinstance(tiled, StageFunction), "a block writes its results itself"
    if {tensor_key(t) for copy in copies for t in copy.inputs} & set(best.block.whole):
        return None  # a copy of each block would be needed
    whole = over_all_rows(tiled, best.block, kernel, machine, threads)
    return None if whole is None else [*copies, whole]


def _sizes(machine: Machine) -> list[int]:
    """The rows that a block may have: whole vectors of so many rows fill the accumulators."""
    return [n for n in range(MIN_LANES, MAX_COPIES) if machine.accumulators % n == 0]


def _rows(kernel: Kernel, symbolic: list[int], nest: Nest, one: Machine) -> Iterator[_Blocks]:
    """Blocks of rows whose vectors lie along the last axis."""
    for number in symbolic:
        for size in _sizes(one):
            block = block_kernel(kernel, [BlockAxis(number, size)], one.symbolic_size)
            if block is None:
                break
            found = _tiled(block, one, number)
            # the results of a block are not transposed afterwards
            if found is not None and found[1].vector == len(nest.spatial) - 1:
                inside, tile = found
                cycles = estimated_cycles(inside, tile, one) * one.symbolic_size / size
                yield _Blocks(block, inside, tile, cycles)


def _panels(kernel: Kernel, nest: Nest, one: Machine) -> Iterator[_Blocks]:
    """Panels of vectors along the last axis, and blocks of rows where another one is symbolic."""
    last = len(nest.spatial) - 1
    panel = BlockAxis(last, LATENCY * one.lanes(nest.dtype), shifted=True)
    others = [n for n, key in enumerate(nest.spatial[:last]) if key not in nest.extents]
    rows: list[BlockAxis | None] = [BlockAxis(n, size) for n in others for size in _sizes(one)]
    for row in rows or [None]:
        axes = (panel,) if row is None else (row, panel)
        block = block_kernel(kernel, axes, one.symbolic_size)
        found = None if block is None else _tiled(block, one, None if row is None else row.number)
        if block is None or found is None:
            continue
        inside, tile = found
        if tile.vector != last or tile.width != one.lanes(nest.dtype):
            continue
        count = prod(one.symbolic_size / axis.size for axis in axes)
        cycles = tile_cycles(inside, tile, one) * count
        fitting = replace(panel, size=tile.width * tile.vectors)
        yield _Blocks(replace(block, axes=(*axes[:-1], fitting)), inside, tile, cycles)


def _tiled(block: BlockKernel, one: Machine, rows: int | None) -> tuple[Nest, Tile] | None:
    """The loops of a block, and their tile."""
    inside = nest_of_kernel(block.kernel, one)
    tile = None if inside is None else best_tile(inside, one, rows)
    return None if inside is None or tile is None else (inside, tile)
