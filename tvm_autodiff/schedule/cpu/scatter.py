"""Schedules scatter-adds: updates added at positions that are data.

The loops follow the order of the updates, with axes that are rows of the result inside. Threads
divide the leading axes that updates and result have in common. If these are too few, each thread
owns a range of the first scattered dimension, reads all positions in order, and adds what falls
into its range. In both cases the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...codegen.loop_nest import (
    PARALLEL,
    SERIAL,
    VECTORIZED,
    Buffer,
    Statement,
    bind,
    counter,
    element,
    function,
    loop,
    parameter,
    sequence,
    store,
    when,
)
from ...codegen.stages.primfunc import StageFunction, launch_of
from ...expr.build import add, all_of, cast, compare, const, mul, sub, variable
from ...expr.nodes import Expr, Tensor, Var, binary, dtype_of, tensor_key
from ...graph.kinds.kind import kind_of
from ...graph.kinds.scatter_add import ScatterAdd, inside, nest_index
from ...graph.stage import Extent, shape_of
from ..cost import MIN_LANES
from ..declined import Declined, other_kind
from ..kernel import Kernel, size_of
from ..machine import Machine
from .loops.parallel import shared_loops


def scatter(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a scatter-add."""
    found = kind_of(kernel.root)
    if not isinstance(found, ScatterAdd):
        return other_kind("it is not a scatter-add")
    return [_ScatterNest(found, kernel.outputs[0], machine).function()]


class _ScatterNest:
    """The loop nest of one scatter-add."""

    def __init__(self, scatter: ScatterAdd, result: Tensor, machine: Machine) -> None:
        self.scatter, self.layout = scatter, scatter.layout
        self.result, self.shape = result, shape_of(result)
        tensors = [*scatter.positions, scatter.updates]
        self.inputs = list({tensor_key(tensor): tensor for tensor in tensors}.values())
        self.buffers = {tensor_key(t): parameter(t, f"p{n}") for n, t in enumerate(self.inputs)}
        self.out = parameter(result, "out")
        self.lanes = machine.lanes(dtype_of(result))
        self.short = machine.vector_registers // 2 * self.lanes
        self.extents = scatter.extents
        self.index = {
            axis: counter("j" if axis < 0 else "n", n) for axis, n in self.extents.items()
        }
        self.leading = [-1 - dim for dim in range(self.layout.shared)]
        work = size_of(list(self.extents.values())) + size_of(self.shape)
        self.threads = machine.threads_for(work)

    def function(self) -> StageFunction:
        """The nest as a function of the positions, the updates and the result."""
        leading = size_of([self.extents[axis] for axis in self.leading])
        rows = size_of([self.shape[dim] for dim in self.layout.trailing])
        if self.leading and (self.threads == 1 or leading >= self.threads):
            body = self._by_leading_axes()
        else:
            body = self._by_ranges(self.threads if rows >= MIN_LANES else 1)
        func = function([*self.buffers.values(), self.out], body)
        return launch_of(func, self.result.op, self.inputs, [self.result])

    def _by_leading_axes(self) -> Statement:
        """``parallel for leading: clear, add``."""
        own = {-1 - axis: self.index[axis] for axis in self.leading}
        body = sequence([self._cleared(own, {}), self._added(self.leading, [])])
        loops = [(self.index[axis], self.extents[axis]) for axis in self.leading]
        if all(isinstance(extent, int) for _, extent in loops):
            return shared_loops(loops, body, self.threads)
        for number, (var, extent) in reversed(list(enumerate(loops))):
            body = loop(var, extent, body, PARALLEL if number == 0 < self.threads - 1 else SERIAL)
        return body

    def _by_ranges(self, chunks: int) -> Statement:
        """``parallel for chunk: clear its range, add what falls into its range``."""
        first = next(dim for dim, number in enumerate(self.layout.dims) if number >= 0)
        if chunks == 1:
            return sequence([self._cleared({}, {}), self._added([], [])])
        chunk = counter("chunk", chunks)
        (low, high), bounds = _range(chunk, self.shape[first], chunks)
        cleared = self._cleared({}, {first: (low, high)})
        body = sequence([*bounds, cleared, self._added([], [(first, low, high)])])
        return loop(chunk, chunks, body, PARALLEL)

    def _cleared(
        self, fixed: Mapping[int, Expr], ranges: Mapping[int, tuple[Expr, Expr]]
    ) -> Statement:
        """``out[...] = 0`` over the dimensions that are not fixed."""
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
        return self._row_loops(loops, store(self.out, const(0, dtype_of(self.result)), place))

    def _added(self, done: Sequence[int], ranges: Sequence[tuple[int, Expr, Expr]]) -> Statement:
        """``out[p[n], j] += updates[n, j]``: each position is tested where its loops are open."""
        last = max((dim for dim, number in enumerate(self.layout.dims) if number >= 0), default=-1)
        inner = sorted((axis for axis in self.extents if -1 - axis > last), reverse=True)
        outer = [axis for axis in self.extents if axis not in inner and axis not in done]
        places, binds, tests = self._positions(ranges)
        value = element(self._buffer(self.scatter.updates), self.layout.update(self.index))
        target = self.layout.element(places, self.index)
        body = store(self.out, add(element(self.out, target), value), target)
        body = self._row_loops([(self.index[axis], self.extents[axis]) for axis in inner], body)
        for count in range(len(outer), -1, -1):
            known = {*done, *outer[:count]}
            before = {*done, *outer[: count - 1]} if count else None
            for number in reversed(range(len(places))):
                axes = set(self.layout.places[number])
                if axes <= known and (before is None or not axes <= before):
                    body = sequence([binds[number], when(tests[number], body)])
            if count:
                axis = outer[count - 1]
                body = loop(self.index[axis], self.extents[axis], body)
        return body

    def _positions(
        self, ranges: Sequence[tuple[int, Expr, Expr]]
    ) -> tuple[list[Var], list[Statement], list[Expr]]:
        """For each position tensor a variable, what binds it, and whether it is in its range."""
        places: list[Var] = []
        binds: list[Statement] = []
        for number, tensor in enumerate(self.scatter.positions):
            read = nest_index(element(self._buffer(tensor), self.layout.place(number, self.index)))
            places.append(variable("at", dtype_of(read)))
            binds.append(bind(places[-1], read))
        tests: list[list[Expr]] = [[] for _ in places]
        for dim, number in enumerate(self.layout.dims):
            if number >= 0:
                tests[number] += inside(places[number], self.result.shape[dim])
        for dim, low, high in ranges:
            at = places[self.layout.dims[dim]]
            tests[self.layout.dims[dim]] += [
                compare("ge", at, cast(dtype_of(at), low)),
                compare("lt", at, cast(dtype_of(at), high)),
            ]
        return places, binds, [all_of(parts) for parts in tests]

    def _buffer(self, tensor: Tensor) -> Buffer:
        return self.buffers[tensor_key(tensor)]

    def _row_loops(self, loops: Sequence[tuple[Var, Any]], body: Statement) -> Statement:
        """Loops around a statement, the innermost in vectors where it is short and constant."""
        for number, (var, extent) in reversed(list(enumerate(loops))):
            vector = self.lanes > 1 and number == len(loops) - 1 and isinstance(extent, int)
            short = vector and extent <= self.short
            body = loop(var, extent, body, VECTORIZED if short else SERIAL)
        return body


def _range(chunk: Var, extent: Extent, chunks: int) -> tuple[tuple[Var, Var], list[Statement]]:
    """Where the range of a chunk begins and ends, and the statements that compute it."""
    low, high = counter("low", extent), counter("high", extent)
    dtype = dtype_of(low)
    total = const(extent, dtype) if isinstance(extent, int) else extent
    size = binary("floordiv", add(total, const(chunks - 1, dtype)), const(chunks, dtype))
    begin = binary("min", mul(cast(dtype, chunk), size), total)
    end = binary("min", add(low, size), total)
    return (low, high), [bind(low, begin), bind(high, end)]
