"""Register tiles whose vectors run along an output axis of symbolic extent.

The axis is cut into panels of a few vectors. What whole panels leave is computed one vector at a
time over copies of the operands that end with zeros, and only lanes inside of the result are
stored. Another axis of symbolic extent may run in blocks of rows.

    ``y[i, j], j < n  →  y[i, 64*p + c], c < 64, p < n//64;
    then y[i, n - n%64 + 16*v + c], c < min(16, what is left), v < ceil((n%64)/16)``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .....codegen.loop_nest import (
    Places,
    Statement,
    bind,
    counter,
    function,
    loop,
    nested,
    sequence,
)
from .....codegen.stages.primfunc import StageFunction
from .....expr.build import add, const, mul, sub, variable
from .....expr.nodes import Expr, Var, binary, dtype_of, node_id
from .....graph.stage import Extent, Reduction, axis_range, data_axis
from ....kernel import Kernel, size_of
from ....machine import Machine
from ....rule import Made, Rest
from ...loops.parallel import shared_loops, tasks
from ...loops.results import stored
from ..copies import needs_copy
from ..nests import Nest, padded_extents
from ..packing import Pieces, TileAxes, pack
from ..tile import Spot, Tile
from ..tile_choice import best_tile
from ..tile_functions import ends_of, inner_axes, parameters, summed, tile_loops, tile_order
from ..tiling import TileCode
from .ended_copy import ended_copy
from .row_blocks import rows_of


@dataclass(frozen=True)
class _Run:
    """Pieces of the axis of one width.

    Attributes
    ----------
    pieces : Pieces
    start : Expr
        The first place of a piece, over `pieces.number`.
    count : Expr
    nest : Nest
        The loops of a piece.
    tile : Tile
    inner : TileAxes
        The innermost variables of the tile.
    """

    pieces: Pieces
    start: Expr
    count: Expr
    nest: Nest
    tile: Tile
    inner: TileAxes


@dataclass(frozen=True)
class _Part:
    """The statement of a piece within its loops."""

    run: _Run
    loops: list[tuple[Var, Extent]]
    body: Statement
    code: TileCode


def panel_functions(
    kernel: Kernel,
    nest: Nest,
    sizes: Mapping[int, int],
    tile: Tile,
    machine: Machine,
    threads: int,
) -> Made | None:
    """The copies of operands, and the function of all panels; None if an operand has no copy.

    `sizes` are those of a block, by output axis.
    """
    runs = _runs(nest, sizes, tile, replace(machine, threads=1))
    copies: list[Rest | StageFunction] = []
    reduced: list[Reduction] = []
    copied = _copied(nest, sizes, tile, replace(machine, threads=1))
    shared: dict[object, Expr] = {}
    for run in runs:
        reads = _reads(kernel, run, copied, shared, copies, machine)
        if reads is None:
            return None
        reduced.append(summed(run.nest, run.tile, reads, machine))
    sources = [source for one in reduced for source in one.sources]
    inputs, places, buffers = parameters(kernel, sources, kernel.outputs)
    parts = [
        _part(kernel, run, one, sizes, places, machine)
        for run, one in zip(runs, reduced, strict=True)
    ]
    body = _together(parts, _is_reused(nest, sizes, tile), threads)
    func = function(buffers, body, once=True)
    return [*copies, StageFunction(func, inputs, tuple(kernel.outputs))]


def _runs(nest: Nest, sizes: Mapping[int, int], tile: Tile, one: Machine) -> list[_Run]:
    """Whole panels, and the vectors that these leave."""
    axis = nest.body.axes[tile.vector]
    extent = axis_range(axis)[1]
    width, lanes, dtype = tile.width * tile.vectors, tile.width, dtype_of(extent)
    rest = binary("floormod", extent, const(width, dtype))
    vectors = binary("floordiv", add(rest, const(lanes - 1, dtype)), const(lanes, dtype))
    full = binary("floordiv", extent, const(width, dtype))
    runs: list[_Run] = []
    for size, first, count, end in (
        (width, const(0, dtype), full, None),
        (lanes, sub(extent, rest), vectors, extent),
    ):
        blocks = {**sizes, tile.vector: size}
        inside = nest.in_blocks({nest.spatial[n]: places for n, places in blocks.items()})
        fitting = replace(tile, vectors=size // lanes)
        if end is not None and len(sizes) == 1:
            fitting = best_tile(inside, one, like=fitting) or fitting
        over = data_axis("piece", count, dtype_of(count))
        number = counter("piece", count)
        at = [add(first, mul(var, const(size, dtype))) for var in (over.var, number)]
        pieces = Pieces(node_id(axis.var), over, number, at[0], size, end)
        inner = inner_axes(inside, fitting, one)
        if runs:  # what both read is the same expression
            whole = runs[0].inner
            inner = replace(inner, numbers=whole.numbers, inside=whole.inside)
        runs.append(_Run(pieces, at[1], count, inside, fitting, inner))
    return runs


def _copied(nest: Nest, sizes: Mapping[int, int], tile: Tile, one: Machine) -> list[bool]:
    """Which operands are copied, if there are several panels."""
    blocks = {**sizes, tile.vector: 2 * tile.width * tile.vectors}
    inside = nest.in_blocks({nest.spatial[n]: size for n, size in blocks.items()})
    padded = padded_extents(inside, tile)
    return [needs_copy(each, inside, tile, one, padded) for each in inside.body.operands]


def _reads(
    kernel: Kernel,
    run: _Run,
    copied: Sequence[bool],
    shared: dict[object, Expr],
    copies: list[Rest | StageFunction],
    machine: Machine,
) -> list[Expr] | None:
    """What a piece reads; `copies` gets those of operands.

    Reads of copies that are the same for all pieces are `shared`, by operand and layout.
    """
    nest, pieces = run.nest, run.pieces
    padded, inner = padded_extents(nest, run.tile), run.inner
    reads: list[Expr] = []
    for number, operand in enumerate(nest.body.operands):
        varies = pieces.key in operand.variables()
        if not (copied[number] or (varies and pieces.end is not None)):
            reads.append(operand.expr)
            continue
        layout = (number, run.tile.unrolled)
        if layout in shared:
            reads.append(shared[layout])
            continue
        name = f"{kernel.root.name}_{'pack' if pieces.end is None else 'rest'}{number}"
        loops = nest.loops(padded)
        packed = pack(operand, name, loops, nest.spatial, inner, pieces if varies else None)
        if packed is None:
            return None
        copy = Kernel(packed.tensor.op)
        copies.append(ended_copy(copy, packed.inside, machine) if packed.inside else Rest(copy))
        reads.append(packed.read)
        if not varies:
            shared[layout] = packed.read
    return reads


def _part(
    kernel: Kernel,
    run: _Run,
    reduced: Reduction,
    sizes: Mapping[int, int],
    places: Places,
    machine: Machine,
) -> _Part:
    nest, tile, pieces = run.nest, run.tile, run.pieces
    code = TileCode(
        tile,
        nest.body.axes,
        reduced,
        run.inner.inside,
        places,
        lambda values, here: stored(kernel, values, here, places),
    )
    others = [number for number in tile_order(nest, tile, machine) if number not in sizes]
    starts, loops, numbers = tile_loops(nest, tile, run.inner, others)
    column = variable("column", dtype_of(run.start))
    starts[tile.vector] = column
    ends = ends_of(nest, tile)
    if pieces.end is not None:
        ends[tile.vector] = pieces.end
    rows = [(axis, size) for axis, size in sizes.items() if axis != tile.vector]
    if not rows:
        body = code.at(Spot(starts, ends, values=numbers))
    else:
        [(axis, size)] = rows

        def at(count: int, row: Expr) -> Statement:
            return code.at(Spot({**starts, axis: row}, ends, {axis: count}, numbers))

        body = rows_of(at, size, axis_range(nest.body.axes[axis])[1]).serial()
    return _Part(run, loops, sequence([bind(column, run.start), body]), code)


def _is_reused(nest: Nest, sizes: Mapping[int, int], tile: Tile) -> bool:
    """Whether an operand of panels is the same for several tiles of other axes."""
    along = nest.spatial[tile.vector]
    others = [
        key
        for axis, key in enumerate(nest.spatial)
        if axis not in sizes and nest.extents.get(key, 0) != tile.factors.get(axis, 1)
    ]
    return any(
        key not in operand.variables()
        for operand in nest.body.operands
        if along in operand.variables()
        for key in others
    )


def _together(parts: Sequence[_Part], reused: bool, threads: int) -> Statement:
    """All pieces, shared by the threads.

    An operand of panels is read again by loops that it does not depend on. These run inside of a
    panel, so panels and loops are tasks; other loops are outside of all panels.
    """
    first = parts[0]
    extents = [[extent for _, extent in part.loops] for part in parts]
    same = all(one == extents[0] for one in extents)
    few = size_of(extents[0], 1) < threads
    if threads > 1 and (few or reused or not same):
        return sequence([_tasks(part) for part in parts])
    if reused or not same:
        return sequence([part.code.allocated(_in_order(part)) for part in parts])
    inside = []
    for part in parts:
        pairs = zip(part.loops, first.loops, strict=True)
        again = [] if part is first else [bind(a, b) for (a, _), (b, _) in pairs]
        body = loop(part.run.pieces.number, part.run.count, part.body)
        inside.append(sequence([*again, part.code.allocated(body)]))
    return shared_loops(first.loops, sequence(inside), threads)


def _in_order(part: _Part) -> Statement:
    """``for piece: for loops: body``."""
    return loop(part.run.pieces.number, part.run.count, nested(part.loops, part.body))


def _tasks(part: _Part) -> Statement:
    """The same as one parallel loop."""
    loops = [(part.run.pieces.number, part.run.count), *part.loops]
    return tasks(loops, part.code.allocated(part.body))
