"""Writes a batch of matrix products for blocks of threads, with extents of any size.

A block computes one tile after the other: both operands are fetched step by step into shared
memory, where their guards are evaluated, and each thread adds up a small tile in registers.

    ``for tile: for step: left, right = fetch; for k, i, j: sum[i, j] += left[k, i] * right[k, j]``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from ....codegen.flat_axes import flat_dtype, flat_extent, indices_at
from ....codegen.loop_nest import (
    UNROLLED,
    VECTORIZED,
    Local,
    Places,
    Statement,
    allocated,
    bind,
    counter,
    element,
    function,
    loop,
    sequence,
    store,
    when,
)
from ....codegen.stages.primfunc import StageFunction, external_reads
from ....codegen.thread_loops import REGISTERS, SHARED, UNROLLED_BY_CUDA, barrier, bound, buffer_in
from ....expr.build import add, all_of, cast, compare, const, mul, sub, true, variable
from ....expr.nodes import Axis, Expr, Var, binary, const_value, dtype_of
from ....expr.rewrite import substituter
from ....graph.stage import axis_vars
from ...kernel import Kernel
from ...machine import Machine
from ...nest.products import Operand
from ...statement_loops import element_stored
from .block_tile import BlockTile
from .matrices import Matrices, matrix_element, runs_along
from .place_grid import rounds


def tile_loops(
    kernel: Kernel, matrices: Matrices, scale: Sequence[Expr], tile: BlockTile, machine: Machine
) -> StageFunction:
    """The function of a product in tiles; a fixed number of blocks shares them."""
    inputs, results = external_reads(kernel.ops), kernel.outputs
    places, buffers = Places.of([*inputs, *results])
    writer = _Writer(kernel, matrices, scale, tile, places, machine)
    grid, block = 4 * machine.multiprocessors, variable("block")
    again = variable("again", writer.dtype)
    number = add(mul(again, const(grid, writer.dtype)), cast(writer.dtype, block))
    # threads of a block go on together: how often is a matter of the block
    left = sub(add(writer.tiles, const(grid - 1, writer.dtype)), cast(writer.dtype, block))
    times = binary("floordiv", left, const(grid, writer.dtype))
    body = loop(again, times, writer.tile_at(number))
    body = bound(writer.x, tile.sides[1], "threadIdx.x", body, UNROLLED_BY_CUDA)
    body = bound(writer.y, tile.sides[0], "threadIdx.y", body)
    body = allocated([writer.left.shared, writer.right.shared], body)
    func = function(buffers, bound(block, grid, "blockIdx.x", body))
    return StageFunction(func, tuple(inputs), tuple(results))


@dataclass(frozen=True)
class _Side:
    """One operand of the product.

    Attributes
    ----------
    operands : tuple of Operand
        Its factors.
    axes : tuple of Axis
        Rows of the left one, columns of the right one.
    each : int
        The rows or columns of one thread.
    width : int
        Those of a block.
    across : bool
        Whether neighbours in memory are neighbours along the reduction.
    shared : Local
        The tile in shared memory: a row for each element of the reduction.
    """

    operands: tuple[Operand, ...]
    axes: tuple[Axis, ...]
    each: int
    width: int
    across: bool
    shared: Local


class _Writer:
    """Writes the tiles of one product."""

    def __init__(
        self,
        kernel: Kernel,
        matrices: Matrices,
        scale: Sequence[Expr],
        tile: BlockTile,
        places: Places,
        machine: Machine,
    ) -> None:
        self.kernel, self.matrices, self.scale = kernel, matrices, scale
        self.tile, self.places = tile, places
        # elements that are read out of shared memory at a time, and those between rows of a tile
        # that threads write across: they meet in no bank
        self.lanes = machine.lanes("float32")
        self.x, self.y = variable("x"), variable("y")
        every = (*matrices.batch, *matrices.rows, *matrices.columns)
        self.dtype = "int64" if "int64" in map(flat_dtype, (every, matrices.reduced)) else "int32"
        self.left = self._side("left", matrices.left, matrices.rows, tile.rows, tile.block_rows)
        self.right = self._side(
            "right", matrices.right, matrices.columns, tile.columns, tile.block_columns
        )
        self.row_tiles = self._tiles_of(self.left)
        self.column_tiles = self._tiles_of(self.right)
        self.batches = cast(self.dtype, flat_extent(matrices.batch))
        self.tiles = mul(mul(self.batches, self.row_tiles), self.column_tiles)

    def _side(
        self,
        name: str,
        operands: tuple[Operand, ...],
        axes: tuple[Axis, ...],
        each: int,
        width: int,
    ) -> _Side:
        variables = [axis.var for axis in (*self.kernel.root.axis, *self.matrices.reduced)]
        across = not runs_along(operands, axes, variables) and runs_along(
            operands, self.matrices.reduced, variables
        )
        dtype = dtype_of(self.kernel.root.output(0))
        shape = [self.tile.step, width + (self.lanes if across else 0)]
        return _Side(operands, axes, each, width, across, buffer_in(SHARED, name, shape, dtype))

    def _tiles_of(self, side: _Side) -> Expr:
        extent = cast(self.dtype, flat_extent(side.axes))
        return rounds(extent, side.width)

    def tile_at(self, number: Expr) -> Statement:
        """The tile of some number."""
        row, column, batch = (variable(name, self.dtype) for name in ("row", "column", "batch"))
        counts = [(column, self.column_tiles), (row, self.row_tiles), (batch, self.batches)]
        begin, rest = [], number
        # the symbolic number outermost: no division by it
        *inner, (last, _) = sorted(counts, key=lambda pair: const_value(pair[1]) is None)
        for var, count in inner:
            rest, own = _divided(rest, count)
            begin.append(bind(var, own))
        begin.append(bind(last, rest))
        first_row = mul(row, const(self.left.width, self.dtype))
        first_column = mul(column, const(self.right.width, self.dtype))
        rows, columns = self.tile.rows, self.tile.columns
        dtype = dtype_of(self.kernel.root.output(0))
        sums = buffer_in(REGISTERS, "sums", [rows, columns], dtype)
        lefts = buffer_in(REGISTERS, "lefts", [rows], dtype)
        rights = buffer_in(REGISTERS, "rights", [columns], dtype)
        step = variable("step", self.dtype)
        first = mul(step, const(self.tile.step, self.dtype))
        count = cast(self.dtype, flat_extent(self.matrices.reduced))
        steps = sequence(
            [
                barrier(),  # behind the reads of the tile before
                self._fetched(self.left, batch, first_row, first),
                self._fetched(self.right, batch, first_column, first),
                barrier(),
                self._added(sums, lefts, rights),
            ]
        )
        i, j = counter("i", rows), counter("j", columns)
        here = (
            batch,
            add(first_row, cast(self.dtype, add(mul(self.y, const(rows, "int32")), i))),
            add(first_column, cast(self.dtype, add(mul(self.x, const(columns, "int32")), j))),
        )
        zero = store(sums, const(0, dtype), [i, j])
        written = self._written(here, element(sums, [i, j]))
        return allocated(
            [sums, lefts, rights],
            sequence(
                [
                    *begin,
                    _over(i, rows, _over(j, columns, zero)),
                    loop(step, rounds(count, self.tile.step), steps),
                    _over(i, rows, _over(j, columns, written)),
                ]
            ),
        )

    def _fetched(self, side: _Side, batch: Expr, first: Expr, first_step: Expr) -> Statement:
        """All threads of a block copy a tile; neighbouring threads copy neighbouring elements."""
        threads, elements = prod(self.tile.sides), self.tile.step * side.width
        times = -(-elements // threads)
        again = counter("again", times)
        thread = add(mul(self.y, const(self.tile.sides[1], "int32")), self.x)
        place = add(mul(again, const(threads, "int32")), thread)
        inner = const(self.tile.step if side.across else side.width, "int32")
        k, i = binary("floordiv", place, inner), binary("floormod", place, inner)
        if side.across:
            k, i = i, k
        groups = (self.matrices.batch, self.matrices.reduced, side.axes)
        at = (
            batch,
            add(first_step, cast(self.dtype, k)),
            add(first, cast(self.dtype, i)),
        )
        multiples = (1, self.tile.step, side.width)
        value = self.places.read(matrix_element(side.operands, groups, at, multiples))
        body = store(side.shared, value, [k, i])
        inside = compare("lt", place, const(elements, "int32")) if elements % threads else true()
        return loop(again, times, when(inside, body), UNROLLED)

    def _added(self, sums: Local, lefts: Local, rights: Local) -> Statement:
        """``sums[i, j] += left[k, i] * right[k, j]`` for all k of a step."""
        k = counter("k", self.tile.step)
        i, j = counter("i", self.tile.rows), counter("j", self.tile.columns)
        product = mul(element(lefts, [i]), element(rights, [j]))
        add_one = store(sums, add(element(sums, [i, j]), product), [i, j])
        return _over(
            k,
            self.tile.step,
            sequence(
                [
                    _read(self.left, lefts, k, self.y, self.lanes),
                    _read(self.right, rights, k, self.x, self.lanes),
                    _over(i, self.tile.rows, _over(j, self.tile.columns, add_one)),
                ]
            ),
        )

    def _written(self, at: tuple[Expr, Expr, Expr], value: Expr) -> Statement:
        groups = (self.matrices.batch, self.matrices.rows, self.matrices.columns)
        table: dict[Var, Expr] = {}
        inside: list[Expr] = []
        for axes, place, multiple in zip(
            groups, at, (1, self.left.width, self.right.width), strict=True
        ):
            table |= indices_at(axes, place)
            extent = cast(self.dtype, flat_extent(axes))
            if not _is_multiple(extent, multiple):
                inside.append(compare("lt", place, extent))
        rename: Callable[[Expr], Expr] = substituter(table)
        for factor in self.scale:
            value = mul(rename(factor), value)
        here = [table[var] for var in axis_vars(self.kernel.root)]
        stored = element_stored(self.kernel, [value], here, self.places, REGISTERS)
        return when(all_of(inside), stored) if inside else stored


def _read(side: _Side, registers: Local, k: Expr, thread: Var, most: int) -> Statement:
    """The rows or columns of a thread, several out of shared memory at a time."""
    lanes = min(most, side.each)
    number, lane = counter("number", side.each // lanes), counter("lane", lanes)
    place = add(mul(number, const(lanes, "int32")), lane)
    source = element(side.shared, [k, add(mul(thread, const(side.each, "int32")), place)])
    vector = loop(lane, lanes, store(registers, source, [place]), VECTORIZED)
    return _over(number, side.each // lanes, vector)


def _over(var: Var, extent: int, body: Statement) -> Statement:
    """A loop that CUDA's compiler unrolls."""
    return loop(var, extent, body, UNROLLED)


def _divided(number: Expr, size: Expr) -> tuple[Expr, Expr]:
    """Quotient and remainder."""
    if const_value(size) == 1:
        return number, const(0, dtype_of(number))
    return binary("floordiv", number, size), binary("floormod", number, size)


def _is_multiple(extent: Expr, multiple: int) -> bool:
    known = const_value(extent)
    return multiple == 1 or (known is not None and int(known) % multiple == 0)
