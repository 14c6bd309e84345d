"""Reductions along columns of any literal extent, under conditions that cut the last output axis.

On the longest piece of the axis where every condition and clamp is decided for all that is reduced,
a few vectors of results stay in registers while everything is reduced into them; the last ones
overlap those before. At the borders, each point of the reduction is combined with the elements for
which its conditions hold.

    ``y[j] = Σ_{k<20} if k <= j then x[j - k] else 0, j < 99``  →
    ``for k: for k <= j < 19: acc[j] += x[j - k];  acc[c] = Σ_k x[c + 64*s + 19 - k], c < 64``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....codegen.loop_nest import (
    PARALLEL,
    SERIAL,
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
    sequence,
    store,
    when,
)
from ....codegen.passes.short_circuit import holds_mark
from ....codegen.stages.primfunc import StageFunction, external_reads
from ....expr.build import add, all_of, cast, conjuncts, const, mul, sub, variable
from ....expr.nodes import (
    Expr,
    Tensor,
    Var,
    binary,
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import (
    depends_on,
    expand_lets,
    map_loads,
    substituter,
)
from ....graph.stage import Reduction, axis_range, axis_vars, bodies, loop_axes, reduction_of
from ...cost import LATENCY, MIN_LANES
from ...declined import Declined, no_gain
from ...kernel import Kernel
from ...machine import Machine
from ...nest.access import (
    Interval,
    has_branches,
    strides_along,
)
from ...nest.axis_bounds import bound_of, longest_piece
from ...nest.index_set_splitting import decided
from ...rewrites.guards import selected
from .parallel import shared_loops, threads_of
from .strip_mining import Body, vectors
from .vector_loops import combined


def guarded_columns(kernel: Kernel, machine: Machine) -> StageFunction | Declined:
    """The function of a kernel that reduces, with vectors along its last output axis."""
    columns = _columns_of(kernel)
    if isinstance(columns, Declined):
        return columns
    inside = columns.inside()
    return inside if isinstance(inside, Declined) else _Writer(columns, inside, machine).function()


@dataclass(frozen=True)
class _Body:
    """What is reduced, and the conditions under which it is not the identity."""

    guards: tuple[Expr, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class _Columns:
    """A reduction over loops of literal extents.

    Attributes
    ----------
    kernel : Kernel
    reduction : Reduction
    body : _Body
        What is reduced at any place.
    ranges : dict
        The first and last value of each loop, by the id of its variable.
    middle : (int, int)
        The first and last element of a piece of the last axis.
    """

    kernel: Kernel
    reduction: Reduction
    body: _Body
    ranges: Mapping[int, Interval]
    middle: Interval

    @property
    def last(self) -> Var:
        """The last output axis."""
        return self.kernel.root.axis[-1].var

    def inside(self) -> _Body | Declined:
        """The body in the middle, where it has no branches along the last axis."""
        axes = loop_axes(self.kernel.root)
        variables = [axis.var for axis in axes]
        known = {**self.ranges, node_id(self.last): self.middle}
        decide = lambda expr: decided(expr, variables, known)  # noqa: E731
        guards = [part for guard in self.body.guards for part in conjuncts(decide(guard))]
        values = selected([decide(value) for value in self.body.values], axes)
        strides = strides_along(values, self.last, variables)
        if not strides or max(strides) != 1:
            return no_gain("its reads are not contiguous along its last axis")
        if has_branches(values) or any(depends_on(guard, [self.last]) for guard in guards):
            return no_gain("it has branches along its last axis")
        return _Body(tuple(guards), tuple(values))


def _columns_of(kernel: Kernel) -> _Columns | Declined:
    root = kernel.root
    reduction = reduction_of(root)
    if reduction is None or not len(root.axis):
        return Declined("it reduces no columns")
    axes = loop_axes(root)
    ranges: dict[int, Interval] = {}
    for axis in axes:
        low, extent = axis_range(axis)
        if not isinstance(low, int) or not isinstance(extent, int) or extent < 1:
            return Declined("a loop of it has no literal extent")
        ranges[node_id(axis.var)] = (low, low + extent - 1)
    if reduction.init or any(axis_range(axis)[0] != 0 for axis in root.axis):
        return Declined("its axes or values do not begin at zero")
    body = _body_of(reduction)
    if any(holds_mark(expr) for expr in (*body.guards, *body.values)):
        return Declined("its conditions are data")
    last = root.axis[-1].var
    middle = longest_piece([*body.guards, *body.values], last, [axis.var for axis in axes], ranges)
    if middle[1] - middle[0] + 1 < MIN_LANES:
        return no_gain("its last axis is shorter than a vector, or has many conditions")
    return _Columns(kernel, reduction, body, ranges, middle)


def _body_of(reduction: Reduction) -> _Body:
    """``if c then f else identity → f under the condition c``, for a single value."""
    values = [expand_lets(source) for source in reduction.sources]
    guards = conjuncts(reduction.condition)
    if len(values) > 1:
        return _Body(tuple(guards), tuple(values))
    [value], identity = values, const_value(reduction.combiner.identity[0])
    while op_name(value) == "if_then_else":
        condition, then, other = operands(value)
        if const_value(other) is None or const_value(other) != identity:
            break
        guards += conjuncts(condition)
        value = then
    return _Body(tuple(guards), (value,))


class _Writer:
    """Writes the function."""

    def __init__(self, columns: _Columns, inside: _Body, machine: Machine) -> None:
        self._columns, self._inside, self._machine = columns, inside, machine
        kernel = columns.kernel
        self._inputs, self._results = external_reads(kernel.ops), kernel.outputs
        self._places, self._buffers = Places.of([*self._inputs, *self._results])
        self._outer = [
            (axis.var, counter(axis.var.name, axis_range(axis)[1]))
            for axis in kernel.root.axis[:-1]
        ]
        self._reduced = [
            (axis.var, counter(axis.var.name, axis_range(axis)[1]), axis_range(axis))
            for axis in columns.reduction.axes
        ]
        self._table: dict[Var, Expr] = dict(self._outer)
        for old, var, (low, _) in self._reduced:
            self._table[old] = add(var, const(low, dtype_of(var)))

    def function(self) -> StageFunction:
        """See `guarded_columns`."""
        columns = self._columns
        (first, end), (low, high) = columns.ranges[node_id(columns.last)], columns.middle
        threads = threads_of(columns.kernel, self._machine)
        kind = PARALLEL if threads > 1 and not self._outer else SERIAL
        parts = [self._middle(kind)]
        parts += [self._border(a, b) for a, b in ((first, low - 1), (high + 1, end)) if a <= b]
        axes = columns.kernel.root.axis[:-1]
        loops = [
            (var, axis_range(axis)[1]) for (_, var), axis in zip(self._outer, axes, strict=True)
        ]
        body = shared_loops(loops, sequence(parts), threads) if loops else sequence(parts)
        return StageFunction(
            function(self._buffers, body), tuple(self._inputs), tuple(self._results)
        )

    def _middle(self, kind: object) -> Statement:
        """Strips of vectors; the last ones overlap those before."""
        low, high = self._columns.middle
        count, lanes = high - low + 1, self._machine.lanes(dtype_of(self._results[0]))
        while lanes > count:
            lanes //= 2
        groups = min(LATENCY, count // lanes)
        width = groups * lanes
        trip, start = counter("strip", count), counter("start", high + 1)
        begin = add(mul(trip, const(width, dtype_of(trip))), const(low, dtype_of(trip)))
        whole = sequence([bind(start, begin), self._strip(start, groups, lanes)])
        parts = [loop(trip, count // width, whole, kind)]
        rest = -(-(count % width) // lanes)
        if rest:
            place = const(high + 1 - rest * lanes, dtype_of(trip))
            parts.append(self._strip(place, rest, lanes))
        return sequence(parts)

    def _strip(self, start: Expr, groups: int, lanes: int) -> Statement:
        """The results of some vectors."""
        columns = self._columns
        found = columns.reduction
        sums = self._accumulators(groups * lanes)

        def each(body: Body) -> Statement:
            return vectors(start, groups, lanes, body, VECTORIZED)

        def added(place: Expr, lane: Expr) -> list[Statement]:
            return combined(found, sums, [lane], self._at(self._inside.values, place))

        body = self._loops(each(added), self._at(self._inside.guards, None))
        begin = each(lambda _, lane: self._cleared(sums, lane))
        return allocated(
            sums, sequence([begin, body, each(lambda p, lane: self._finished(sums, p, lane))])
        )

    def _border(self, first: int, last: int) -> Statement:
        """The results from one element to another, under conditions."""
        columns = self._columns
        variables = [axis.var for axis in loop_axes(columns.kernel.root)]
        count = last - first + 1
        sums = self._accumulators(count)
        bounds = [bound_of(guard, columns.last, variables) for guard in columns.body.guards]
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
        inner = [g for g, bound in pairs if bound is None and depends_on(g, [columns.last])]
        body = sequence(
            combined(columns.reduction, sums, [lane], self._at(columns.body.values, place))
        )
        if inner:
            body = when(all_of(self._at(inner, place)), body)
        body = sequence([bind(place, add(begin, step)), body])
        body = sequence([bind(begin, lower), loop(step, sub(upper, begin), body)])
        outer = [g for g, bound in pairs if bound is None and g not in inner]
        body = self._loops(body, self._at(outer, None))
        each = counter("place", count)
        at = add(each, const(first, "int32"))
        cleared = loop(each, count, sequence(self._cleared(sums, each)))
        written = loop(each, count, sequence(self._finished(sums, at, each)))
        return allocated(sums, sequence([cleared, body, written]))

    def _loops(self, body: Statement, guards: Sequence[Expr]) -> Statement:
        """The reduce axes around a statement, each condition where its last variable is known."""
        left = list(guards)
        for number in range(len(self._reduced), 0, -1):
            inner = [var for _, var, _ in self._reduced[number - 1 :]]
            here = [guard for guard in left if depends_on(guard, inner)]
            left = [guard for guard in left if not depends_on(guard, inner)]
            if here:
                body = when(all_of(here), body)
            _, var, (_, extent) = self._reduced[number - 1]
            body = loop(var, extent, body)
        return when(all_of(left), body) if left else body

    def _at(self, exprs: Sequence[Expr], place: Expr | None) -> list[Expr]:
        """Expressions over the written loops, at a place of the last axis."""
        table = self._table if place is None else {**self._table, self._columns.last: place}
        rename = substituter(table)
        return [self._places.read(rename(expr)) for expr in exprs]

    def _accumulators(self, count: int) -> list[Local]:
        name = self._columns.kernel.root.name
        types = [dtype_of(one) for one in self._columns.reduction.combiner.identity]
        return [local(f"{name}_acc{n}", [count], dtype) for n, dtype in enumerate(types)]

    def _cleared(self, sums: Sequence[Local], lane: Expr) -> list[Statement]:
        identities = self._columns.reduction.combiner.identity
        return [store(one, value, [lane]) for one, value in zip(sums, identities, strict=True)]

    def _finished(self, sums: Sequence[Local], place: Expr, lane: Expr) -> list[Statement]:
        """The stores of the results, of the epilogue if there is one."""
        kernel = self._columns.kernel
        values = [element(one, [lane]) for one in sums]
        indices = [*(var for _, var in self._outer), place]
        if kernel.epilogue is not None:
            root, [value] = tensor_key(kernel.root.output(0)), values
            table = dict(zip(axis_vars(kernel.epilogue), indices, strict=True))

            def reduced(tensor: Tensor, _: Sequence[Expr]) -> Expr | None:
                return value if tensor_key(tensor) == root else None

            renamed = substituter(table)(bodies(kernel.epilogue)[0])
            values = [self._places.read(map_loads(renamed, reduced))]
        return [
            self._places.write(result, value, indices)
            for result, value in zip(self._results, values, strict=True)
        ]
