"""Reductions with vectors along a symbolic last output axis, which is cut into strips.

A strip of a few vectors of results stays in registers while everything is reduced into it. The last
strip of an axis overlaps the one before, so that no strip is partial; axes shorter than a vector
have shorter ones.

    ``y[i, j] = ⊕_k f(x[i, k, j]), j < n  →  acc[c] = ⊕_k f(x[i, k, 64*s + c]), c < 64, s < n//64;
    then c < 16 from min(n - n%64 + 16*s, n - 16) on, for each s < ceil((n%64)/16)``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....codegen.flat_axes import number_of_points
from ....codegen.loop_nest import (
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
)
from ....codegen.passes.small_launches import estimated
from ....codegen.stages.primfunc import StageFunction, external_reads
from ....expr.build import add, compare, const, mul, sub, variable
from ....expr.nodes import Expr, Tensor, Var, binary, dtype_of, tensor_key
from ....expr.rewrite import map_loads, substituter
from ....graph.stage import Extent, Reduction, axis_range, bodies, loop_axes
from ...cost import LATENCY, MIN_LANES
from ...kernel import Kernel
from ...machine import Machine
from .parallel import tasks
from .strip_mining import Body, strip_start, vectors
from .vector_loops import combined

#: the statements of a strip: of so many vectors of so many lanes, from a place on
Strip = Callable[[Expr, int, int], Statement]


def column_strips(kernel: Kernel, found: Reduction, machine: Machine) -> StageFunction:
    """The function of a kernel whose reads are contiguous along its last output axis.

    `found` is its reduction, of one value and without branches.
    """
    root = kernel.root
    inputs, [result] = external_reads(kernel.ops), kernel.outputs
    places, buffers = Places.of([*inputs, result])
    outer = [(axis, counter(axis.var.name, axis_range(axis)[1])) for axis in root.axis[:-1]]
    table: dict[Var, Expr] = {axis.var: var for axis, var in outer}
    writer = _Strips(kernel, found, places, table)
    lanes = machine.lanes(dtype_of(root.output(0)))
    extent = axis_range(root.axis[-1])[1]
    assert not isinstance(extent, int), "vectors of a literal extent are tiles"
    strips, body = _cut(extent, lanes, writer.strip)
    loops = [*((var, axis_range(axis)[1]) for axis, var in outer), strips]
    if machine.threads > 1:
        # half a vector in a cycle, as in fused rows
        extents = [axis_range(axis)[1] for axis in loop_axes(root)]
        work = mul(number_of_points(extents, "float64"), const(2 / lanes, "float64"))
        body = estimated(tasks(loops, body), work)
    else:
        body = nested(loops, body)
    return StageFunction(function(buffers, body), tuple(inputs), (result,))


def _cut(extent: Expr, lanes: int, strip: Strip) -> tuple[tuple[Var, Expr], Statement]:
    """The loop over whole strips and, as the last one, what remains; with its body."""
    dtype = dtype_of(extent)

    def number(value: int) -> Expr:
        return const(value, dtype)

    width = LATENCY * lanes
    count = binary("floordiv", extent, number(width))
    strips = counter("strip", extent)
    whole = strip(mul(strips, number(width)), LATENCY, lanes)

    def overlapping(done: Expr, width: int) -> Statement:
        left = add(sub(extent, done), number(width - 1))
        trips = binary("floordiv", left, number(width))
        trip, start = counter("strip", trips), variable("start", dtype)
        place = strip_start(trip, width, extent, done)
        return loop(trip, trips, sequence([bind(start, place), strip(start, 1, width)]))

    done = sub(extent, binary("floormod", extent, number(width)))
    one = counter("one", extent)
    rest = loop(one, extent, strip(one, 1, 1))
    for narrow, begin in ((MIN_LANES, number(0)), (lanes, done)):
        if narrow <= lanes:
            fits = compare("ge", extent, number(narrow))
            rest = branch(fits, overlapping(begin, narrow), rest)
    body = branch(compare("lt", strips, count), whole, rest)
    return (strips, add(count, number(1))), body


class _Strips:
    """Writes the strips of a kernel."""

    def __init__(
        self, kernel: Kernel, found: Reduction, places: Places, table: dict[Var, Expr]
    ) -> None:
        self._kernel, self._found, self._places, self._table = kernel, found, places, table

    def strip(self, start: Expr, groups: int, width: int) -> Statement:
        """The results of a strip: reduced, then finished and written."""
        root, found = self._kernel.root, self._found
        dtype = dtype_of(root.output(0))
        accumulator = local(f"{root.name}_acc", [groups * width], dtype)
        bounds = [(axis, axis_range(axis)) for axis in found.axes]
        reduced = [(axis, counter(axis.var.name, extent), low) for axis, (low, extent) in bounds]

        def accumulate(place: Expr, lane: Expr) -> list[Statement]:
            table = {**self._table, root.axis[-1].var: place}
            table |= {a.var: add(v, _number(low, dtype_of(v))) for a, v, low in reduced}
            value = self._places.read(substituter(table)(found.sources[0]))
            return combined(found, [accumulator], [lane], [value])

        def finish(place: Expr, lane: Expr) -> list[Statement]:
            return [self._finished(place, element(accumulator, [lane]))]

        def each(body: Body) -> Statement:
            return vectors(start, groups, width, body, VECTORIZED)

        identity = found.combiner.identity[0]
        begin = each(lambda _, lane: [store(accumulator, identity, [lane])])
        variables = [var for _, var, _ in reduced]
        extents = [extent for _, (_, extent) in bounds]
        inner = nested(list(zip(variables, extents, strict=True)), each(accumulate))
        return allocated([accumulator], sequence([begin, inner, each(finish)]))

    def _finished(self, place: Expr, value: Expr) -> Statement:
        """The store of a result, of the epilogue if there is one."""
        kernel = self._kernel
        last = kernel.ops[-1]
        indices = [*self._table.values(), place]
        table = dict(zip((axis.var for axis in last.axis), indices, strict=True))
        if kernel.epilogue is not None:
            root = tensor_key(kernel.root.output(0))

            def reduced(tensor: Tensor, _: Sequence[Expr]) -> Expr | None:
                return value if tensor_key(tensor) == root else None

            renamed = substituter(table)(bodies(kernel.epilogue)[0])
            value = self._places.read(map_loads(renamed, reduced))
        [result] = kernel.outputs
        return self._places.write(result, value, indices)


def _number(value: Extent, dtype: str) -> Expr:
    return const(value, dtype) if isinstance(value, int) else value
