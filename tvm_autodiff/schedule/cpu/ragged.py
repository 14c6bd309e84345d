"""Schedules reductions with varying bounds: rows of different lengths, triangles, rows between
pointers.

The output is divided among threads. A row of results that the bounds do not depend on is reduced
together, in vectors; sums along memory use a vector of partial sums. Products may be taken over
boxes. Other results use plain loops.
"""

from __future__ import annotations

from ...codegen.loop_nest import (
    PARALLEL,
    SERIAL,
    VECTORIZED,
    Local,
    Places,
    Statement,
    allocated,
    bind,
    combination,
    element,
    function,
    local,
    loop,
    parameter,
    sequence,
    store,
)
from ...codegen.passes.short_circuit import condition_of
from ...codegen.stages.primfunc import StageFunction, external_reads
from ...expr.build import add, const, mul, sub, variable
from ...expr.dtypes import itemsize
from ...expr.nodes import Axis, Expr, Var, binary, dtype_of, is_load, node_id, op_name, operands
from ...expr.rewrite import contains, depends_on, expand_lets, postorder, substituter
from ...graph.stage import (
    Reduction,
    axis_range,
    axis_vars,
    bodies,
    bounds_of,
    reduction_of,
)
from ...rules.reductions.reducers import classify
from ..cost import MIN_LANES
from ..declined import Declined
from ..kernel import Kernel, iterations
from ..machine import Machine
from ..rule import Made
from .loops.parallel import shared_loops
from .tiles.boxed_sums import boxed_sum


def ragged(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a reduction whose bounds vary along the output or are data."""
    op = kernel.root
    reduction = reduction_of(op)
    assert reduction is not None
    if any(axis_range(axis)[0] != 0 for axis in op.axis):
        return Declined("an axis of its output does not start at zero")
    nest = _Nest(kernel, reduction, machine)
    # what partial sums do at a time; rows of results are taken in vectors
    lanes = nest.lanes if nest.row is None else machine.lanes(*nest.dtypes)
    whole = boxed_sum(kernel, machine, lanes, nest.lanes > 1)
    if not isinstance(whole, Declined):
        return whole
    if lanes == 1:
        return Declined(
            f"its results are made one by one, from reads that are not in order, and {whole.reason}"
        )
    return [nest.function()]


class _Nest:
    """The loops of one ragged reduction."""

    def __init__(self, kernel: Kernel, reduction: Reduction, machine: Machine) -> None:
        self.kernel, self.reduction, self.machine = kernel, reduction, machine
        self.op = kernel.root
        self.inputs = external_reads(kernel.ops)
        self.places, self.buffers = Places.of(self.inputs)
        self.outs = [parameter(t, f"out{n}") for n, t in enumerate(kernel.outputs)]
        self.dtypes = [dtype_of(source) for source in reduction.sources]
        self.row = self._row()
        self.lanes = 1 if self.row is not None else self._lanes()

    def function(self) -> StageFunction:
        """The nest as a function."""
        row = [] if self.row is None else [self.row]
        lanes = self.lanes
        count = max(lanes, *(int(axis_range(axis)[1]) for axis in row)) if row else lanes
        sums = [local(f"sum{n}", [count], dtype) for n, dtype in enumerate(self.dtypes)]
        body = self._together(sums, self.row) if self.row is not None else self._one(sums, lanes)
        body = allocated(sums, body)
        outer = list(self.op.axis)[: -1 if row else None]
        body = self._outer(outer, body)
        func = function([*self.buffers, *self.outs], body)
        return StageFunction(func, tuple(self.inputs), tuple(self.kernel.outputs))

    def _outer(self, axes: list[Axis], body: Statement) -> Statement:
        threads = self.machine.threads
        threads = threads if self.machine.worth_threads(iterations(self.op)) else 1
        loops = [(axis.var, axis_range(axis)[1]) for axis in axes]
        if all(isinstance(extent, int) for _, extent in loops):
            return shared_loops(loops, body, threads)
        for number, (var, extent) in reversed(list(enumerate(loops))):
            body = loop(var, extent, body, PARALLEL if number == 0 and threads > 1 else SERIAL)
        return body

    def _row(self) -> Axis | None:
        """The last axis of the output, if reads along it are contiguous or constant."""
        if not len(self.op.axis):
            return None
        axis = self.op.axis[-1]
        extent = axis_range(axis)[1]
        bounds = [bound for axis in self.reduction.axes for bound in bounds_of(axis)]
        if not isinstance(extent, int) or extent < MIN_LANES:
            return None
        if extent * sum(map(itemsize, self.dtypes)) > self.machine.first_cache_bytes // 2:
            return None
        return None if depends_on(bounds, [axis.var]) or not self._runs(axis.var) else axis

    def _runs(self, var: Var) -> bool:
        """Whether every read that follows a variable does so in its last index alone."""
        for node in postorder(list(self.reduction.sources)):
            if is_load(node) and depends_on(node, [var]):
                *others, last = operands(node)
                if node_id(last) != node_id(var) or any(depends_on(o, [var]) for o in others):
                    return False
        return True

    def _lanes(self) -> int:
        """The number of partial sums of a sum along memory, or one for other sums."""
        last = self.reduction.axes[-1].var
        branches = contains(
            [expand_lets(source) for source in self.reduction.sources],
            lambda node: op_name(node) == "if_then_else" or condition_of(node) is not None,
        )
        plain = len(self.dtypes) == 1 and classify(self.reduction.combiner, 0) == "sum"
        if not plain or branches or not self._runs(last):
            return 1
        return 2 * self.machine.lanes(self.dtypes[0])

    def _begun(self, sums: list[Local], index: Expr) -> list[Statement]:
        identity = self.reduction.combiner.identity
        return [store(s, value, [index]) for s, value in zip(sums, identity, strict=True)]

    def _step(self, sums: list[Local], index: Expr, sources: list[Expr]) -> Statement:
        """``sums[index] = sums[index] ⊕ sources``."""
        before = [element(s, [index]) for s in sums]
        values = [self.places.read(source) for source in sources]
        bound, after = combination(self.reduction.combiner, before, values)
        new = [variable("new", dtype) for dtype in self.dtypes]
        stores = [store(s, var, [index]) for s, var in zip(sums, new, strict=True)]
        return sequence([*bound, *map(bind, new, after), *stores])

    def _reduced(self, body: Statement, axes: list[Axis]) -> Statement:
        for axis in reversed(axes):
            low, extent = (self.places.read(bound) for bound in bounds_of(axis))
            body = loop(axis.var, extent, body, SERIAL, low)
        return body

    def _together(self, sums: list[Local], row: Axis) -> Statement:
        """``for j: s[j] = 0; for k: for j: s[j] += f(k, j); for j: out[j] = s[j]``."""
        extent = axis_range(row)[1]
        first = variable(row.var.name, dtype_of(row.var))
        begun = loop(first, extent, sequence(self._begun(sums, first)), self._kind(extent))
        step = self._step(sums, row.var, list(self.reduction.sources))
        step = loop(row.var, extent, step, self._kind(extent))
        last = variable(row.var.name, dtype_of(row.var))
        ended = loop(last, extent, self._written(sums, last, {row.var: last}))
        return sequence([begun, self._reduced(step, list(self.reduction.axes)), ended])

    def _kind(self, extent: int) -> object:
        branches = contains(
            list(self.reduction.sources),
            lambda node: op_name(node) in ("if_then_else", "let") or condition_of(node) is not None,
        )
        short = extent <= self.machine.vector_registers // 2 * self.machine.lanes(self.dtypes[0])
        return VECTORIZED if short and not branches else SERIAL

    def _one(self, sums: list[Local], lanes: int) -> Statement:
        """``s = 0; for k: s += f(k); out = s``, with the innermost loop in parts of `lanes`."""
        *outer, last = list(self.reduction.axes)
        zero = const(0, "int32")
        sources = list(self.reduction.sources)
        dtype = dtype_of(last.var)
        low, extent = (self.places.read(bound) for bound in bounds_of(last))
        lane, part, rest = (variable(name, dtype) for name in ("lane", "part", "rest"))
        size = const(lanes, dtype)
        whole = binary("floordiv", binary("max", extent, const(0, dtype)), size)

        def at(place: Expr) -> list[Expr]:
            return [
                substituter({last.var: add(low, place)})(expand_lets(source)) for source in sources
            ]

        step = self._step(sums, lane, at(add(mul(part, size), lane)))
        parts = loop(part, whole, loop(lane, lanes, step, VECTORIZED))
        left = self._step(sums, zero, at(add(mul(whole, size), rest)))
        tail = loop(rest, sub(extent, mul(whole, size)), left)
        first, each = variable("lane", "int32"), variable("lane", "int32")
        total = self._step(sums, zero, [element(sums[0], [add(each, const(1, "int32"))])])
        return sequence(
            [
                loop(first, lanes, sequence(self._begun(sums, first)), VECTORIZED),
                self._reduced(sequence([parts, tail]), outer),
                loop(each, lanes - 1, total),
                self._written(sums, zero, {}),
            ]
        )

    def _written(self, sums: list[Local], index: Expr, renamed: dict[Var, Expr]) -> Statement:
        """``out[...] = the sums``, or the epilogue of the sums."""
        here = [renamed.get(var, var) for var in axis_vars(self.op)]
        epilogue = self.kernel.epilogue
        if epilogue is None:
            values = [element(s, [index]) for s in sums]
        else:
            kept = () if self.row is None else (len(here) - 1,)
            for number, one in enumerate(sums):
                place = one if kept else Local(one.buffer, ())
                self.places.put(self.op.output(number), place, kept)
            table = dict(zip(axis_vars(epilogue), here, strict=True))
            move = substituter(table)
            values = [self.places.read(move(expand_lets(body))) for body in bodies(epilogue)]
        return sequence([store(o, v, here) for o, v in zip(self.outs, values, strict=True)])
