"""Schedules prefix reductions, such as cumulative sums, with one step per element instead of a row.

Rows in memory are processed several at a time, each with its state in a register. Along any other
axis each row of memory is the previous one plus one more, in vectors; a maximum with its index has
states there, too. An epilogue is a second
function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...codegen.loop_nest import (
    PARALLEL,
    SERIAL,
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
    local,
    loop,
    nested,
    sequence,
    store,
    when,
)
from ...codegen.stages.primfunc import StageFunction, external_reads
from ...expr.build import add, cast, compare, const, mul, select, sub, variable
from ...expr.nodes import Expr, Var, dtype_of
from ...expr.rewrite import substituter
from ...graph.stage import Operation, axis_range, outputs_of, reduction_of
from ..cost import LATENCY
from ..declined import Declined, other_kind
from ..kernel import Kernel, size_of
from ..machine import Machine
from ..nest.access import has_branches, unit_strides
from ..nest.in_range import is_safe, loops_of
from ..nest.prefix_reductions import PrefixReduction, prefix_reduction_of
from ..rule import Made, Rest
from .loops.strip_mining import strips, vectors


def prefix_reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a prefix reduction."""
    op = kernel.root
    found = prefix_reduction_of(op)
    if found is None:
        return other_kind("it is not a prefix reduction")
    if any(not isinstance(axis_range(axis)[1], int) for axis in op.axis):
        return Declined("an extent of its output is symbolic")
    if any(axis_range(axis)[0] != 0 for axis in op.axis):
        return Declined("an axis does not begin at 0")
    launch = _Writer(op, found, machine).launch()
    return [launch] if kernel.epilogue is None else [launch, Rest(Kernel(kernel.epilogue))]


class _Writer:
    """Writes the loops of one stage."""

    def __init__(self, op: Operation, found: PrefixReduction, machine: Machine) -> None:
        self.op, self.found, self.machine = op, found, machine
        self.inputs = external_reads([op])
        self.outputs = tuple(outputs_of(op))
        self.places, self.buffers = Places.of([*self.inputs, *self.outputs])
        self.extents = [int(axis_range(axis)[1]) for axis in op.axis]
        self.counters = [counter(axis.var.name, axis_range(axis)[1]) for axis in op.axis]
        self.threads = machine.threads_for(size_of(self.extents))

    def launch(self) -> StageFunction:
        """The function."""
        last = self.found.axis == len(self.extents) - 1
        pairs = len(self.found.values) > 1
        body = self._by_states() if last or pairs else self._row_by_row()
        return StageFunction(function(self.buffers, body), tuple(self.inputs), self.outputs)

    def _by_states(self) -> Statement:
        """A state for each of several rows, or of several neighbours in a row of memory."""
        axis = self.found.axis
        near = axis - 1 if axis == len(self.extents) - 1 else len(self.extents) - 1
        extents = [extent for place, extent in enumerate(self.extents) if place != axis]
        together = self.extents[near] if near >= 0 else 1
        count = next(n for n in (2 * LATENCY, LATENCY, 2, 1) if together % n == 0)
        outputs = outputs_of(self.op)
        states = [local(f"states{n}", [count], dtype_of(t)) for n, t in enumerate(outputs)]
        several, step = counter("several", count), counter("step", self.extents[axis])
        indices: list[Expr] = list(self.counters)
        if near >= 0:
            indices[near] = add(mul(indices[near], const(count, "int32")), several)
            extents[near if near < axis else near - 1] //= count
        position = self._position(step)
        indices[axis] = position
        old = [element(state, [several]) for state in states]
        new = self._combined(old, self._values(position, indices))
        # each of the new values is by all of the old ones
        fresh = [variable(f"new{n}", dtype_of(value)) for n, value in enumerate(new)]
        pairs = list(zip(fresh, new, states, strict=True))
        grown = sequence(
            [
                *(bind(var, value) for var, value, _ in pairs),
                *(store(state, var, [several]) for var, _, state in pairs),
            ]
        )
        if not self._may_read_last():
            last = const(self.extents[axis] - 1, dtype_of(step))
            grown = when(compare("lt", step, last), grown)
        results = self._with_others(old, position)
        kept = sequence(
            [
                self.places.write(output, value, indices)
                for output, value in zip(outputs, results, strict=True)
            ]
        )
        here = [grown, kept] if self.found.inclusive else [kept, grown]
        begin = sequence(
            [
                store(state, identity, [several])
                for state, identity in zip(states, self._identities(), strict=True)
            ]
        )
        rows = sequence(
            [
                loop(several, count, begin, UNROLLED),
                loop(
                    step,
                    self.extents[axis],
                    loop(several, count, sequence(here), UNROLLED),
                ),
            ]
        )
        counters = [var for place, var in enumerate(self.counters) if place != axis]
        return self._outside(list(zip(counters, extents, strict=True)), states, rows)

    def _with_others(self, values: list[Expr], position: Expr) -> list[Expr]:
        """The values of a state together with the first of the elements that do not count."""
        if self.found.other is None:
            return values
        dtype = dtype_of(position)
        first: Expr = const(0, dtype)
        exist = compare("gt" if self.found.inclusive else "ge", position, first)
        if not self.found.backward:
            first = add(position, const(int(self.found.inclusive), dtype))
            exist = compare("lt", first, const(self.extents[self.found.axis], dtype))
        place = cast(dtype_of(values[1]), first)
        others = self._combined(values, [self.found.other, place])
        return [select(exist, a, b) for a, b in zip(others, values, strict=True)]

    def _may_read_last(self) -> bool:
        """Whether the last element may be read: no result needs it if each has only those before
        it.
        """
        found = reduction_of(self.op)
        assert found is not None
        axes = [*self.op.axis, *found.axes]
        return self.found.inclusive or is_safe(list(self.found.values), loops_of(axes))

    def _row_by_row(self) -> Statement:
        """Each row of memory from the one before."""
        axis = self.found.axis
        inner = list(zip(self.counters[axis + 1 :], self.extents[axis + 1 :], strict=True))
        outer = list(zip(self.counters[:axis], self.extents[:axis], strict=True))
        _, width = inner.pop()
        few = size_of([extent for _, extent in outer]) < self.threads
        pieces = self.threads if few and width % self.threads == 0 else 1
        piece = counter("piece", pieces)
        length = width // pieces
        step = counter("step", self.extents[axis])

        def row(position: Expr, before: Expr | None) -> Statement:
            """The results at a position, from those before it if there are any."""

            def at(place: Expr) -> Statement:
                indices: list[Expr] = list(self.counters)
                indices[-1] = add(mul(piece, const(length, "int32")), place)
                indices[axis] = position
                result = self.op.output(0)
                [value] = self._identities()
                if before is not None:
                    behind = [*indices[:axis], before, *indices[axis + 1 :]]
                    value = element(self.buffers[-1], behind)
                newest = position if self.found.inclusive else before
                if newest is not None:
                    [value] = self._combined([value], self._values(newest, indices))
                return self.places.write(result, value, indices)

            body = self._in_vectors(length, at)
            body = nested(inner, body)
            return body

        now = self._position(add(step, const(1, "int32")))
        rest = loop(step, self.extents[axis] - 1, row(now, self._position(step)))
        rows = sequence([row(self._position(const(0, "int32")), None), rest])
        return self._outside([(piece, pieces), *outer], [], rows)

    def _in_vectors(self, length: int, at: Callable[[Expr], Statement]) -> Statement:
        """A statement for each element of a piece of a row."""
        var = self.op.axis[-1].var
        lanes = self.machine.lanes(dtype_of(self.op.output(0)))
        if not unit_strides(self.op, var) or has_branches(list(self.found.values), var):
            place = counter("place", length)
            return loop(place, length, at(place))
        return strips(
            length,
            lanes,
            1,
            "int32",
            lambda base, groups, width: vectors(
                base, groups, width, lambda place, _: [at(place)], VECTORIZED
            ),
        )

    def _outside(
        self, loops: Sequence[tuple[Var, int]], kept: Sequence[Local], body: Statement
    ) -> Statement:
        """Loops around a statement, with the first one that all threads can share outermost."""
        shared = next((n for n, (_, e) in enumerate(loops) if e >= self.threads > 1), None)
        for number, (var, extent) in reversed(list(enumerate(loops))):
            if number != shared:
                body = loop(var, extent, body, SERIAL)
        body = allocated(kept, body)
        return body if shared is None else loop(*loops[shared], body, PARALLEL)

    def _position(self, step: Expr) -> Expr:
        extent = self.extents[self.found.axis]
        return sub(const(extent - 1, dtype_of(step)), step) if self.found.backward else step

    def _identities(self) -> list[Expr]:
        found = reduction_of(self.op)
        assert found is not None
        return list(found.combiner.identity)

    def _combined(self, left: Sequence[Expr], right: Sequence[Expr]) -> list[Expr]:
        found = reduction_of(self.op)
        assert found is not None
        return list(found.combiner.apply(left, right))

    def _values(self, position: Expr, indices: Sequence[Expr]) -> list[Expr]:
        found = reduction_of(self.op)
        assert found is not None
        table: dict[Var, Expr] = {
            axis.var: cast(dtype_of(axis.var), index)
            for axis, index in zip(self.op.axis, indices, strict=True)
        }
        [summed] = found.axes
        table[summed.var] = cast(dtype_of(summed.var), position)
        return [self.places.read(substituter(table)(value)) for value in self.found.values]
