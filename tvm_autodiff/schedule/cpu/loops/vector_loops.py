"""Writes the loops of a nest with vectors, unrolled accumulators and a remainder.

A reduction keeps partial results, one for each lane of a round of vectors, and combines them after
the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

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
from ....expr.nodes import Axis, Expr, Var, dtype_of, tensor_key
from ....expr.rewrite import postorder, substituter
from ....graph.stage import Extent, Reduction, axis_range, outputs_of
from ...cost import MAX_COPIES
from ...fusion.row_items import BLOCK, SUM, Item, Nest, as_fold, is_cut
from ...nest.index_set_splitting import split
from .merged_loops import merged
from .strip_mining import Body, filled, plain_loop, strips, vector_loop, vectors, vectors_of_strip

Key = tuple[int, int]


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
            return self._block(first, rows)
        if not first.loops:
            parts = [self._at(item, _table(item, rows, [])) for item in nest.items]
            return sequence([statement for part in parts for statement in part])
        folds = nest.folds
        values, loops = self._outer(first, rows, first.loops[:-1])
        low, extent = _bounds(first, first.loops[-1], rows, values)
        nodes = len(postorder([source for item in nest.items for source in item.sources]))
        unroll = vectors_of_strip(extent, first.lanes, len(folds), nodes)
        width = unroll * first.lanes
        width = min(width, extent) if isinstance(extent, int) else width
        accumulators = {id(item): self._buffers(item, "lanes", width) for item in folds}

        inner = []
        for begin, end, items in _cut(nest.items, low, extent):

            def body(position: Expr, lane: Expr, items: Sequence[Item] = items) -> list[Statement]:
                statements = []
                for item, whole in zip(items, nest.items, strict=True):
                    table = _table(item, rows, [*values, _plus(position, low)])
                    accumulator = accumulators.get(id(whole))
                    if accumulator is None:
                        statements += self._at(item, table)
                    else:
                        statements += self._accumulated(item, accumulator, [lane], table)
                return statements

            if any(item.guarded for item in items) and not folds:
                inner.append(plain_loop(first, begin, end, body))
            else:
                inner.append(vector_loop(items, begin, end, unroll, body))
        within = loops(sequence(inner))
        before = [part for item in folds for part in _identity(item, accumulators[id(item)], width)]
        after = [
            part
            for item in folds
            for part in self._folded(item, accumulators[id(item)], width, rows)
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
        values = [element(accumulator, [const(0, "int32")]) for accumulator in accumulators]
        indices = _indices(item, substituter(_table(item, rows, [], partial=True)))
        if item.kind == SUM:
            return statements + combined(item.reduction, self._totals(item), indices, values)
        for tensor, value in zip(outputs_of(item.op), values, strict=True):
            statements.append(self._places.write(tensor, value, indices))
        return statements

    def _block(self, item: Item, rows: Sequence[Expr]) -> Statement:
        """``t[d] = ⊕_k f(d, k)``: a few vectors of results at a time, with the reduction outside.
        """
        assert item.reduction is not None
        if not item.straight:
            values, loops = self._outer(item, rows, item.spatial)
            return loops(self.write(Nest([as_fold(item)]), [*rows, *values]))
        values, loops = self._outer(item, rows, item.spatial[:-1])
        low, extent = _bounds(item, item.spatial[-1], rows, values)
        assert isinstance(extent, int)
        lanes = 1 if item.guarded else min(item.lanes, extent)
        identities = item.reduction.combiner.identity
        unroll = 1 if item.guarded else vectors_of_strip(extent, lanes, len(identities))
        accumulators = self._buffers(item, "part", unroll * lanes)

        def piece(base: Expr, groups: int, width: int) -> Statement:
            def at(body: Body) -> Statement:
                return vectors(base, groups, width, body, VECTORIZED)

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
                return self._accumulated(item, accumulators, [lane], table)

            def finish(position: Expr, lane: Expr) -> list[Statement]:
                rename = substituter(_table(item, rows, [*values, _plus(position, low)]))
                indices = [rename(axis.var) for axis in item.op.axis]
                return [
                    self._places.write(tensor, element(accumulator, [lane]), indices)
                    for tensor, accumulator in zip(outputs_of(item.op), accumulators, strict=True)
                ]

            def begin(_: Expr, lane: Expr) -> list[Statement]:
                pairs = zip(accumulators, identities, strict=True)
                return [store(accumulator, identity, [lane]) for accumulator, identity in pairs]

            body = at(accumulate)
            body = nested(inner, body)
            return sequence([at(begin), body, at(finish)])

        dtype = dtype_of(item.spatial[-1].var)
        return loops(strips(extent, lanes, unroll, dtype, piece))

    def _buffers(self, item: Item, name: str, width: int) -> list[Local]:
        buffers = [
            local(f"{item.op.name}_{name}", [width], dtype_of(tensor))
            for tensor in outputs_of(item.op)
        ]
        self.buffers += buffers
        return buffers


def _identity(item: Item, targets: Sequence[Local], width: int) -> list[Statement]:
    assert item.reduction is not None
    values = item.reduction.combiner.identity
    return [
        filled(target, value, [width], item.lanes)
        for target, value in zip(targets, values, strict=True)
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


def _plus(value: Expr, low: Extent) -> Expr:
    return value + low if not isinstance(low, int) or low else value


def _cut(
    items: Sequence[Item], low: Extent, extent: Extent
) -> list[tuple[int, Extent, Sequence[Item]]]:
    """The last loop of a nest in pieces without changing conditions, if possible."""
    if not isinstance(extent, int) or low != 0 or not any(item.guarded for item in items):
        return [(0, extent, items)]
    var = variable("place", dtype_of(items[0].loops[-1].var))
    roots = [substituter({i.loops[-1].var: var})(source) for i in items for source in i.sources]
    found: list[tuple[int, Extent, Sequence[Item]]] = []
    for first, final, resolved in split(roots, var, extent, MAX_COPIES):
        rest = iter(resolved)
        here = []
        for item in items:
            last = item.loops[-1].var
            sources = tuple(substituter({var: last})(next(rest)) for _ in item.sources)
            guarded = not item.straight or is_cut(sources, last)
            here.append(replace(item, sources=sources, guarded=guarded))
        found.append((first, final + 1, here))
    return found
