"""Reductions along columns: a few vectors of results along an output axis stay in registers while
everything is reduced into them.

A literal axis is cut into strips of equal width, the last of which overlaps the one before. On the
longest piece of it where every condition and clamp is decided for all that is reduced, there are no
conditions. At the borders, each point of the reduction is combined with the elements for which its
conditions hold.

    ``y[j] = Σ_{k<20} if k <= j then x[j - k] else 0, j < 99``  →
    ``for k: for k <= j < 19: acc[j] += x[j - k];
    acc[c] = Σ_k x[c + start - k], c < 48, start = min(48*s + 19, 51)``

A symbolic axis has whole strips, then single vectors. Axes shorter than a vector have shorter ones.
Of few results there are several sums each, whose terms alternate: no addition waits for another.

    ``y[j] = ⊕_k f(x[k, j]), j < n  →  acc[c] = ⊕_k f(x[k, 64*s + c]), c < 64, s < n//64;
    then c < 16 from min(n - n%64 + 16*s, n - 16) on, for each s < ceil((n%64)/16)``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....codegen.flat_axes import number_of_points
from ....codegen.loop_nest import (
    UNROLLED,
    VECTORIZED,
    Local,
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
    sequence,
    store,
    when,
)
from ....codegen.passes.small_launches import estimated
from ....codegen.stages.primfunc import StageFunction, external_reads
from ....expr.build import add, all_of, cast, compare, const, mul, sub, variable
from ....expr.nodes import (
    Axis,
    Expr,
    Var,
    binary,
    dtype_of,
    is_const,
)
from ....expr.rewrite import depends_on, substituter
from ....graph.sizes.nonnegative import nonnegative
from ....graph.stage import (
    Extent,
    axis_range,
    loop_axes,
)
from ...cost import LATENCY, MIN_LANES
from ...kernel import Kernel
from ...machine import Machine
from ...nest.access import Interval
from ...nest.axis_bounds import bound_of
from ...nest.reductions.commuting import commutes
from .column_axis import Columns, part_columns, single_columns
from .parallel import shared_loops, threads_of
from .results import stored
from .strip_mining import Body, strip_start
from .vector_loops import combined


def columns(found: Columns, machine: Machine) -> StageFunction:
    """The function of a kernel that reduces, with vectors along its last output axis."""
    return _Writer(found, machine).function()


def single_results(kernel: Kernel, machine: Machine) -> StageFunction:
    """The function of a kernel that reduces one result after the other."""
    return _Writer(single_columns(kernel), machine).function()


def vectors_of_parts(kernel: Kernel, machine: Machine) -> StageFunction:
    """The function of a kernel whose first output axis, of literal extent, has vectors.

    Its reads need not be contiguous, but have no branches along that axis.
    """
    return _Writer(part_columns(kernel), machine).function()


#: the first place of vector number so and so
_First = Callable[[Expr], Expr]
_Loops = list[tuple[Var, Extent]]


class _Writer:
    """Writes the function."""

    def __init__(self, columns: Columns, machine: Machine) -> None:
        self._columns, self._machine = columns, machine
        kernel = columns.kernel
        self._inputs = external_reads(kernel.ops)
        self._places, self._buffers = Places.of([*self._inputs, *kernel.outputs])
        self._lanes = machine.lanes(*kernel.dtypes)
        # vectors of a strip: no component of any leaves the registers
        self._most = max(1, min(LATENCY, machine.accumulators // len(kernel.dtypes)))
        others = [axis for n, axis in enumerate(kernel.root.axis) if n != columns.along]
        self._table: dict[Var, Expr] = {axis.var: const(0, dtype_of(axis.var)) for axis in others}
        self._outer: _Loops = []
        for axis in others if not columns.merged else ():
            var = counter(axis.var.name, axis_range(axis)[1])
            self._table[axis.var] = cast(dtype_of(axis.var), var)
            self._outer.append((var, axis_range(axis)[1]))
        self._overlap = False  # whether some results are written twice
        self._reduced: list[tuple[Var, Var, Extent]] = []
        for axis in columns.reduction.axes:
            extent = axis_range(axis)[1]
            var = counter(axis.var.name, extent)
            self._reduced.append((axis.var, var, extent))
            self._table[axis.var] = self._along_axis(axis, var)

    def function(self) -> StageFunction:
        """The loops over all results, shared by the threads."""
        kernel = self._columns.kernel
        threads = threads_of(kernel, self._machine)
        inner, body = self._strips()
        borders = [self._border(first, last) for first, last in self._borders() if first <= last]
        loops = [*self._outer, *inner]
        if borders:
            alone = 1 if self._outer else threads
            body = sequence([shared_loops(inner, body, alone), *borders])
            loops = self._outer
        body = shared_loops(loops, body, threads if loops else 1)
        extents = [axis_range(axis)[1] for axis in loop_axes(kernel.root)]
        if threads > 1 and not all(isinstance(extent, int) for extent in extents):
            # half a vector in a cycle, as in fused rows
            lanes = 1 if self._columns.along is None else self._lanes
            work = mul(number_of_points(extents, "float64"), const(2 / lanes, "float64"))
            body = estimated(body, work)
        func = function(self._buffers, body, once=not self._overlap)
        return StageFunction(func, tuple(self._inputs), tuple(kernel.outputs))

    def _strips(self) -> tuple[_Loops, Statement]:
        """The loops over strips, and the body of these."""
        columns = self._columns
        if columns.along is None:
            return [], self._strip(lambda number: number, 1, 1)
        if columns.piece is None:
            return self._symbolic_strips(axis_range(columns.kernel.root.axis[-1])[1])
        low, high = columns.piece
        count, lanes = high - low + 1, self._lanes
        while lanes > count:
            lanes //= 2
        vectors = -(-count // lanes)
        strips = -(-vectors // self._most)
        if strips == 1:
            self._overlap = count % lanes != 0
            first = lambda number: strip_start(number, lanes, high + 1, low)  # noqa: E731
            return [], self._strip(first, vectors, lanes)
        groups = -(-vectors // strips)
        self._overlap = count % (groups * lanes) != 0
        trip, start = counter("strip", high + 1), counter("start", high + 1)
        begin = bind(start, strip_start(trip, groups * lanes, high + 1, low))
        return [(trip, strips)], sequence([begin, self._strip_at(start, groups, lanes)])

    def _symbolic_strips(self, extent: Expr) -> tuple[_Loops, Statement]:
        """Whole strips and, as the last one, what remains."""
        dtype, lanes = dtype_of(extent), self._lanes
        self._overlap = True

        def number(value: int) -> Expr:
            return const(value, dtype)

        width = self._most * lanes
        count = binary("floordiv", extent, number(width))
        strips = counter("strip", extent)

        def overlapping(done: Expr, width: int) -> Statement:
            left = add(sub(extent, done), number(width - 1))
            trips = binary("floordiv", left, number(width))
            trip, start = counter("strip", trips), variable("start", dtype)
            place = bind(start, strip_start(trip, width, extent, done))
            return loop(trip, trips, sequence([place, self._strip_at(start, 1, width)]))

        done = sub(extent, binary("floormod", extent, number(width)))
        one = counter("one", extent)
        rest = loop(one, extent, self._strip_at(one, 1, 1))
        for narrow, begin in ((MIN_LANES, number(0)), (lanes, done)):
            if narrow <= lanes:
                fits = compare("ge", extent, number(narrow))
                rest = branch(fits, overlapping(begin, narrow), rest)
        whole = self._strip_at(mul(strips, number(width)), self._most, lanes)
        body = branch(compare("lt", strips, count), whole, rest)
        return [(strips, add(count, number(1)))], body

    def _strip_at(self, start: Expr, groups: int, lanes: int) -> Statement:
        """Neighbouring vectors from a place on."""
        dtype = dtype_of(start)
        first = lambda number: add(start, cast(dtype, mul(number, _number(lanes, "int32"))))  # noqa: E731
        return self._strip(first, groups, lanes)

    def _strip(self, first: _First, groups: int, lanes: int) -> Statement:
        """The results of some vectors: reduced, then finished and written."""
        columns = self._columns
        copies = self._copies(groups)
        width = groups * lanes
        sums = self._accumulators(copies * width)

        def each(body: Body) -> Statement:
            group: Expr = counter("u", groups) if groups > 1 else const(0, "int32")
            lane, start = counter("l", lanes), first(group)
            place = add(start, cast(dtype_of(start), lane))
            inside = add(mul(group, const(lanes, "int32")), lane)
            vector = loop(lane, lanes, sequence(body(place, inside)), VECTORIZED)
            return vector if groups == 1 else loop(group, groups, vector, UNROLLED)

        def added(place: Expr, lane: Expr, last: Var | None = None) -> list[Statement]:
            values = self._at(columns.inside.values, place, last)
            return combined(columns.reduction, sums, [lane], values)

        def cleared(_: Expr, lane: Expr) -> list[Statement]:
            return self._cleared(sums, lane)

        end = each(lambda place, lane: self._finished(sums, place, lane))
        if copies == 1:
            body = self._loops(each(added), columns.inside.guards)
            return allocated(sums, sequence([each(cleared), body, end]))

        def in_copy(copy: Expr, body: Body) -> Statement:
            begin = mul(copy, const(width, "int32"))
            return each(lambda place, lane: body(place, add(begin, lane)))

        def joined(copy: Expr, lane: Expr) -> list[Statement]:
            parts = [element(one, [add(mul(copy, const(width, "int32")), lane)]) for one in sums]
            return combined(columns.reduction, sums, [lane], parts)

        def turn(copy: Expr, last: Var) -> Statement:
            return in_copy(copy, lambda place, lane: added(place, lane, last))

        copy, other = counter("copy", copies), counter("copy", copies)
        begin = loop(copy, copies, in_copy(copy, cleared), UNROLLED)
        next_one = add(other, const(1, "int32"))
        join = loop(other, copies - 1, each(lambda _, lane: joined(next_one, lane)), UNROLLED)
        return allocated(sums, sequence([begin, self._in_turns(copies, turn), join, end]))

    def _copies(self, groups: int) -> int:
        """How many sums of each result are under way at a time, so that no addition waits for the
        one before.
        """
        columns = self._columns
        extent = self._reduced[-1][2]
        copies = self._most // groups
        if columns.inside.guards or not commutes(columns.reduction.combiner):
            return 1
        return copies if not isinstance(extent, int) or extent >= LATENCY * copies else 1

    def _in_turns(self, copies: int, body: Callable[[Expr, Var], Statement]) -> Statement:
        """``for k: a += x[k]  →  for o: a0 += x[2*o]; a1 += x[2*o + 1]``, then what is left."""
        *others, (_, var, extent) = self._reduced
        dtype = dtype_of(var)
        if isinstance(extent, int):
            whole, left = map(const, divmod(extent, copies), (dtype, dtype))
        else:  # a sum of a negative number of terms has none
            count = nonnegative(extent)
            whole, left = (
                binary(name, count, const(copies, dtype)) for name in ("floordiv", "floormod")
            )

        def at(start: Expr, step: Expr, copy: Expr) -> Statement:
            last = variable(var.name, dtype)
            return sequence([bind(last, add(start, cast(dtype, step))), body(copy, last)])

        number, copy = counter(var.name, extent), counter("copy", copies)
        rest, begin = counter("rest", extent), const(copies, dtype)
        inner = loop(copy, copies, at(mul(number, begin), copy, copy), UNROLLED)
        statements = [loop(number, whole, inner)]
        if not is_const(left, 0):
            statements.append(loop(rest, left, at(mul(whole, begin), rest, const(0, "int32"))))
        made = sequence(statements)
        for _, outer, count in reversed(others):
            made = loop(outer, count, made)
        return made

    def _borders(self) -> list[Interval]:
        """The first and last elements beside the piece, which may be none."""
        columns = self._columns
        if columns.along is None or columns.piece is None or columns.merged:
            return []
        low, extent = axis_range(columns.kernel.root.axis[columns.along])
        return [(low, columns.piece[0] - 1), (columns.piece[1] + 1, low + extent - 1)]

    def _border(self, first: int, last: int) -> Statement:
        """The results from one element to another, under conditions."""
        columns = self._columns
        root = columns.kernel.root
        along, variables = root.axis[-1].var, [axis.var for axis in loop_axes(root)]
        count = last - first + 1
        sums = self._accumulators(count)
        bounds = [bound_of(guard, along, variables) for guard in columns.body.guards]
        pairs = list(zip(columns.body.guards, bounds, strict=True))
        lower, upper = const(first, "int32"), const(last + 1, "int32")
        for one in (bound for bound in bounds if bound is not None):
            [value] = self._at([one.value], None)
            value = cast("int32", value)
            lower = binary("max", lower, value) if one.below else lower
            upper = upper if one.below else binary("min", upper, value)
        place, begin = counter("place", last + 1), variable("begin", "int32")
        step = counter("step", count)
        lane = sub(place, const(first, "int32"))
        inner = [g for g, bound in pairs if bound is None and depends_on(g, [along])]
        body = sequence(
            combined(columns.reduction, sums, [lane], self._at(columns.body.values, place))
        )
        if inner:
            body = when(all_of(self._at(inner, place)), body)
        body = sequence([bind(place, add(begin, step)), body])
        body = sequence([bind(begin, lower), loop(step, sub(upper, begin), body)])
        outer = [g for g, bound in pairs if bound is None and g not in inner]
        body = self._loops(body, outer)
        each = counter("place", count)
        at = add(each, const(first, "int32"))
        cleared = loop(each, count, sequence(self._cleared(sums, each)))
        written = loop(each, count, sequence(self._finished(sums, at, each)))
        return allocated(sums, sequence([cleared, body, written]))

    def _loops(self, body: Statement, guards: Sequence[Expr]) -> Statement:
        """The reduce axes around a statement, each condition where its last variable is known."""
        left = list(guards)
        for old, var, extent in reversed(self._reduced):
            here = [guard for guard in left if depends_on(guard, [old])]
            left = [guard for guard in left if not depends_on(guard, [old])]
            body = loop(var, extent, self._when(here, body))
        return self._when(left, body)

    def _when(self, guards: Sequence[Expr], body: Statement) -> Statement:
        return when(all_of(self._at(guards, None)), body) if guards else body

    def _at(
        self, exprs: Sequence[Expr], place: Expr | None, last: Var | None = None
    ) -> list[Expr]:
        """Expressions over the written loops, at a place of the axis with vectors; with `last` in
        the place of the innermost loop's variable.
        """
        table = self._table if place is None else self._with(place)
        if last is not None:
            axis = self._columns.reduction.axes[-1]
            table = {**table, axis.var: self._along_axis(axis, last)}
        rename = substituter(table)
        return [self._places.read(rename(expr)) for expr in exprs]

    @staticmethod
    def _along_axis(axis: Axis, var: Var) -> Expr:
        """The place on a reduced axis, for what counts from 0."""
        place = add(var, _number(axis_range(axis)[0], dtype_of(var)))
        return cast(dtype_of(axis.var), place)

    def _with(self, place: Expr) -> dict[Var, Expr]:
        along = self._columns.along
        if along is None:
            return self._table
        var = self._columns.kernel.root.axis[along].var
        return {**self._table, var: cast(dtype_of(var), place)}

    def _accumulators(self, count: int) -> list[Local]:
        name = self._columns.kernel.root.name
        types = [dtype_of(one) for one in self._columns.reduction.combiner.identity]
        return [local(f"{name}_acc{n}", [count], dtype) for n, dtype in enumerate(types)]

    def _cleared(self, sums: Sequence[Local], lane: Expr) -> list[Statement]:
        identities = self._columns.reduction.combiner.identity
        return [store(one, value, [lane]) for one, value in zip(sums, identities, strict=True)]

    def _finished(self, sums: Sequence[Local], place: Expr, lane: Expr) -> list[Statement]:
        kernel, table = self._columns.kernel, self._with(place)
        values = [element(one, [lane]) for one in sums]
        return stored(kernel, values, [table[axis.var] for axis in kernel.root.axis], self._places)


def _number(value: Extent, dtype: str) -> Expr:
    return const(value, dtype) if isinstance(value, int) else value
