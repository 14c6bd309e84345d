"""Schedules scatter-adds: updates added at positions that are data.

The loops follow the order of the updates, with axes that are rows of the result inside. Threads
divide the leading axes that updates and result have in common. If these are too few, each thread
owns a range of the first scattered dimension, reads all positions in order, and adds what falls
into its range. In both cases the result does not depend on the number of threads. Scatter-adds
whose results are added up add into one result, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...codegen.loop_nest import (
    PARALLEL,
    SERIAL,
    VECTORIZED,
    Buffer,
    Places,
    Statement,
    bind,
    counter,
    element,
    function,
    loop,
    sequence,
    store,
    when,
)
from ...codegen.passes.short_circuit import holds_mark
from ...codegen.stages.primfunc import StageFunction, launch_of
from ...expr.build import add, all_of, cast, compare, const, mul, sub, variable
from ...expr.linear_terms import linear_terms
from ...expr.nodes import Expr, Tensor, Var, binary, dtype_of, node_id, op_name, tensor_key
from ...expr.rewrite import contains, expand_lets, loaded_tensors, substituter
from ...expr.sharing.lets import merge_equal
from ...graph.kinds.kind import kind_of
from ...graph.kinds.scatter_add import ScatterAdd, inside, nest_index
from ...graph.stage import (
    Extent,
    axis_range,
    axis_vars,
    bodies,
    is_compute,
    reduction_of,
    shape_of,
)
from ..cost import MIN_LANES
from ..declined import Declined, other_kind
from ..fusion.added_scatters import AddedScatters
from ..kernel import Kernel, size_of
from ..machine import Machine
from ..nest.in_range import loops_of
from ..nest.nest import nest_of, vectorised
from ..rule import Made, Rest, writes_to
from .loops.elements import without_branches
from .loops.nest_function import inner_loops
from .loops.parallel import shared_loops


def scatter(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a scatter-add."""
    found = kind_of(kernel.root)
    if not isinstance(found, ScatterAdd):
        return other_kind("it is not a scatter-add")
    return [_ScatterNest([found], kernel.outputs[0], None, machine).function()]


def added_scatters(group: AddedScatters, machine: Machine) -> Made | Declined:
    """``s = scatter(u); t = scatter(v); y = s + t + r  →  y = r; add u; add v``"""
    nest = _ScatterNest(group.scatters, group.total, group.start, machine)
    if not nest.is_shared_alike:
        return Declined("threads divide its result in different dimensions")
    launch = nest.function()
    if group.reader is None:
        return [launch]
    return [launch, *writes_to([Rest(group.reader)], group.parts[-1])]


class _ScatterNest:
    """The loop nest of scatter-adds into one result, which begins with other values or with zeros.
    """

    def __init__(
        self,
        scatters: Sequence[ScatterAdd],
        result: Tensor,
        start: Expr | None,
        machine: Machine,
    ) -> None:
        self.result, self.shape, self.start = result, shape_of(result), start
        tensors = [t for scatter in scatters for t in (*scatter.positions, scatter.updates)]
        tensors += [] if start is None else loaded_tensors(start)
        self.inputs = list({tensor_key(tensor): tensor for tensor in tensors}.values())
        self.places, (*buffers, self.out) = Places.of([*self.inputs, result])
        self.buffers = dict(zip(map(tensor_key, self.inputs), buffers, strict=True))
        self.lanes = machine.lanes(dtype_of(result))
        self.short = machine.vector_registers // 2 * self.lanes
        self.updates = [_Updates(scatter, self) for scatter in scatters]
        self.leading = list(range(min(scatter.layout.shared for scatter in scatters)))
        extents = [list(scatter.extents.values()) for scatter in scatters]
        work = sum(map(size_of, extents)) + size_of(self.shape)
        self.threads = machine.threads_for(work)

    @property
    def is_shared_alike(self) -> bool:
        """Whether threads can divide the result in the same way for each scatter-add."""
        firsts = {updates.first for updates in self.updates}
        return self.chunks == 1 or self._has_leading_axes or len(firsts) == 1

    @property
    def chunks(self) -> int:
        """The number of ranges of the first scattered dimension, one for each thread."""
        rows = min(updates.row_size for updates in self.updates)
        return self.threads if rows >= MIN_LANES else 1

    @property
    def _has_leading_axes(self) -> bool:
        leading = size_of([self.shape[dim] for dim in self.leading])
        return bool(self.leading) and (self.threads == 1 or leading >= self.threads)

    @property
    def dtypes(self) -> set[str]:
        """Those of what is read and written."""
        return {dtype_of(tensor) for tensor in (*self.inputs, self.result)}

    def function(self) -> StageFunction:
        """The nest as a function of the positions, the updates and the result."""
        body = self._by_leading_axes() if self._has_leading_axes else self._by_ranges(self.chunks)
        func = function([*self.buffers.values(), self.out], body)
        return launch_of(func, self.result.op, self.inputs, [self.result])

    def _by_leading_axes(self) -> Statement:
        """``parallel for leading: start, add``."""
        own: dict[int, Expr] = {dim: counter("j", self.shape[dim]) for dim in self.leading}
        added = [updates.added(own, None) for updates in self.updates]
        body = sequence([self._started(own, {}), *added])
        loops = [(own[dim], self.shape[dim]) for dim in self.leading]
        if all(isinstance(extent, int) for _, extent in loops):
            return shared_loops(loops, body, self.threads)
        for number, (var, extent) in reversed(list(enumerate(loops))):
            body = loop(var, extent, body, PARALLEL if number == 0 < self.threads - 1 else SERIAL)
        return body

    def _by_ranges(self, chunks: int) -> Statement:
        """``parallel for chunk: start its range, add what falls into its range``."""
        if chunks == 1:
            added = [updates.added({}, None) for updates in self.updates]
            return sequence([self._started({}, {}), *added])
        first = self.updates[0].first
        chunk = counter("chunk", chunks)
        (low, high), bounds = _range(chunk, self.shape[first], chunks)
        started = self._started({}, {first: (low, high)})
        added = [updates.added({}, (low, high)) for updates in self.updates]
        return loop(chunk, chunks, sequence([*bounds, started, *added]), PARALLEL)

    def _started(
        self, fixed: Mapping[int, Expr], ranges: Mapping[int, tuple[Expr, Expr]]
    ) -> Statement:
        """``out[...] = start`` over the dimensions that are not fixed."""
        made = self._started_in_vectors(fixed, ranges)
        if made is not None:
            return made
        loops: list[tuple[Var, Extent]] = []
        place: list[Expr] = []
        for dim, extent in enumerate(self.shape):
            if dim in fixed:
                place.append(fixed[dim])
                continue
            var = counter("i", extent)
            low, high = ranges.get(dim, (None, None))
            place.append(var if low is None else add(low, var))
            loops.append((var, extent if low is None else sub(high, low)))
        return self.row_loops(loops, store(self.out, self._start_at(place), place))

    def _started_in_vectors(
        self, fixed: Mapping[int, Expr], ranges: Mapping[int, tuple[Expr, Expr]]
    ) -> Statement | None:
        """The same with operands that are read before data choose between them; None where rows
        are short or not constant, or branches protect what they read.
        """
        literal = isinstance(self.shape[-1], int)
        if self.start is None or self.lanes == 1 or not literal or "bfloat16" in self.dtypes:
            return None  # TVM cannot bind variables of bfloat16
        axes, outer = self.result.op.axis, 1 + max([-1, *fixed, *ranges])
        values = without_branches([expand_lets(self.start)], loops_of(axes))
        if holds_mark(values) or contains(values, lambda node: op_name(node) == "if_then_else"):
            return None
        nest = nest_of(axes, merge_equal(values), [self.result])
        made = inner_loops(vectorised(nest, len(axes) - 1, self.lanes), outer, self.places)
        if isinstance(made, Declined):
            return None
        variables, body = made
        for dim, var in reversed(list(enumerate(variables))):
            if dim in fixed:
                body = sequence([bind(var, fixed[dim]), body])
            elif dim in ranges:
                low, high = ranges[dim]
                count = counter("i", self.shape[dim])
                body = loop(count, sub(high, low), sequence([bind(var, add(low, count)), body]))
            else:
                body = loop(var, self.shape[dim], body)
        return body

    def _start_at(self, place: Sequence[Expr]) -> Expr:
        if self.start is None:
            return const(0, dtype_of(self.result))
        here = dict(zip(axis_vars(self.result.op), place, strict=True))
        return self.places.read(substituter(here)(self.start))

    def buffer(self, tensor: Tensor) -> Buffer:
        """The parameter of a tensor."""
        return self.buffers[tensor_key(tensor)]

    def row_loops(self, loops: Sequence[tuple[Var, Any]], body: Statement) -> Statement:
        """Loops around a statement, the innermost in vectors where it is short and constant."""
        for number, (var, extent) in reversed(list(enumerate(loops))):
            vector = self.lanes > 1 and number == len(loops) - 1 and isinstance(extent, int)
            short = vector and extent <= self.short
            body = loop(var, extent, body, VECTORIZED if short else SERIAL)
        return body


class _Updates:
    """The loops of one scatter-add of a nest."""

    def __init__(self, scatter: ScatterAdd, nest: _ScatterNest) -> None:
        self.scatter, self.layout, self.nest = scatter, scatter.layout, nest
        self.extents = scatter.extents
        self.index: dict[int, Expr] = {
            axis: counter("j" if axis < 0 else "n", n) for axis, n in self.extents.items()
        }
        #: for positions that are parts of a row the index of the first element; the others are data
        self.begins = self._begins()

    def _begins(self) -> dict[int, int]:
        found = {}
        for dim, number in enumerate(self.layout.dims):
            if number >= 0:
                extent, tensor = self.nest.shape[dim], self.scatter.positions[number]
                begin = _begin_of_part(tensor, extent) if isinstance(extent, int) else None
                if begin is not None:
                    found[number] = begin
        return found if len(found) < len(self.scatter.positions) else {}

    @property
    def data(self) -> list[int]:
        """The dimensions of the result whose indices are data."""
        dims = enumerate(self.layout.dims)
        return [dim for dim, number in dims if number >= 0 and number not in self.begins]

    @property
    def first(self) -> int:
        """The first dimension of the result whose indices are data."""
        return self.data[0]

    @property
    def row_size(self) -> int:
        """The number of elements at a position."""
        return size_of([self.nest.shape[dim] for dim in self.layout.trailing])

    def added(self, fixed: Mapping[int, Expr], span: tuple[Expr, Expr] | None) -> Statement:
        """``out[p[n], j] += updates[n, j]``: each position is tested where its loops are open.

        Parameters
        ----------
        fixed
            Indices of leading dimensions of the result, whose loops are around it.
        span
            The indices of the first scattered dimension that count; None for all.
        """
        index = self.index | {-1 - dim: var for dim, var in fixed.items()}
        done = {-1 - dim for dim in fixed}
        inner = self._row_axes()
        outer = [axis for axis in self.extents if axis not in inner and axis not in done]
        places = self._places(index)
        binds, tests = self._found(index, places, span)
        value = element(self.nest.buffer(self.scatter.updates), self.layout.update(index))
        target = self.layout.element(places, index)
        body = store(self.nest.out, add(element(self.nest.out, target), value), target)
        body = self.nest.row_loops([(index[axis], self.extents[axis]) for axis in inner], body)
        for count in range(len(outer), -1, -1):
            known = {*done, *outer[:count]}
            before = {*done, *outer[: count - 1]} if count else None
            for number in reversed(binds):
                axes = set(self.layout.places[number])
                if axes <= known and (before is None or not axes <= before):
                    body = sequence([binds[number], when(tests[number], body)])
            if count:
                axis = outer[count - 1]
                body = loop(index[axis], self.extents[axis], body)
        return body

    def _row_axes(self) -> list[int]:
        """The axes of a row, or of a part of it, at a position that is data."""
        layout = self.layout
        used = {axis for dim in self.data for axis in layout.places[layout.dims[dim]]}
        found: list[int] = []
        for dim in range(max(self.data) + 1, len(layout.dims)):
            number = layout.dims[dim]
            axis = -1 - dim if number < 0 else layout.places[number][0]
            if axis not in (*used, *found):
                found.append(axis)
        return found

    def _places(self, index: Mapping[int, Expr]) -> list[Expr]:
        """The value of each position tensor: a variable, or an index of a row and where it begins.
        """
        places: list[Expr] = []
        for number in range(len(self.scatter.positions)):
            if number in self.begins:
                [axis] = self.layout.places[number]
                here = index[axis]
                places.append(add(here, const(self.begins[number], dtype_of(here))))
            else:
                places.append(variable("at", dtype_of(self._read(number, index))))
        return places

    def _read(self, number: int, index: Mapping[int, Expr]) -> Expr:
        buffer = self.nest.buffer(self.scatter.positions[number])
        return nest_index(element(buffer, self.layout.place(number, index)))

    def _found(
        self, index: Mapping[int, Expr], places: Sequence[Expr], span: tuple[Expr, Expr] | None
    ) -> tuple[dict[int, Statement], dict[int, Expr]]:
        """For each position that is data, what binds its variable, and whether it is in its range.
        """
        binds: dict[int, Statement] = {}
        tests: dict[int, list[Expr]] = {}
        for dim in self.data:
            number = self.layout.dims[dim]
            at = places[number]
            binds[number] = bind(at, self._read(number, index))
            tests.setdefault(number, []).extend(inside(at, self.nest.result.shape[dim]))
            if span is not None and dim == self.first:
                low, high = (cast(dtype_of(at), end) for end in span)
                tests[number] += [compare("ge", at, low), compare("lt", at, high)]
        return binds, {number: all_of(parts) for number, parts in tests.items()}


def _begin_of_part(positions: Tensor, extent: int) -> int | None:
    """``c`` of positions ``p[j] = j + c`` in a row of some extent; None for other positions."""
    op = positions.op
    if not is_compute(op) or reduction_of(op) is not None or len(op.axis) != 1:
        return None
    [axis], body = op.axis, bodies(op)[positions.value_index]
    low, count = axis_range(axis)
    terms, begin = linear_terms(body)
    if low != 0 or not isinstance(count, int) or not 0 <= begin <= extent - count:
        return None
    plain = [node_id(node) for node, factor in terms if factor == 1] == [node_id(axis.var)]
    return begin if plain and len(terms) == 1 else None


def _range(chunk: Var, extent: Extent, chunks: int) -> tuple[tuple[Var, Var], list[Statement]]:
    """Where the range of a chunk begins and ends, and the statements that compute it."""
    low, high = counter("low", extent), counter("high", extent)
    dtype = dtype_of(low)
    total = const(extent, dtype) if isinstance(extent, int) else extent
    size = binary("floordiv", add(total, const(chunks - 1, dtype)), const(chunks, dtype))
    begin = binary("min", mul(cast(dtype, chunk), size), total)
    end = binary("min", add(low, size), total)
    return (low, high), [bind(low, begin), bind(high, end)]
