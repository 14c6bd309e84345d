"""Writes the loops of a nest with vectors, unrolled accumulators and a remainder.

A reduction keeps partial results, one for each lane of a round of vectors, and combines them after
the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....codegen.loop_nest import (
    VECTORIZED,
    Local,
    Places,
    Statement,
    bind,
    combination,
    counter,
    element,
    local,
    loop,
    nested,
    sequence,
    store,
)
from ....expr.build import add, const, variable
from ....expr.costly import is_expensive
from ....expr.nodes import Axis, Expr, Var, dtype_of, tensor_key
from ....expr.rewrite import depends_on, postorder, substituter
from ....graph.stage import Extent, Reduction, axis_range, outputs_of
from ...cost import LATENCY, MAX_COPIES, MAX_STRIDE
from ...fusion.merged_loops import merged
from ...fusion.row_items import BLOCK, SUM, Item, Nest, as_fold
from ...fusion.row_pieces import block_pieces, last_pieces, outer_pieces
from ...kernel import size_of
from ...nest.access import Interval
from .strip_mining import (
    Body,
    filled,
    halves,
    plain_loop,
    strips,
    vector_loop,
    vectors,
    vectors_of_strip,
)

Key = tuple[int, int]
_EVERYWHERE: Mapping[int, Interval] = {}


class NestWriter:
    """Writes nests and collects the buffers that they need.

    Parameters
    ----------
    places : Places
        The buffers of the tensors.
    sums : dict from tensor key to Local
        The buffers of sums over rows.
    """

    def __init__(self, places: Places, sums: dict[Key, Local]) -> None:
        self._places, self._sums = places, sums
        self.buffers: list[Local] = []

    def write(self, nest: Nest, rows: Sequence[Expr]) -> Statement:
        """The statements of a nest in a row."""
        nest = merged(nest)
        first = nest.items[0]
        if first.kind == BLOCK:
            return self._block([first], rows)
        if all(map(_fits_in_registers, nest.items)):
            return self._block([replace(item, kind=BLOCK) for item in nest.items], rows)
        if not first.loops:
            parts = [self._at(item, _table(item, rows, [])) for item in nest.items]
            return sequence([statement for part in parts for statement in part])
        folds = nest.folds
        _, extent = _bounds(first, first.loops[-1], rows, [axis.var for axis in first.loops[:-1]])
        nodes = len(postorder([source for item in nest.items for source in item.sources]))
        unroll = vectors_of_strip(extent, first.lanes, len(folds), nodes)
        width = unroll * first.lanes
        width = min(width, extent) if isinstance(extent, int) else width
        accumulators = {
            number: self._buffers(item, "lanes", width)
            for number, item in enumerate(nest.items)
            if item in folds
        }
        within = [
            self._pieces(items, places, rows, accumulators, unroll)
            for places, items in outer_pieces(nest.items)
        ]
        before, after = [], []
        for number, buffers in accumulators.items():
            before += _identity(nest.items[number], buffers, width)
            after += self._folded(nest.items[number], buffers, width, rows)
        return sequence([*before, *within, *after])

    def _pieces(
        self,
        items: Sequence[Item],
        places: Mapping[int, Interval],
        rows: Sequence[Expr],
        accumulators: Mapping[int, Sequence[Local]],
        unroll: int,
    ) -> Statement:
        """The loops of items at some places of the outer ones, with the last one in pieces without
        changing conditions.
        """
        first = items[0]
        values, loops = self._outer(first, rows, first.loops[:-1], places)
        low, extent = _bounds(first, first.loops[-1], rows, values)
        inner = []
        for begin, end, parts in last_pieces(items, low, extent):

            def body(position: Expr, lane: Expr, parts: Sequence[Item] = parts) -> list[Statement]:
                statements = []
                for number, item in enumerate(parts):
                    table = _table(item, rows, [*values, _plus(position, low)])
                    accumulator = accumulators.get(number)
                    if accumulator is None:
                        statements += self._at(item, table)
                    else:
                        statements += self._accumulated(item, accumulator, [lane], table)
                return statements

            plain = _interleaves(first) or any(item.guarded for item in parts)
            if plain and not accumulators:
                inner.append(plain_loop(first, begin, end, body))
            else:
                inner.append(vector_loop(parts, begin, end, unroll, body))
        return loops(sequence(inner))

    def _outer(
        self,
        item: Item,
        rows: Sequence[Expr],
        axes: Sequence[Axis],
        places: Mapping[int, Interval] = _EVERYWHERE,
    ) -> tuple[list[Expr], Callable[[Statement], Statement]]:
        """Values of outer axes, and the loops over them around a statement; some run over places
        from the first to the last only.
        """
        values: list[Expr] = []
        bounds: list[tuple[Var, Extent]] = []
        for number, axis in enumerate(axes):
            low, extent = _bounds(item, axis, rows, values)
            if number in places:
                low, extent = places[number][0], places[number][1] + 1 - places[number][0]
            var = counter(axis.var.name, extent)
            bounds.append((var, extent))
            values.append(_plus(var, low))

        def wrapped(body: Statement) -> Statement:
            body = nested(bounds, body)
            return body

        return values, wrapped

    def _at(self, item: Item, table: dict[Var, Expr]) -> list[Statement]:
        """The work of an item at one index of its loops."""
        rename = substituter(table)
        if item.reduction is None:
            value = self._places.read(rename(item.sources[0]))
            return [self._places.write(item.op.output(0), value, _indices(item, rename))]
        assert item.kind == SUM
        return self._accumulated(item, self._totals(item), _indices(item, rename), table)

    def _totals(self, item: Item) -> list[Local]:
        return [self._sums[tensor_key(tensor)] for tensor in outputs_of(item.op)]

    def _accumulated(
        self, item: Item, targets: Sequence[Local], indices: Sequence[Expr], table: dict[Var, Expr]
    ) -> list[Statement]:
        assert item.reduction is not None
        rename = substituter(table)
        values = [self._places.read(rename(source)) for source in item.sources]
        return combined(item.reduction, targets, indices, values)

    def _folded(
        self, item: Item, accumulators: Sequence[Local], width: int, rows: Sequence[Expr]
    ) -> list[Statement]:
        """Combine the partial results by halves, and store the result."""
        assert item.reduction is not None
        statements: list[Statement] = []
        while width > 1:
            half = (width + 1) // 2
            lane = counter("lane", half)
            others = [element(k, [add(lane, const(half, "int32"))]) for k in accumulators]
            step = sequence(combined(item.reduction, accumulators, [lane], others))
            statements.append(loop(lane, width - half, step, VECTORIZED))
            width = half
        indices = _indices(item, substituter(_table(item, rows, [], partial=True)))
        return statements + self._results(item, accumulators, const(0, "int32"), indices)

    def _block(self, items: Sequence[Item], rows: Sequence[Expr]) -> Statement:
        """``t[d] = ⊕_k f(d, k)``: a few vectors of results at a time, with the reduction outside.

        Results that are sums over the rows are added to those of the rows before.
        """
        first = items[0]
        if not first.straight:
            values, loops = self._outer(first, rows, first.spatial)
            return loops(self.write(Nest([as_fold(first)]), [*rows, *values]))
        values, loops = self._outer(first, rows, first.spatial[:-1])
        low, extent = _bounds(first, first.spatial[-1], rows, values)
        assert isinstance(extent, int)
        pieces = [
            self._block_piece(parts, rows, values, (_plus(begin, low), end - begin))
            for begin, end, parts in block_pieces(items, extent)
        ]
        return loops(sequence(pieces))

    def _block_piece(
        self,
        items: Sequence[Item],
        rows: Sequence[Expr],
        values: Sequence[Expr],
        bounds: tuple[Extent, int],
    ) -> Statement:
        """Results of `_block` from one on, as many as there are, along the last axis."""
        first, (low, extent) = items[0], bounds
        guarded = any(item.guarded for item in items)
        folds = sum(len(outputs_of(item.op)) for item in items)
        lanes, unroll = _strip_of_block(extent, 1 if guarded else first.lanes, folds)
        if any(map(_is_expensive, items)):
            unroll = 1  # the body hides the latency of its sums, and takes long to compile
        accumulators = [self._buffers(item, "part", unroll * lanes) for item in items]

        def piece(base: Expr, groups: int, width: int) -> Statement:
            def at(body: Body) -> Statement:
                return vectors(base, groups, width, body, VECTORIZED)

            reduced: list[Expr] = []
            inner: list[tuple[Var, Extent]] = []
            for axis in first.reduced:
                # a bound may follow the vectorised axis only where that has one lane
                here = [*values, _plus(base, low), *reduced]
                start, length = _bounds(first, axis, rows, here)
                var = counter(axis.var.name, length)
                inner.append((var, length))
                reduced.append(_plus(var, start))

            def accumulate(position: Expr, lane: Expr) -> list[Statement]:
                statements = []
                for item, targets in zip(items, accumulators, strict=True):
                    table = _table(item, rows, [*values, _plus(position, low)])
                    for axis, value in zip(item.reduced, reduced, strict=True):
                        table[axis.var] = value
                    statements += self._accumulated(item, targets, [lane], table)
                return statements

            def finish(position: Expr, lane: Expr) -> list[Statement]:
                statements = []
                for item, targets in zip(items, accumulators, strict=True):
                    rename = substituter(_table(item, rows, [*values, _plus(position, low)]))
                    statements += self._results(item, targets, lane, _indices(item, rename))
                return statements

            def begin(_: Expr, lane: Expr) -> list[Statement]:
                return [
                    store(target, identity, [lane])
                    for item, targets in zip(items, accumulators, strict=True)
                    for target, identity in zip(targets, _identities(item), strict=True)
                ]

            body = at(accumulate)
            body = nested(inner, body)
            return sequence([at(begin), body, at(finish)])

        dtype = dtype_of(first.spatial[-1].var)
        return strips(extent, lanes, unroll, dtype, piece)

    def _results(
        self, item: Item, accumulators: Sequence[Local], lane: Expr, indices: Sequence[Expr]
    ) -> list[Statement]:
        """Store accumulated results, or add them to the sums over the rows."""
        assert item.reduction is not None
        tensors = outputs_of(item.op)
        values = [element(accumulator, [lane]) for accumulator in accumulators]
        if tensor_key(tensors[0]) in self._sums:
            return combined(item.reduction, self._totals(item), indices, values)
        pairs = zip(tensors, values, strict=True)
        return [self._places.write(tensor, value, indices) for tensor, value in pairs]

    def _buffers(self, item: Item, name: str, width: int) -> list[Local]:
        buffers = [
            local(f"{item.op.name}_{name}", [width], dtype_of(tensor))
            for tensor in outputs_of(item.op)
        ]
        self.buffers += buffers
        return buffers


def _interleaves(item: Item) -> bool:
    """Whether the last loops are so short that LLVM writes them out, and interleaves vectors along
    the long loop before.
    """
    points = 1
    for axis in reversed(item.loops):
        extent = axis_range(axis)[1]
        if not isinstance(extent, int) or extent >= item.lanes:
            return 1 < points <= MAX_STRIDE
        points *= extent
    return False


def _fits_in_registers(item: Item) -> bool:
    """Whether a row adds several times to a few vectors of sums, in whole vectors."""
    if item.kind != SUM or not item.reduced or not item.spatial or item.guarded:
        return False
    low, extent = axis_range(item.spatial[-1])
    few = isinstance(extent, int) and low == 0 and extent <= LATENCY * item.lanes
    return few and size_of([axis_range(axis)[1] for axis in item.reduced]) > 1


def _strip_of_block(extent: int, lanes: int, folds: int) -> tuple[int, int]:
    """The lanes and the vectors of a strip of results: a whole row in one pass over the reduced
    axes, if there are registers for that.
    """
    even = next((n for n in halves(lanes)[:2] if extent % n == 0), min(lanes, extent))
    whole = extent // even
    if lanes > 1 and extent % even == 0 and whole * folds <= MAX_COPIES:
        return even, whole
    lanes = min(lanes, extent)
    return lanes, 1 if lanes == 1 else vectors_of_strip(extent, lanes, folds)


def _is_expensive(item: Item) -> bool:
    """Whether vectors of results take expensive functions each."""
    var = item.spatial[-1].var
    calls = filter(is_expensive, postorder(item.sources))
    return any(depends_on(node, [var]) for node in calls)


def _identities(item: Item) -> Sequence[Expr]:
    assert item.reduction is not None
    return item.reduction.combiner.identity


def _identity(item: Item, targets: Sequence[Local], width: int) -> list[Statement]:
    return [
        filled(target, value, [width], item.lanes)
        for target, value in zip(targets, _identities(item), strict=True)
    ]


def combined(
    reduction: Reduction,
    targets: Sequence[Local],
    indices: Sequence[Expr],
    values: Sequence[Expr],
) -> list[Statement]:
    """``targets[indices] = targets[indices] ⊕ values``, all components at once."""
    old = [element(target, indices) for target in targets]
    before, results = combination(reduction.combiner, old, values)
    if len(results) > 1:
        # a component may read those that are stored before it
        kept = [variable("component", dtype_of(result)) for result in results]
        before += [bind(var, result) for var, result in zip(kept, results, strict=True)]
        results = list(kept)
    after = [store(t, result, indices) for t, result in zip(targets, results, strict=True)]
    return before + after


def _table(
    item: Item, rows: Sequence[Expr], values: Sequence[Expr], partial: bool = False
) -> dict[Var, Expr]:
    """The values of an item's axes at an index of its loops."""
    table: dict[Var, Expr] = dict(zip(item.rows, rows, strict=True))
    table.update((var, const(0, dtype_of(var))) for var in item.still)
    if not partial:
        axes = item.spatial if item.kind == BLOCK else item.loops
        table.update(zip((axis.var for axis in axes), values, strict=True))
    return table


def _indices(item: Item, rename: Callable[[Expr], Expr]) -> list[Expr]:
    return [rename(axis.var) for axis in item.op.axis]


def _bounds(
    item: Item, axis: Axis, rows: Sequence[Expr], values: Sequence[Expr]
) -> tuple[Extent, Extent]:
    """The start and extent of an axis, which may depend on outer axes."""
    low, extent = axis_range(axis)
    axes = [*item.spatial, *item.reduced] if item.kind == BLOCK else item.loops
    table: dict[Var, Expr] = dict(zip(item.rows, rows, strict=True))
    table.update(zip((a.var for a in axes), values, strict=False))
    rename = substituter(table)
    return (
        low if isinstance(low, int) else rename(low),
        extent if isinstance(extent, int) else rename(extent),
    )


def _plus(value: Extent, low: Extent) -> Any:
    return value + low if not isinstance(low, int) or low else value
