"""The loops of a nest, written out: vectors, unrolled accumulators, what is left at the end.

In: a nest of items, the row it is in, where tensors lie. Out: statements. A row of n elements is
n // (U*L) rounds of U vectors of L lanes, then the vectors that are left, then one narrower vector;
a reduction keeps U*L partial results and combines them after the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...ir.build import add, const, mul, sub, variable
from ...ir.loop_nest import (
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Buffer,
    Places,
    Statement,
    bind,
    counter,
    element,
    local,
    loop,
    sequence,
    store,
)
from ...ir.nodes import Expr, Var, binary, dtype_of
from ...ir.rewrite import substituter
from ...ir.stage import Axis, Extent, axis_range, outputs_of, tensor_key
from .row_items import BLOCK, SUM, Item, Nest, as_fold, has_branches
from .segments import pieces

MAX_UNROLL = 4  #: vectors of partial results of a reduction

Key = tuple[int, int]
#: statements at a position of the innermost loop, which is lane number so and so of a round
Body = Callable[[Expr, Expr], Sequence[Statement]]


class NestWriter:
    """Writes nests and collects the buffers that they need.

    Parameters
    ----------
    places : Places
        Where tensors lie.
    sums : dict from tensor key to Buffer
        Where sums over rows are kept.
    """

    def __init__(self, places: Places, sums: dict[Key, Buffer]) -> None:
        self._places, self._sums = places, sums
        self.buffers: list[Buffer] = []

    def write(self, nest: Nest, rows: Sequence[Expr]) -> Statement:
        """The statements of a nest in a row."""
        first = nest.items[0]
        if first.kind == BLOCK:
            return self._block(first, rows)
        if not first.loops:
            parts = [self._at(item, _table(item, rows, [])) for item in nest.items]
            return sequence([statement for part in parts for statement in part])
        folds = nest.folds
        values, loops = self._outer(first, rows, first.loops[:-1])
        low, extent = _bounds(first, first.loops[-1], rows, values)
        unroll = _rounds(extent, first.lanes, len(folds))
        width = unroll * first.lanes
        width = min(width, extent) if isinstance(extent, int) else width
        keepers = {id(item): self._buffers(item, "lanes", width) for item in folds}

        inner = []
        for begin, end, items in _cut(nest.items, low, extent):

            def body(position: Expr, lane: Expr, items: Sequence[Item] = items) -> list[Statement]:
                statements = []
                for item, whole in zip(items, nest.items, strict=True):
                    table = _table(item, rows, [*values, _plus(position, low)])
                    keeper = keepers.get(id(whole))
                    if keeper is None:
                        statements += self._at(item, table)
                    else:
                        statements += self._accumulated(item, keeper, [lane], table)
                return statements

            if any(item.guarded for item in items) and not folds:
                inner.append(_plain(first, begin, end, body))
            else:
                inner.append(_vectors(items, begin, end, unroll, body))
        within = loops(sequence(inner))
        before = [part for item in folds for part in _identity(item, keepers[id(item)], width)]
        after = [
            part for item in folds for part in self._folded(item, keepers[id(item)], width, rows)
        ]
        return sequence([*before, within, *after])

    def _outer(
        self, item: Item, rows: Sequence[Expr], axes: Sequence[Axis]
    ) -> tuple[list[Expr], Callable[[Statement], Statement]]:
        """Values of outer axes, and the loops over them around a statement."""
        values: list[Expr] = []
        bounds: list[tuple[Var, Extent]] = []
        for axis in axes:
            low, extent = _bounds(item, axis, rows, values)
            var = counter(axis.var.name, extent)
            bounds.append((var, extent))
            values.append(_plus(var, low))

        def wrapped(body: Statement) -> Statement:
            for var, extent in reversed(bounds):
                body = loop(var, extent, body)
            return body

        return values, wrapped

    def _at(self, item: Item, table: dict[Var, Expr]) -> list[Statement]:
        """What an item does at one place of its loops."""
        rename = substituter(table)
        if item.reduction is None:
            value = self._places.read(rename(item.sources[0]))
            return [self._places.write(item.op.output(0), value, _indices(item, rename))]
        assert item.kind == SUM
        target = [self._sums[tensor_key(item.op.output(0))]]
        indices = [rename(axis.var) for axis in item.spatial]
        return self._accumulated(item, target, indices, table)

    def _accumulated(
        self, item: Item, targets: Sequence[Buffer], indices: Sequence[Expr], table: dict[Var, Expr]
    ) -> list[Statement]:
        assert item.reduction is not None
        rename = substituter(table)
        values = [self._places.read(rename(source)) for source in item.sources]
        return _combined(item, targets, indices, values)

    def _folded(
        self, item: Item, keepers: Sequence[Buffer], width: int, rows: Sequence[Expr]
    ) -> list[Statement]:
        """Combine the partial results by halves, and hand the result on."""
        statements: list[Statement] = []
        while width > 1:
            half = (width + 1) // 2
            lane = counter("lane", half)
            others = [element(k, [add(lane, const(half, "int32"))]) for k in keepers]
            step = sequence(_combined(item, keepers, [lane], others))
            statements.append(loop(lane, width - half, step, VECTORIZED))
            width = half
        values = [element(keeper, [const(0, "int32")]) for keeper in keepers]
        if item.kind == SUM:
            targets = [self._sums[tensor_key(item.op.output(0))]]
            return statements + _combined(item, targets, [], values)
        indices = _indices(item, substituter(_table(item, rows, [], partial=True)))
        for tensor, value in zip(outputs_of(item.op), values, strict=True):
            statements.append(self._places.write(tensor, value, indices))
        return statements

    def _block(self, item: Item, rows: Sequence[Expr]) -> Statement:
        """``t[d] = ⊕_k f(d, k)``: a few vectors of results at a time, the reduction outside."""
        assert item.reduction is not None
        [identity] = item.reduction.combiner.identity
        if not item.straight:
            values, loops = self._outer(item, rows, item.spatial)
            return loops(self.write(Nest([as_fold(item)]), [*rows, *values]))
        values, loops = self._outer(item, rows, item.spatial[:-1])
        low, extent = _bounds(item, item.spatial[-1], rows, values)
        assert isinstance(extent, int)
        lanes = 1 if item.guarded else min(item.lanes, extent)
        unroll = 1 if item.guarded else _rounds(extent, lanes, 1)
        [keeper] = self._buffers(item, "part", unroll * lanes)

        def piece(base: Expr, groups: int, width: int) -> Statement:
            def at(body: Body) -> Statement:
                return _group(base, groups, width, body, VECTORIZED)

            reduced: list[Expr] = []
            inner: list[tuple[Var, Extent]] = []
            for axis in item.reduced:
                # a bound may follow the vectorised axis only where that has one lane
                here = [*values, _plus(base, low), *reduced]
                start, length = _bounds(item, axis, rows, here)
                var = counter(axis.var.name, length)
                inner.append((var, length))
                reduced.append(_plus(var, start))

            def accumulate(position: Expr, lane: Expr) -> list[Statement]:
                table = _table(item, rows, [*values, _plus(position, low)])
                for axis, value in zip(item.reduced, reduced, strict=True):
                    table[axis.var] = value
                return self._accumulated(item, [keeper], [lane], table)

            def finish(position: Expr, lane: Expr) -> list[Statement]:
                rename = substituter(_table(item, rows, [*values, _plus(position, low)]))
                indices = [rename(axis.var) for axis in item.op.axis]
                value = element(keeper, [lane])
                return [self._places.write(item.op.output(0), value, indices)]

            body = at(accumulate)
            for var, length in reversed(inner):
                body = loop(var, length, body)
            start = at(lambda _, lane: [store(keeper, identity, [lane])])
            return sequence([start, body, at(finish)])

        dtype = str(item.spatial[-1].var.ty)
        return loops(_pieces(extent, lanes, unroll, dtype, piece))

    def _buffers(self, item: Item, name: str, width: int) -> list[Buffer]:
        buffers = [
            local(f"{item.op.name}_{name}", [width], dtype_of(tensor))
            for tensor in outputs_of(item.op)
        ]
        self.buffers += buffers
        return buffers


def filled(target: Buffer, value: Expr, shape: Sequence[int], lanes: int) -> Statement:
    """``target[...] = value``."""
    outer = [counter("i", extent) for extent in shape[:-1]]

    def body(position: Expr, _: Expr) -> list[Statement]:
        return [store(target, value, [*outer, position])]

    if not shape:
        return store(target, value, [])
    inner = _pieces(
        shape[-1],
        lanes,
        1,
        "int32",
        lambda base, groups, width: _group(base, groups, width, body, VECTORIZED),
    )
    for var, extent in zip(reversed(outer), reversed(shape[:-1]), strict=True):
        inner = loop(var, extent, inner)
    return inner


def _identity(item: Item, targets: Sequence[Buffer], width: int) -> list[Statement]:
    assert item.reduction is not None
    values = item.reduction.combiner.identity
    return [
        filled(target, value, [width], item.lanes)
        for target, value in zip(targets, values, strict=True)
    ]


def _combined(
    item: Item, targets: Sequence[Buffer], indices: Sequence[Expr], values: Sequence[Expr]
) -> list[Statement]:
    """``targets[indices] = targets[indices] ⊕ values``, all components at once."""
    assert item.reduction is not None
    old = [element(target, indices) for target in targets]
    results: Sequence[Expr] = item.reduction.combiner.apply(old, values)
    before: list[Statement] = []
    if len(results) > 1:
        # a component may read those that are stored before it
        kept = [variable("component", dtype_of(result)) for result in results]
        before = [bind(var, result) for var, result in zip(kept, results, strict=True)]
        results = kept
    after = [store(t, result, indices) for t, result in zip(targets, results, strict=True)]
    return before + after


def _table(
    item: Item, rows: Sequence[Expr], values: Sequence[Expr], partial: bool = False
) -> dict[Var, Expr]:
    """What the axes of an item are at a place of its loops."""
    table: dict[Var, Expr] = dict(zip(item.rows, rows, strict=True))
    if not partial:
        axes = item.spatial if item.kind == BLOCK else item.loops
        table.update(zip((axis.var for axis in axes), values, strict=True))
    return table


def _indices(item: Item, rename: Callable[[Expr], Expr]) -> list[Expr]:
    return [rename(axis.var) for axis in item.op.axis]


def _bounds(
    item: Item, axis: Axis, rows: Sequence[Expr], values: Sequence[Expr]
) -> tuple[Extent, Extent]:
    """Beginning and extent of an axis, which may follow the axes outside of it."""
    low, extent = axis_range(axis)
    axes = [*item.spatial, *item.reduced] if item.kind == BLOCK else item.loops
    table: dict[Var, Expr] = dict(zip(item.rows, rows, strict=True))
    table.update(zip((a.var for a in axes), values, strict=False))
    rename = substituter(table)
    return (
        low if isinstance(low, int) else rename(low),
        extent if isinstance(extent, int) else rename(extent),
    )


def _plus(value: Expr, low: Extent) -> Expr:
    return value + low if not isinstance(low, int) or low else value


def _rounds(extent: Extent, lanes: int, folds: int) -> int:
    """How many vectors a round has: as many as leave little of the row to what comes after."""
    if not folds:
        return 1
    most = max(1, MAX_UNROLL // folds) if folds < MAX_UNROLL else 1
    if not isinstance(extent, int):
        return most
    most = max(1, min(most, extent // lanes))
    return max(range(1, most + 1), key=lambda u: (extent // (u * lanes) * u, u))


def _cut(
    items: Sequence[Item], low: Extent, extent: Extent
) -> list[tuple[int, Extent, Sequence[Item]]]:
    """The last loop of a nest in pieces, in which no condition changes if that is possible."""
    if not isinstance(extent, int) or low != 0 or not any(item.guarded for item in items):
        return [(0, extent, items)]
    var = variable("place", str(items[0].loops[-1].var.ty))
    roots = [substituter({i.loops[-1].var: var})(source) for i in items for source in i.sources]
    found: list[tuple[int, Extent, Sequence[Item]]] = []
    for begin, end, resolved in pieces(roots, var, extent):
        rest = iter(resolved)
        here = []
        for item in items:
            last = item.loops[-1].var
            sources = tuple(substituter({var: last})(next(rest)) for _ in item.sources)
            guarded = not item.straight or has_branches(sources, last)
            here.append(replace(item, sources=sources, guarded=guarded))
        found.append((begin, end, here))
    return found


def _plain(item: Item, begin: int, end: Extent, body: Body) -> Statement:
    """A loop that is left to the compiler, branches and all."""
    extent = end - begin if isinstance(end, int) else end
    var = counter(item.loops[-1].var.name, extent)
    place = add(var, const(begin, dtype_of(var)))
    return loop(var, extent, sequence(body(place, const(0, "int32"))))


def _vectors(items: Sequence[Item], begin: int, end: Extent, unroll: int, body: Body) -> Statement:
    """A loop in vectors; where conditions are left, the compiler is asked to find them."""
    kind = SERIAL if any(item.guarded for item in items) else VECTORIZED
    item, extent = items[0], end
    dtype = str(item.loops[-1].var.ty)

    def group(base: Expr, groups: int, width: int) -> Statement:
        return _group(add(base, const(begin, dtype)), groups, width, body, kind)

    if isinstance(end, int):
        return _pieces(end - begin, item.lanes, unroll, dtype, group)
    length = const(unroll * item.lanes, dtype)
    trips = binary("floordiv", extent, length)
    trip, rest = counter("o", trips), counter("rest", extent)
    done = mul(trips, length)
    return sequence(
        [
            loop(trip, trips, group(mul(trip, length), unroll, item.lanes)),
            loop(rest, sub(extent, done), sequence(body(add(done, rest), const(0, "int32")))),
        ]
    )


def _pieces(
    extent: int,
    lanes: int,
    unroll: int,
    dtype: str,
    group: Callable[[Expr, int, int], Statement],
) -> Statement:
    """Rounds of vectors, the vectors that are left, and what is left of those."""
    length = unroll * lanes
    trips, left = divmod(extent, length)
    groups, rest = divmod(left, lanes)
    statements: list[Statement] = []
    if trips:
        trip = counter("o", trips)
        statements.append(loop(trip, trips, group(mul(trip, const(length, dtype)), unroll, lanes)))
    if groups:
        statements.append(group(const(trips * length, dtype), groups, lanes))
    if rest:
        statements.append(group(const(extent - rest, dtype), 1, rest))
    return sequence(statements)


def _group(base: Expr, groups: int, width: int, body: Body, kind: Any) -> Statement:
    """``groups`` vectors of ``width`` elements."""
    dtype = dtype_of(base)
    group, lane = counter("u", groups), counter("l", width)

    def at(number: Expr) -> Statement:
        start = mul(number, const(width, "int32"))
        inside = add(start, lane)
        position = add(base, inside if dtype == "int32" else inside.astype(dtype))
        return loop(lane, width, sequence(body(position, inside)), kind)

    if groups == 1:
        return at(const(0, "int32"))
    return loop(group, groups, at(group), UNROLLED)
