"""Schedules a reduction over an output axis of symbolic extent in blocks of a constant number of
rows. What remains of the axis is computed in blocks of powers of two, by tiles with fewer rows.

    ``y[i], i < n  →  y[8*b + r], r < 8, b < n//8;  then 4, 2 and 1 rows, where n has that bit``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .....codegen.loop_nest import (
    PARALLEL,
    Statement,
    bind,
    function,
    loop,
    nested,
    sequence,
    when,
)
from .....codegen.stages.primfunc import StageFunction
from .....expr.build import add, const, mul, sub, variable
from .....expr.nodes import Expr, Var, binary, dtype_of
from .....graph.stage import Extent, axis_range
from ....declined import Declined
from ....kernel import Kernel, size_of
from ....machine import Machine
from ....rule import Made
from ...loops.parallel import shared_loops
from ...loops.results import stored
from ..nests import Nest
from ..tile import Spot, Tile
from ..tile_functions import (
    copied,
    ends_of,
    inner_axes,
    parameters,
    read_or_packed,
    summed,
    tile_loops,
    tile_order,
)
from ..tiling import TileCode


@dataclass(frozen=True)
class Rows:
    """The code of all rows.

    Attributes
    ----------
    number, blocks : Var, Expr
        The number of a whole block, and how many there are.
    whole : Statement
        A whole block.
    tails : tuple of (Expr, Statement)
        For each power of two, whether there are so many rows left, and their code.
    """

    number: Var
    blocks: Expr
    whole: Statement
    tails: tuple[tuple[Expr, Statement], ...]

    def serial(self) -> Statement:
        """All rows one after the other."""
        rest = [when(condition, body) for condition, body in self.tails]
        return sequence([loop(self.number, self.blocks, self.whole), *rest])


def row_functions(
    kernel: Kernel,
    nest: Nest,
    sizes: Mapping[int, int],
    tile: Tile,
    machine: Machine,
    threads: int,
) -> Made | None:
    """The copies of operands and the function of all rows; None if a copy follows the rows."""
    [(axis, size)] = sizes.items()
    inside = nest.in_blocks({nest.spatial[axis]: size})
    inner = inner_axes(inside, tile, machine)
    found = read_or_packed(kernel, inside, tile, inner, machine)
    if isinstance(found, Declined):
        return None  # a copy of each block would be needed
    copies, reads = found
    reduced = summed(inside, tile, reads, machine)
    inputs, places, buffers = parameters(kernel, reduced.sources, kernel.outputs)
    code = TileCode(
        tile,
        inside.body.axes,
        reduced,
        inner.inside,
        places,
        lambda values, here: stored(kernel, values, here, places),
    )
    order = tile_order(inside.of_all_blocks(), tile, machine)
    place = order.index(axis)
    starts, loops, numbers = tile_loops(inside, tile, inner, order[:place])
    in_block, within, more = tile_loops(inside, tile, inner, order[place + 1 :])
    ends = ends_of(inside, tile)

    def at(count: int, row: Expr) -> Statement:
        begins = {**starts, **in_block, axis: row}
        return nested(within, code.at(Spot(begins, ends, {axis: count}, {**numbers, **more})))

    rows = rows_of(at, size, axis_range(nest.body.axes[axis])[1])
    if threads > 1 and size_of([extent for _, extent in loops], 1) < threads:
        body = _shared_blocks(rows, loops, code)
    else:
        body = shared_loops(loops, code.allocated(rows.serial()), threads)
    func = function(buffers, body, once=True)
    return [*map(copied, copies.values()), StageFunction(func, inputs, tuple(kernel.outputs))]


def rows_of(at: Callable[[int, Expr], Statement], size: int, rows: Expr) -> Rows:
    """Whole blocks of rows, and what remains in blocks of powers of two.

    `at` writes so many rows from a row on.
    """
    dtype = dtype_of(rows)

    def number(value: int) -> Expr:
        return const(value, dtype)

    def begun(name: str, place: Expr, count: int) -> Statement:
        start = variable(name, dtype)
        return sequence([bind(start, place), at(count, start)])

    block = variable("block", dtype)
    rest = binary("floormod", rows, number(size))
    tails: list[tuple[Expr, Statement]] = []
    count = 1 << (size - 1).bit_length() - 1
    while count:
        half = binary("floordiv", rest, number(2 * count))
        place = add(sub(rows, rest), mul(half, number(2 * count)))
        bit = binary("floormod", binary("floordiv", rest, number(count)), number(2))
        tails.append((binary("eq", bit, number(1)), begun(f"row{count}", place, count)))
        count //= 2
    whole = begun("row", mul(block, number(size)), size)
    return Rows(block, binary("floordiv", rows, number(size)), whole, tuple(tails))


def _shared_blocks(rows: Rows, loops: Sequence[tuple[Var, Extent]], code: TileCode) -> Statement:
    """Threads share blocks of rows, and one of them computes the rest."""
    whole = code.allocated(nested(loops, rows.whole))
    rest = [when(condition, nested(loops, body)) for condition, body in rows.tails]
    blocks = loop(rows.number, rows.blocks, whole, PARALLEL)
    return sequence([blocks, code.allocated(sequence(rest))])
