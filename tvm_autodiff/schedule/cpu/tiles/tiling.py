"""Writes a register tile: the results of a reduction that stay in registers while it runs.

The rules choose the factors. Loops over the places of tiles are outside, those of the reduction
inside of these, and a small unrolled and vectorised block of accumulators is innermost.

    ``y[i, j] = ⊕_k f(i, j, k)  →  for i0, j0: acc[r, c] = identity;
    for k: acc[r, c] = acc[r, c] ⊕ f(4*i0 + r, 32*j0 + c, k);  y[4*i0 + r, 32*j0 + c] = acc[r, c]``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from ....codegen.loop_nest import (
    UNROLLED,
    VECTORIZED,
    Places,
    Statement,
    allocated,
    branch,
    counter,
    element,
    local,
    loop,
    nested,
    sequence,
    store,
    when,
)
from ....expr.build import add, cast, compare, const, mul, sub, variable
from ....expr.nodes import Axis, Expr, Var, binary, dtype_of, node_id
from ....expr.rewrite import substituter
from ....graph.stage import Extent, Reduction, axis_range
from ..loops.vector_loops import combined
from .tile import Part, Spot, Tile

#: the stores of an element: from the values of its accumulators and its place along each axis
Stores = Callable[[Sequence[Expr], Sequence[Expr]], Sequence[Statement]]

#: the statements of an accumulator: from its place in the tile and that in its buffer
_Registers = Callable[[Sequence[Expr], Expr], Sequence[Statement]]


_Row = tuple[int, list[tuple[Var, int]]]  #: an axis, and the loop over its places in a tile


class TileCode:
    """Writes a tile.

    Parameters
    ----------
    tile : Tile
    axes : sequence of Axis
        The output axes.
    reduction : Reduction
        With the reduced values over these axes, and its own in the order of their loops.
    inside : mapping from the id of an axis' variable to Var
        Variables of the reduced values for the place within the tile.
    places : Places
        The buffers of what is read.
    stores : callable
        See `Stores`.
    order : sequence of int, optional
        The axes in the order of the memory that is stored to, if this is not their own.
    """

    def __init__(
        self,
        tile: Tile,
        axes: Sequence[Axis],
        reduction: Reduction,
        inside: Mapping[int, Var],
        places: Places,
        stores: Stores,
        order: Sequence[int] = (),
    ) -> None:
        self._tile, self._axes, self._reduction = tile, axes, reduction
        self._inside, self._places, self._stores = inside, places, stores
        self._order = list(order) or list(range(len(axes)))
        elements = tile.unrolled_elements * tile.vectors * tile.width
        self.sums = [
            local(f"acc{number}", [elements], dtype_of(one), "local")
            for number, one in enumerate(reduction.combiner.identity)
        ]

    def allocated(self, body: Statement) -> Statement:
        """A statement of tiles, after the allocation of their accumulators.

        One that exceeds TVM's stack takes 40 ns, as long as a small tile.
        """
        return allocated(self.sums, body)

    def at(self, spot: Spot) -> Statement:
        """The results of a tile; of a part of a reduction only after the last one."""
        found, part = self._reduction, spot.part
        table: dict[Var, Expr] = dict(spot.values)
        loops: list[tuple[Var, Extent]] = []
        for axis in found.axes:
            low, extent = axis_range(axis)
            if part is not None and node_id(axis.var) == node_id(part.var):
                low, extent = part.low, part.count
            var = counter(axis.var.name, extent)
            loops.append((var, extent))
            start = const(low, dtype_of(var)) if isinstance(low, int) else low
            table[axis.var] = cast(dtype_of(axis.var), add(var, start))

        def cleared(_: Sequence[Expr], place: Expr) -> list[Statement]:
            pairs = zip(self.sums, found.combiner.identity, strict=True)
            return [store(one, value, [place]) for one, value in pairs]

        def accumulated(inside: Sequence[Expr], place: Expr) -> list[Statement]:
            here = dict(table)
            for number, axis in enumerate(self._axes):
                here[axis.var] = cast(dtype_of(axis.var), _sum(spot.starts[number], inside[number]))
                var = self._inside.get(node_id(axis.var))
                if var is not None:
                    here[var] = cast(dtype_of(var), inside[number])
            rename = substituter(here)
            values = [self._places.read(rename(source)) for source in found.sources]
            return combined(found, self.sums, [place], values)

        begun, ended = self._registers(cleared, spot), self._written(spot)
        if part is not None:
            begun = branch(part.first, begun, self._registers(self._resumed(part), spot))
            ended = branch(part.last, ended, self._registers(self._kept(part), spot))
        return sequence([begun, nested(loops, self._registers(accumulated, spot)), ended])

    def _resumed(self, part: Part) -> _Registers:
        """The accumulators of the part before."""
        return lambda _, place: [
            store(own, element(kept, [part.tile, place]), [place])
            for own, kept in zip(self.sums, part.kept, strict=True)
        ]

    def _kept(self, part: Part) -> _Registers:
        """The accumulators for the next part."""
        return lambda _, place: [
            store(kept, element(own, [place]), [part.tile, place])
            for own, kept in zip(self.sums, part.kept, strict=True)
        ]

    def _registers(self, body: _Registers, spot: Spot) -> Statement:
        """A statement for each accumulator: from the place in the tile and that in the buffer."""
        tile = self._tile
        rows = [(axis, spot.counts.get(axis, factor)) for axis, factor in tile.unrolled]
        inside: list[Expr] = [const(0, "int32")] * len(self._axes)
        loops: list[tuple[Var, int]] = []
        for axis, count in rows:
            inside[axis], loops = _counted(f"r{axis}", count, loops)
        dtype = dtype_of(spot.starts[tile.vector])  # casts of lanes would hide neighbours in memory
        group, several = _counted("v", tile.vectors, [], dtype)
        lane = variable("l", dtype)
        inside[tile.vector] = add(mul(group, const(tile.width, dtype)), lane)
        # operands of the outer loop stay in registers during the inner one: the fewer of them
        outside = tile.vectors > tile.unrolled_elements
        loops = [*several, *loops] if outside else [*loops, *several]
        statement = loop(lane, tile.width, sequence(body(inside, self._place(inside))), VECTORIZED)
        return _unrolled(loops, statement)

    def _place(self, inside: Sequence[Expr]) -> Expr:
        """The number of an accumulator."""
        dtype = dtype_of(inside[self._tile.vector])
        place: Expr = const(0, dtype)
        for axis, factor in self._tile.unrolled:
            place = add(mul(place, const(factor, dtype)), cast(dtype, inside[axis]))
        width = const(self._tile.width * self._tile.vectors, dtype)
        return add(mul(place, width), inside[self._tile.vector])

    def _written(self, spot: Spot) -> Statement:
        """The stores of all results that are inside, in the order of memory."""
        counts = {**dict(self._tile.unrolled), **spot.counts}
        inside: list[Expr] = [const(0, "int32")] * len(self._axes)
        vector = self._order.index(self._tile.vector)
        outer = _rows([axis for axis in self._order[:vector] if axis in counts], counts, inside)
        if vector == len(self._order) - 1:
            return self._over(outer, spot, inside, self._vectors(spot, inside))
        inner = {axis: counts[axis] for axis in self._order[vector:] if axis in counts}
        return self._over(outer, spot, inside, self._lanes_in_turn(spot, inside, inner))

    def _over(
        self, rows: Sequence[_Row], spot: Spot, inside: Sequence[Expr], body: Statement
    ) -> Statement:
        """A statement at all places along some axes that are below their ends."""
        for axis, loops in reversed(rows):
            body = _unrolled(loops, self._below(spot, axis, inside[axis], body))
        return body

    def _lanes_in_turn(
        self, spot: Spot, outside: Sequence[Expr], counts: Mapping[int, int]
    ) -> Statement:
        """The lanes of vectors that lie apart in memory, one after the other.

        ``for r: for l in vectorized(16): t[r, l] = acc[r, l];
        for l in range(16): for r: y[l, r] = t[r, l]``: a copy of the stores for each lane takes
        long to compile.
        """
        tile = self._tile
        dtype = dtype_of(spot.starts[tile.vector])
        group, loops = _counted("w", tile.vectors, [], dtype)
        width = const(tile.width, dtype)
        first = mul(group, width)
        elements = prod(counts.values()) * tile.width
        identities = self._reduction.combiner.identity
        lanes = [local("lanes", [elements], dtype_of(one)) for one in identities]

        def at_rows(lane: Var, body: Callable[[list[Expr], Expr], Statement]) -> Statement:
            inside = list(outside)
            inside[tile.vector] = add(first, lane)
            rows = _rows(counts, counts, inside)
            row: Expr = const(0, dtype)
            for axis, count in counts.items():
                row = add(mul(row, const(count, dtype)), cast(dtype, inside[axis]))
            return self._over(rows, spot, inside, body(inside, add(mul(row, width), lane)))

        def copied(inside: list[Expr], kept: Expr) -> Statement:
            place = self._place(inside)
            pairs = zip(lanes, self.sums, strict=True)
            return sequence([store(to, element(one, [place]), [kept]) for to, one in pairs])

        def written(inside: list[Expr], kept: Expr) -> Statement:
            return self._element(spot, inside, [element(one, [kept]) for one in lanes])

        lane, turn = variable("l", dtype), variable("l", dtype)
        vectors = at_rows(lane, lambda *row: loop(lane, tile.width, copied(*row), VECTORIZED))
        turns = loop(turn, self._lanes_inside(spot, first), at_rows(turn, written))
        return _unrolled(loops, allocated(lanes, sequence([vectors, turns])))

    def _lanes_inside(self, spot: Spot, first: Expr) -> Expr:
        """How many lanes of the vector that begins at a place of the tile are below the end."""
        tile, dtype = self._tile, dtype_of(first)
        width = const(tile.width, dtype)
        if tile.vector not in spot.ends:
            return width
        end, start = _number(spot.ends[tile.vector], dtype), add(spot.starts[tile.vector], first)
        return binary("min", width, binary("max", sub(end, start), const(0, dtype)))

    def _below(self, spot: Spot, axis: int, inside: Expr, body: Statement) -> Statement:
        """``if place < end: body``."""
        if axis not in spot.ends:
            return body
        place = _sum(spot.starts[axis], inside)
        return when(compare("lt", place, _number(spot.ends[axis], dtype_of(place))), body)

    def _element(
        self, spot: Spot, inside: Sequence[Expr], values: Sequence[Expr] | None = None
    ) -> Statement:
        place = self._place(inside)
        found = values or [element(one, [place]) for one in self.sums]
        places = [
            cast(dtype_of(axis.var), _sum(spot.starts[number], inside[number]))
            for number, axis in enumerate(self._axes)
        ]
        return sequence(self._stores(found, places))

    def _vectors(self, spot: Spot, rows: Sequence[Expr]) -> Statement:
        """The vectors of a row of the tile; of one that ends with the result the lanes inside.

        ``for l in vectorized(16): y[c + l] = acc[l]  →  for l in vectorized(16): t[l] = acc[l];
        for l in range(min(16, n - c)): y[c + l] = t[l]``: the accumulators stay in registers, since
        no lane of them is read by number.
        """
        tile = self._tile
        dtype = dtype_of(spot.starts[tile.vector])
        group, loops = _counted("w", tile.vectors, [], dtype)
        lane = variable("l", dtype)
        first = mul(group, const(tile.width, dtype))
        inside = list(rows)
        inside[tile.vector] = add(first, lane)
        whole = loop(lane, tile.width, self._element(spot, inside), VECTORIZED)
        if tile.vector not in spot.ends:
            return _unrolled(loops, whole)
        start = add(spot.starts[tile.vector], first)
        end, width = _number(spot.ends[tile.vector], dtype), const(tile.width, dtype)
        if isinstance(spot.ends[tile.vector], int) and spot.ends[tile.vector] % tile.width == 0:
            return _unrolled(loops, when(compare("lt", start, end), whole))
        identities = self._reduction.combiner.identity
        lanes = [local("lanes", [tile.width], dtype_of(one)) for one in identities]
        copied = variable("l", dtype)
        here = list(rows)
        here[tile.vector] = add(first, copied)
        place = self._place(here)
        copies = [
            store(to, element(one, [place]), [copied])
            for to, one in zip(lanes, self.sums, strict=True)
        ]
        values = [element(one, [lane]) for one in lanes]
        some = [
            loop(copied, tile.width, sequence(copies), VECTORIZED),
            loop(lane, self._lanes_inside(spot, first), self._element(spot, inside, values)),
        ]
        partly = allocated(lanes, sequence(some))
        return _unrolled(loops, branch(compare("le", add(start, width), end), whole, partly))


def _counted(
    name: str, count: int, loops: list[tuple[Var, int]], dtype: str = "int32"
) -> tuple[Expr, list[tuple[Var, int]]]:
    """A place below a number, and the loops with one more for it if it is not the only one."""
    if count == 1:
        return const(0, dtype), loops
    var = variable(name, dtype)
    return var, [*loops, (var, count)]


def _rows(
    axes: Iterable[int], counts: Mapping[int, int], inside: list[Expr]
) -> list[_Row]:
    """The loops over places of a tile along some axes, which become those of `inside`."""
    found = []
    for axis in axes:
        inside[axis], loops = _counted(f"w{axis}", counts[axis], [])
        found.append((axis, loops))
    return found


def _unrolled(loops: Iterable[tuple[Var, int]], body: Statement) -> Statement:
    for var, count in reversed(list(loops)):
        body = loop(var, count, body, UNROLLED)
    return body


def _sum(start: Expr, inside: Expr) -> Expr:
    return add(start, cast(dtype_of(start), inside))


def _number(value: Extent, dtype: str) -> Expr:
    return const(value, dtype) if isinstance(value, int) else value
