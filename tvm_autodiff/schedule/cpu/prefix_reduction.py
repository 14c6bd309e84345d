"""Schedules prefix reductions, such as cumulative sums, with one step per element instead of a row.

Rows in memory are processed several at a time, each with its state in a register. Along any other
axis each row of memory is the previous one plus one more, in vectors; a maximum with its index has
states there, too. An epilogue is a second
function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...codegen.flat_axes import number_of_points
from ...codegen.loop_nest import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Places,
    Statement,
    allocated,
    bind,
    branch,
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
from ...codegen.passes.small_launches import estimated
from ...codegen.stages.primfunc import StageFunction, external_reads
from ...expr.build import add, cast, compare, const, mul, select, sub, variable
from ...expr.nodes import Expr, Var, binary, dtype_of
from ...expr.rewrite import substituter
from ...graph.stage import Extent, axis_range, outputs_of, reduction_of
from ..cost import LATENCY
from ..declined import Declined, other_kind
from ..kernel import Kernel, size_of
from ..machine import Machine
from ..nest.access import has_branches, unit_strides
from ..nest.in_range import is_safe, loops_of
from ..nest.reductions.prefix_reductions import PrefixReduction, is_number, prefix_reduction_of
from ..rule import Made, Rest
from .loops.parallel import threads_over
from .loops.strip_mining import halves, strip_start, strips, symbolic_strips, vectors


def prefix_reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a prefix reduction."""
    op = kernel.root
    found = prefix_reduction_of(op)
    if found is None:
        return other_kind("it is not a prefix reduction")
    if any(not is_number(axis_range(axis)[0], 0) for axis in op.axis):
        return Declined("an axis does not begin at 0")
    launch = _Writer(kernel, found, machine).launch()
    return [launch] if kernel.epilogue is None else [launch, Rest(Kernel(kernel.epilogue))]


class _Writer:
    """Writes the loops of one stage."""

    def __init__(self, kernel: Kernel, found: PrefixReduction, machine: Machine) -> None:
        op = kernel.root
        self.op, self.found, self.machine = op, found, machine
        self.inputs = external_reads([op])
        self.outputs = tuple(outputs_of(op))
        self.places, self.buffers = Places.of([*self.inputs, *self.outputs])
        self.extents = [axis_range(axis)[1] for axis in op.axis]
        self.counters = [counter(axis.var.name, axis_range(axis)[1]) for axis in op.axis]
        work = size_of(self.extents, machine.symbolic_size)
        self.threads = threads_over(self.extents, work, kernel.repetition, machine)

    def launch(self) -> StageFunction:
        """The function."""
        last = self.found.axis == len(self.extents) - 1
        pairs = len(self.found.values) > 1
        body = self._by_states() if last or pairs else self._row_by_row()
        symbolic = not all(isinstance(extent, int) for extent in self.extents)
        if symbolic and self.threads > 1:
            body = estimated(body, number_of_points(self.extents, "float64"))
        return StageFunction(function(self.buffers, body), tuple(self.inputs), self.outputs)

    def _by_states(self) -> Statement:
        """A state for each of several rows, or of several neighbours in a row of memory."""
        axis, last = self.found.axis, len(self.extents) - 1
        near = axis - 1 if axis == last else last
        loops = [
            loop for n, loop in enumerate(self._numbered()) if n != axis and (near < 0 or n != near)
        ]
        if near < 0:
            return self._outside(loops, self._states(1, None, None))
        together, dtype = self.extents[near], dtype_of(self.counters[near])
        count = _rows_at_a_time(together)
        block = counter("block", together)
        if isinstance(together, int):
            first = strip_start(block, count, together)
            body = self._states(count, near, first)
            return self._outside([*loops, (block, -(-together // count))], body)
        several = self._states(count, near, strip_start(block, count, together))
        single = counter("single", together)
        few = loop(single, together, self._states(1, near, single))
        number = const(count, dtype)
        body = branch(compare("ge", together, number), several, few)
        blocks = binary("floordiv", add(together, sub(number, const(1, dtype))), number)
        return self._outside([*loops, (block, blocks)], body)

    def _numbered(self) -> list[tuple[Var, Extent]]:
        return list(zip(self.counters, self.extents, strict=True))

    def _states(self, count: int, near: int | None, first: Expr | None) -> Statement:
        """All results of `count` neighbours along an axis from a place on, each with a state."""
        axis, length = self.found.axis, self.extents[self.found.axis]
        outputs = outputs_of(self.op)
        states = [local(f"states{n}", [count], dtype_of(t)) for n, t in enumerate(outputs)]
        several, step = counter("several", count), counter("step", length)
        indices: list[Expr] = list(self.counters)
        if near is not None and first is not None:
            indices[near] = add(first, cast(dtype_of(first), several))
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
            grown = when(compare("lt", step, self._last(step)), grown)
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
                loop(step, length, loop(several, count, sequence(here), UNROLLED)),
            ]
        )
        return allocated(states, rows)

    def _with_others(self, values: list[Expr], position: Expr) -> list[Expr]:
        """The values of a state together with the first of the elements that do not count."""
        if self.found.other is None:
            return values
        dtype = dtype_of(position)
        first: Expr = const(0, dtype)
        exist = compare("gt" if self.found.inclusive else "ge", position, first)
        if not self.found.backward:
            first = add(position, const(int(self.found.inclusive), dtype))
            exist = compare("le", first, self._last(position))
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
        axis, count = self.found.axis, self.extents[self.found.axis]
        inner, outer = self._numbered()[axis + 1 :], self._numbered()[:axis]
        _, width = inner.pop()
        few = size_of([extent for _, extent in outer], self.machine.symbolic_size) < self.threads
        pieces = 1
        if few and isinstance(width, int) and width % self.threads == 0:
            pieces = self.threads
        length = width // pieces if isinstance(width, int) else width
        piece, step = counter("piece", width), counter("step", count)

        def row(position: Expr, before: Expr | None) -> Statement:
            """The results at a position, from those before it if there are any."""

            def at(place: Expr) -> Statement:
                indices: list[Expr] = list(self.counters)
                indices[-1] = place
                if isinstance(length, int):
                    indices[-1] = add(mul(piece, const(length, dtype_of(piece))), place)
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

            return nested(inner, self._in_vectors(length, at))

        one, zero = const(1, dtype_of(step)), const(0, dtype_of(step))
        now = self._position(add(step, one))
        steps = count - 1 if isinstance(count, int) else sub(count, one)
        rest = loop(step, steps, row(now, self._position(step)))
        rows = sequence([row(self._position(zero), None), rest])
        if not isinstance(count, int):
            rows = when(compare("gt", count, zero), rows)
        return self._outside([(piece, pieces), *outer], rows)

    def _in_vectors(self, length: Extent, at: Callable[[Expr], Statement]) -> Statement:
        """A statement for each element of a piece of a row."""
        var = self.op.axis[-1].var
        lanes = self.machine.lanes(dtype_of(self.op.output(0)))
        if not unit_strides(self.op, var) or has_branches(list(self.found.values), var):
            place = counter("place", length)
            return loop(place, length, at(place))

        def group(base: Expr, groups: int, width: int) -> Statement:
            return vectors(base, groups, width, lambda place, _: [at(place)], VECTORIZED)

        if isinstance(length, int):
            return strips(length, lanes, 1, "int32", group)
        return symbolic_strips(length, dtype_of(length), halves(lanes), 1, group, at)

    def _outside(self, loops: Sequence[tuple[Var, Extent]], body: Statement) -> Statement:
        """Loops around a statement, with the first one that all threads can share outermost."""
        extents = [extent if isinstance(extent, int) else self.threads for _, extent in loops]
        shared = next((n for n, extent in enumerate(extents) if extent >= self.threads > 1), None)
        for number, (var, extent) in reversed(list(enumerate(loops))):
            if number != shared:
                body = loop(var, extent, body, SERIAL)
        return body if shared is None else loop(*loops[shared], body, PARALLEL)

    def _position(self, step: Expr) -> Expr:
        return sub(self._last(step), step) if self.found.backward else step

    def _last(self, like: Expr) -> Expr:
        """The last place of the axis that results accumulate along."""
        extent, dtype = self.extents[self.found.axis], dtype_of(like)
        if isinstance(extent, int):
            return const(extent - 1, dtype)
        return sub(cast(dtype, extent), const(1, dtype))

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


def _rows_at_a_time(together: Extent) -> int:
    """How many states hide the latency of an addition: of a symbolic number of rows as many as
    that takes, else a divisor if one is enough, as the last rows would be computed twice.
    """
    if not isinstance(together, int):
        return 2 * LATENCY
    exact = [count for count in (2 * LATENCY, LATENCY) if together % count == 0]
    return exact[0] if exact else next((n for n in (2 * LATENCY, LATENCY, 2) if n <= together), 1)
