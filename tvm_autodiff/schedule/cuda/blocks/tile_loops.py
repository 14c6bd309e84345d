"""Writes a reduction over rows and columns for blocks of threads, with extents of any size.

A block computes a tile of the results: elements of both sides are fetched step by step into shared
memory, where their guards are evaluated, and each thread reduces a small tile in registers.

    ``for step: left, right = fetch; for k, i, j: acc[i, j] ⊕= f(left[k, i], right[k, j])``
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
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
from ...statement_loops import accumulated, element_stored
from .block_tile import BlockTile
from .matrices import Matrices, Matrix, matrix_element, runs_along
from .place_grid import below, rounds


def tile_loops(
    kernel: Kernel, matrices: Matrices, tile: BlockTile, machine: Machine
) -> StageFunction:
    """The function of a reduction in tiles, one for each block; a symbolic number of them is shared
    by a fixed number of blocks.
    """
    inputs, results = external_reads(kernel.ops), kernel.outputs
    places, buffers = Places.of([*inputs, *results])
    writer = _Writer(kernel, matrices, tile, places, machine)
    known, block = [const_value(count) for count in writer.counts], variable("block")
    counts = [int(count) for count in known if count is not None]
    if len(counts) == len(known):
        grid = prod(counts)
        body = writer.tile_at(cast(writer.dtype, block), again=False)
    else:
        grid = 4 * machine.multiprocessors
        again = variable("again", writer.dtype)
        number = add(mul(again, const(grid, writer.dtype)), cast(writer.dtype, block))
        # threads of a block go on together: how often is a matter of the block
        tiles = reduce(mul, writer.counts)
        left = sub(add(tiles, const(grid - 1, writer.dtype)), cast(writer.dtype, block))
        times = binary("floordiv", left, const(grid, writer.dtype))
        body = loop(again, times, writer.tile_at(number, again=True))
    body = bound(writer.x, tile.sides[1], "threadIdx.x", body, UNROLLED_BY_CUDA)
    body = bound(writer.y, tile.sides[0], "threadIdx.y", body)
    body = allocated([*writer.left.shared, *writer.right.shared], body)
    func = function(buffers, bound(block, grid, "blockIdx.x", body))
    return StageFunction(func, tuple(inputs), tuple(results))


@dataclass(frozen=True)
class _Side:
    """The matrices of one side.

    Attributes
    ----------
    matrices : tuple of Matrix
    axes : tuple of Axis
        Rows of the left one, columns of the right one.
    each : int
        The rows or columns of one thread.
    width : int
        Those of a block.
    across : bool
        Whether neighbours in memory are neighbours along the reduction.
    shared, registers : tuple of Local
        For each matrix, the tile in shared memory, with a row for each element of the reduction,
        and what a thread reads of such a row.
    """

    matrices: tuple[Matrix, ...]
    axes: tuple[Axis, ...]
    each: int
    width: int
    across: bool
    shared: tuple[Local, ...]
    registers: tuple[Local, ...]


class _Writer:
    """Writes the tiles of one reduction."""

    def __init__(
        self,
        kernel: Kernel,
        matrices: Matrices,
        tile: BlockTile,
        places: Places,
        machine: Machine,
    ) -> None:
        self.kernel, self.matrices = kernel, matrices
        self.tile, self.places = tile, places
        # elements that are read out of shared memory at a time, and those between rows of a tile
        # that threads write across: they meet in no bank
        self.lanes = machine.lanes("float32")
        self.x, self.y = variable("x"), variable("y")
        every = (*matrices.batch, *matrices.rows, *matrices.columns)
        self.dtype = "int64" if "int64" in map(flat_dtype, (every, matrices.reduced)) else "int32"
        self.left = self._side(matrices.left, matrices.rows, tile.rows, tile.block_rows)
        self.right = self._side(matrices.right, matrices.columns, tile.columns, tile.block_columns)
        batches = cast(self.dtype, flat_extent(matrices.batch))
        self.counts = (batches, self._tiles_of(self.left), self._tiles_of(self.right))
        self.accumulators = [
            buffer_in(REGISTERS, f"acc{number}", [tile.rows, tile.columns], dtype_of(source))
            for number, source in enumerate(matrices.sources)
        ]

        self.still = [
            buffer_in(REGISTERS, one.element.name, [tile.rows, tile.columns], dtype_of(one.element))
            for one in matrices.still
        ]

    def _side(
        self, matrices: tuple[Matrix, ...], axes: tuple[Axis, ...], each: int, width: int
    ) -> _Side:
        variables = [axis.var for axis in (*self.kernel.root.axis, *self.matrices.reduced)]
        across = not runs_along(matrices, axes, variables) and runs_along(
            matrices, self.matrices.reduced, variables
        )
        shape = [self.tile.step, width + (self.lanes if across else 0)]
        dtypes = {one.element.name: dtype_of(one.element) for one in matrices}
        shared = tuple(buffer_in(SHARED, name, shape, dtypes[name]) for name in dtypes)
        registers = tuple(buffer_in(REGISTERS, f"{name}s", [each], dtypes[name]) for name in dtypes)
        return _Side(matrices, axes, each, width, across, shared, registers)

    def _tiles_of(self, side: _Side) -> Expr:
        extent = cast(self.dtype, flat_extent(side.axes))
        return rounds(extent, side.width)

    def tile_at(self, number: Expr, again: bool) -> Statement:
        """The tile of some number; with `again`, a block has computed others before."""
        batch, row, column = (variable(name, self.dtype) for name in ("batch", "row", "column"))
        counts = reversed(list(zip((batch, row, column), self.counts, strict=True)))
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
        i, j = counter("i", rows), counter("j", columns)
        here = (
            batch,
            add(first_row, cast(self.dtype, add(mul(self.y, const(rows, "int32")), i))),
            add(first_column, cast(self.dtype, add(mul(self.x, const(columns, "int32")), j))),
        )
        step = variable("step", self.dtype)
        first = mul(step, const(self.tile.step, self.dtype))
        count = cast(self.dtype, flat_extent(self.matrices.reduced))
        steps = [
            self._fetched(self.left, batch, first_row, first),
            self._fetched(self.right, batch, first_column, first),
            barrier(),
            self._added(i, j, here, first, count),
        ]
        times = rounds(count, self.tile.step)
        if again or const_value(times) != 1:
            steps.insert(0, barrier())  # behind the reads of the step before
        identity = self.matrices.reduction.combiner.identity
        start = [
            store(accumulator, value, [i, j])
            for accumulator, value in zip(self.accumulators, identity, strict=True)
        ]
        start += [
            store(register, self.places.read(self._still(matrix, here)), [i, j])
            for register, matrix in zip(self.still, self.matrices.still, strict=True)
        ]
        return allocated(
            [*self.accumulators, *self.still, *self.left.registers, *self.right.registers],
            sequence(
                [
                    *begin,
                    self._tile(i, j, sequence(start)),
                    loop(step, times, sequence(steps)),
                    self._tile(i, j, self._written(i, j, here)),
                ]
            ),
        )

    def _still(self, matrix: Matrix, at: tuple[Expr, Expr, Expr]) -> Expr:
        groups = (self.matrices.batch, self.matrices.rows, self.matrices.columns)
        return matrix_element(matrix, groups, at, (1, self.left.width, self.right.width))

    def _tile(self, i: Var, j: Var, body: Statement) -> Statement:
        return _over(i, self.tile.rows, _over(j, self.tile.columns, body))

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
        values = [matrix_element(matrix, groups, at, multiples) for matrix in side.matrices]
        stores = [
            store(shared, self.places.read(value), [k, i])
            for shared, value in zip(side.shared, values, strict=True)
        ]
        inside = compare("lt", place, const(elements, "int32")) if elements % threads else true()
        return loop(again, times, when(inside, sequence(stores)), UNROLLED)

    def _added(
        self, i: Var, j: Var, here: tuple[Expr, Expr, Expr], first: Expr, count: Expr
    ) -> Statement:
        """``acc[i, j] = acc[i, j] ⊕ f(left[k, i], right[k, j])`` for all k of a step."""
        k = counter("k", self.tile.step)
        point = add(first, cast(self.dtype, k))
        table = {**self._indices(here), **indices_at(self.matrices.reduced, point)}
        for side, own in ((self.left, i), (self.right, j)):
            for matrix, registers in zip(side.matrices, side.registers, strict=True):
                table[matrix.element] = element(registers, [own])
        for matrix, register in zip(self.matrices.still, self.still, strict=True):
            table[matrix.element] = element(register, [i, j])
        sources = [substituter(table)(source) for source in self.matrices.sources]
        combiner = self.matrices.reduction.combiner
        add_one = accumulated(
            combiner, self.accumulators, sources, self.places, REGISTERS, at=[i, j]
        )
        if not self.matrices.neutral:
            add_one = when(below(point, count, self.tile.step), add_one)
        reads = [
            _read(shared, registers, side.each, k, thread, self.lanes)
            for side, thread in ((self.left, self.y), (self.right, self.x))
            for shared, registers in zip(side.shared, side.registers, strict=True)
        ]
        return _over(k, self.tile.step, sequence([*reads, self._tile(i, j, add_one)]))

    def _indices(self, at: tuple[Expr, Expr, Expr]) -> dict[Var, Expr]:
        """The index along each output axis at a place."""
        groups = (self.matrices.batch, self.matrices.rows, self.matrices.columns)
        table: dict[Var, Expr] = {}
        for axes, place in zip(groups, at, strict=True):
            table |= indices_at(axes, place)
        return table

    def _written(self, i: Var, j: Var, at: tuple[Expr, Expr, Expr]) -> Statement:
        table = self._indices(at)
        sides = ((self.left, at[1]), (self.right, at[2]))
        inside = [
            below(place, cast(self.dtype, flat_extent(side.axes)), side.width)
            for side, place in sides
        ]
        values = [element(accumulator, [i, j]) for accumulator in self.accumulators]
        for factor in self.matrices.scale:
            values = [mul(substituter(table)(factor), value) for value in values]
        here = [table[var] for var in axis_vars(self.kernel.root)]
        return when(
            all_of(inside), element_stored(self.kernel, values, here, self.places, REGISTERS)
        )


def _read(shared: Local, registers: Local, each: int, k: Expr, thread: Var, most: int) -> Statement:
    """The rows or columns of a thread, several out of shared memory at a time."""
    lanes = min(most, each)
    number, lane = counter("number", each // lanes), counter("lane", lanes)
    place = add(mul(number, const(lanes, "int32")), lane)
    source = element(shared, [k, add(mul(thread, const(each, "int32")), place)])
    vector = loop(lane, lanes, store(registers, source, [place]), VECTORIZED)
    return _over(number, each // lanes, vector)


def _over(var: Var, extent: int, body: Statement) -> Statement:
    """A loop that CUDA's compiler unrolls."""
    return loop(var, extent, body, UNROLLED)


def _divided(number: Expr, size: Expr) -> tuple[Expr, Expr]:
    """Quotient and remainder."""
    if const_value(size) == 1:
        return number, const(0, dtype_of(number))
    return binary("floordiv", number, size), binary("floormod", number, size)
