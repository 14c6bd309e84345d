"""Which tile of a matrix product a block of threads computes: the one of least estimated time.

In: sizes of a batch of products, the machine. Out: rows and columns of a block, of a thread, and
into how many parts the reduction is split. The estimate counts cycles of a multiprocessor for what
a step along the reduction costs, whichever is most, and how many steps run after each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..machine import Machine

SIDE = 16  #: threads of a block along rows, and along columns
LANES = 128  #: multiply-adds of a multiprocessor in a cycle, float32
BYTES = 32  #: from the second cache to a multiprocessor in a cycle
START = 1_500  #: cycles before the first step and after the last
LAUNCH = 6_000  #: cycles of one more launch, that of the kernel that combines the parts
STEP = 16  #: elements of the reduction that are fetched at a time, at most
#: accesses of shared memory by which a warp reads the columns of its threads, 16 of which differ
_COLUMN_READS = {1: 1, 2: 1, 4: 2, 8: 8}


@dataclass(frozen=True)
class BlockTile:
    """Rows and columns of one thread; a block has 16 by 16 threads.

    Attributes
    ----------
    rows, columns : int
        Of a thread's part of the tile.
    step : int
        Elements of the reduction that are fetched at a time.
    parts : int
        Of the reduction, computed by different blocks.
    """

    rows: int
    columns: int
    step: int
    parts: int = 1

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return SIDE * self.rows

    @property
    def block_columns(self) -> int:
        """Columns of a block."""
        return SIDE * self.columns


def best_tile(sizes: tuple[int, int, int, int], itemsize: int, machine: Machine) -> BlockTile:
    """The tile of least estimated time for a batch of products of these sizes."""
    return min(
        _tiles(sizes, itemsize, machine), key=lambda tile: _cycles(tile, sizes, itemsize, machine)
    )


def _tiles(
    sizes: tuple[int, int, int, int], itemsize: int, machine: Machine
) -> Iterator[BlockTile]:
    _, rows, columns, reduced = sizes
    for along_rows in (1, 2, 4, 8):
        for along_columns in (1, 2, 4, 8):
            too_large = SIDE * along_rows >= 2 * rows or SIDE * along_columns >= 2 * columns
            if too_large and along_rows * along_columns > 1:
                continue
            step = SIDE if along_rows * along_columns <= 16 else SIDE // 2
            if (along_rows + along_columns) * SIDE * step * itemsize > machine.shared_bytes:
                continue
            parts = 1
            while parts == 1 or reduced // parts >= 4 * step:
                yield BlockTile(along_rows, along_columns, step, parts)
                parts *= 2


def _cycles(
    tile: BlockTile, sizes: tuple[int, int, int, int], itemsize: int, machine: Machine
) -> float:
    batch, rows, columns, reduced = sizes
    tiles = batch * -(-rows // tile.block_rows) * -(-columns // tile.block_columns)
    blocks = tiles * tile.parts
    each = -(-blocks // machine.multiprocessors)  # blocks that one multiprocessor computes
    width = max(1, itemsize // 4)
    products = tile.block_rows * tile.block_columns * width / LANES
    shared = SIDE * SIDE / 32 * width * (max(1, tile.rows / 4) + _COLUMN_READS[tile.columns])
    fetched = (tile.block_rows + tile.block_columns) * itemsize / BYTES
    hidden = 1.0 if each >= 2 else 1.6  # one block alone waits for its own reads
    steps = -(-reduced // tile.parts)
    costs = (products, shared, fetched)
    total = each * (steps * (max(costs) + 0.1 * sum(costs)) * hidden) + START
    if tile.parts > 1:
        outputs = batch * rows * columns
        total += LAUNCH + 2 * outputs * tile.parts * itemsize / (BYTES * machine.multiprocessors)
    return total
