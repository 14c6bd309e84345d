"""Chooses the tile of a reduction that a block of threads computes, by least estimated time.

The tile has rows and columns of a block and of a thread, and the number of parts of the reduction.
The estimate is the largest cost of a step along the reduction in cycles of a multiprocessor, times
the number of sequential steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import isqrt, prod

from ...machine import Machine
from .matrices import Matrices
from .threads import BLOCK, WARP

SQUARE = (isqrt(BLOCK), isqrt(BLOCK))  #: threads of a block along rows and along columns
#: the same for two rows or more, and four columns or more
SIDES = sorted(
    [(BLOCK >> n, 1 << n) for n in range(2, BLOCK.bit_length() - 1)],
    key=lambda sides: (sides[0] > sides[1], max(sides)),
)


@dataclass(frozen=True)
class BlockTile:
    """Rows and columns of one thread, and threads of a block along both.

    Attributes
    ----------
    sides : tuple of int
        The threads of a block along rows and along columns.
    rows, columns : int
        The part of the tile of one thread.
    step : int
        The elements of the reduction that are fetched at a time.
    parts : int
        The parts of the reduction, which different blocks compute.
    """

    sides: tuple[int, int]
    rows: int
    columns: int
    step: int
    parts: int = 1

    @property
    def block_rows(self) -> int:
        """The rows of a block."""
        return self.sides[0] * self.rows

    @property
    def block_columns(self) -> int:
        """The columns of a block."""
        return self.sides[1] * self.columns

    def count(self, sizes: tuple[int, int, int, int]) -> int:
        """The tiles of a batch of results."""
        batch, rows, columns, _ = sizes
        return batch * -(-rows // self.block_rows) * -(-columns // self.block_columns)


def best_tile(matrices: Matrices, machine: Machine, whole: bool = False) -> BlockTile:
    """The tile of least estimated time; with `whole`, the reduction is not split."""

    def cycles(tile: BlockTile) -> float:
        # a square is better known: others must gain for certain
        return tile_cycles(tile, matrices, machine) * (1 if tile.sides == SQUARE else 1.1)

    tiles = _tiles(matrices, machine)
    return min((tile for tile in tiles if not whole or tile.parts == 1), key=cycles)


def _tiles(matrices: Matrices, machine: Machine) -> Iterator[BlockTile]:
    _, rows, columns, reduced = matrices.sizes
    left, right = matrices.itemsizes
    for sides, along_rows, along_columns in product(SIDES, (1, 2, 4, 8), (1, 2, 4, 8)):
        step = WARP // 2 if along_rows * along_columns <= 16 else WARP // 4
        tile = BlockTile(sides, along_rows, along_columns, step)
        too_large = tile.block_rows >= 2 * rows or tile.block_columns >= 2 * columns
        if too_large and (sides != SQUARE or along_rows * along_columns > 1):
            continue
        if (tile.block_rows * left + tile.block_columns * right) * step > machine.shared_bytes:
            continue
        held = along_rows * along_columns * matrices.itemsize_held
        # as much again for addresses and what the body computes
        if 2 * (held + along_rows * left + along_columns * right) > machine.register_bytes:
            continue
        while tile.parts == 1 or reduced // tile.parts >= 4 * step:
            yield tile
            tile = replace(tile, parts=2 * tile.parts)


def plain_cycles(matrices: Matrices, machine: Machine) -> float:
    """The time to read both sides of each point anew.

    They come from the first cache if neighbouring threads have neighbouring outputs, and from the
    second if all threads share few.
    """
    sizes = matrices.sizes
    batch, rows, columns, _ = sizes
    alone = batch * rows * columns >= machine.multiprocessors * machine.block_threads
    rate, before = (machine.near_bytes, 0) if alone else (machine.far_bytes, machine.launch_cycles)
    cycles = prod(sizes) * sum(matrices.itemsizes) / rate / machine.multiprocessors
    return cycles + before + _start(machine)


def tile_cycles(tile: BlockTile, matrices: Matrices, machine: Machine) -> float:
    """The estimated time of a tile, in cycles."""
    batch, rows, columns, reduced = matrices.sizes
    left, right = matrices.itemsizes
    blocks = tile.count(matrices.sizes) * tile.parts
    each = -(-blocks // machine.multiprocessors)  # blocks that one multiprocessor computes
    itemsize = matrices.itemsize
    points = tile.block_rows * tile.block_columns * max(1, itemsize // 4)
    products = points * matrices.operations / machine.block_products
    warps = prod(tile.sides) / WARP
    shared = warps * (left / 4 * max(1, tile.rows / 4) + right / 4 * _column_reads(tile))
    fetched = (tile.block_rows * left + tile.block_columns * right) / machine.far_bytes
    hidden = 1.0 if each >= 2 else 1.6  # one block alone waits for its own reads
    steps = -(-reduced // tile.parts)
    costs = (products, shared, fetched)
    total = each * (steps * (max(costs) + 0.1 * sum(costs)) * hidden) + _start(machine)
    if tile.parts > 1:
        outputs = batch * rows * columns
        moved = 2 * outputs * tile.parts * itemsize
        total += machine.launch_cycles + moved / (machine.far_bytes * machine.multiprocessors)
    return total


def _start(machine: Machine) -> int:
    """The cycles before the first step of a block and after the last one."""
    return machine.launch_cycles // 4


def _column_reads(tile: BlockTile) -> float:
    """Accesses of shared memory by which a warp reads the columns of its threads."""
    apart = 2 if tile.columns == 8 else 1  # more than 16 bytes apart, threads meet in banks
    return max(1, min(WARP, tile.sides[1]) * tile.columns / WARP) * apart
