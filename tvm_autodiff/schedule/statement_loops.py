"""Plain loops whose body is written in small statements, for kernels that are too large for TVM's
passes.

TVM's passes walk expressions as trees, some of them several times at each level. What
`codegen.statements` stores is a register for LLVM, so these loops are as fast as plain ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..codegen.flat_axes import flat_dtype, flat_extent, indices_at
from ..codegen.loop_nest import (
    PARALLEL,
    SERIAL,
    Local,
    Places,
    Statement,
    allocated,
    counter,
    element,
    function,
    local,
    loop,
    sequence,
    store,
)
from ..codegen.stages.primfunc import StageFunction, external_reads
from ..codegen.statements import written
from ..expr.build import call, cast, const, div, mul, sub, variable
from ..expr.nodes import Axis, Expr, Var, const_value, dtype_of, op_name, operands
from ..expr.rewrite import expand_lets, rewrite, substituter
from ..graph.stage import (
    Combiner,
    Extent,
    Reduction,
    axis_range,
    axis_vars,
    bodies,
    is_compute,
    reduction_of,
)
from .declined import NOT_COMPUTED, Declined
from .kernel import Kernel, iterations, results_of
from .machine import Machine


def statement_loops(kernel: Kernel, machine: Machine) -> StageFunction | Declined:
    """A kernel element by element, each in statements of bounded size.

    For a GPU it has one parallel loop over all elements, which `bind_parallel` binds to threads.
    """
    if not is_compute(kernel.root):
        return NOT_COMPUTED
    inputs, results = external_reads(kernel.ops), kernel.outputs
    places, buffers = Places.of([*inputs, *results])
    table: dict[Var, Expr] = {}
    if machine.kind == "cuda":
        loops, kind = _flat_loop(kernel.root.axis, table), PARALLEL
        body = _element(kernel, table, places, "local")
    else:
        loops = _loops(kernel.root.axis, table)
        kind = PARALLEL if machine.worth_threads(iterations(kernel.root)) else SERIAL
        body = _element(kernel, table, places, "global")
    return StageFunction(function(buffers, _nest(loops, body, kind)), tuple(inputs), tuple(results))


_Loop = tuple[Var, Extent, Extent]  #: variable, minimum, extent


def _loops(axes: Sequence[Axis], table: dict[Var, Expr]) -> list[_Loop]:
    """Loops over axes, outermost first; the table gets their variables."""
    loops = []
    for axis in axes:
        rename = substituter(dict(table))
        low, extent = (b if isinstance(b, int) else rename(b) for b in axis_range(axis))
        var = counter(axis.var.name, extent)
        table[axis.var] = var
        loops.append((var, low, extent))
    return loops


def _flat_loop(axes: Sequence[Axis], table: dict[Var, Expr]) -> list[_Loop]:
    """``for i: for j: f(i, j) → for e: f(e // n, e % n)``; the table gets what axes are."""
    place = variable("element", flat_dtype(axes))
    table |= indices_at(axes, place)
    return [(place, 0, flat_extent(axes))]


def _nest(loops: Sequence[_Loop], body: Statement, kind: object = SERIAL) -> Statement:
    for number, (var, low, extent) in reversed(list(enumerate(loops))):
        body = loop(var, extent, body, kind if number == 0 else SERIAL, low)
    return body


def _element(kernel: Kernel, table: Mapping[Var, Expr], places: Places, scope: str) -> Statement:
    """One element of every output; `scope` is that of local buffers."""
    op = kernel.root
    reduction = reduction_of(op)
    before: list[Statement] = []
    buffers: list[Local] = []
    if reduction is None:
        values = [substituter(table)(body) for body in bodies(op)]
    else:
        buffers = [local("acc", [], dtype_of(source), scope) for source in reduction.sources]
        before = _reduced(reduction, table, buffers, places, scope)
        values = [element(buffer, []) for buffer in buffers]
    here = [table[var] for var in axis_vars(op)]
    last = element_stored(kernel, values, here, places, scope)
    return allocated(buffers, sequence([*before, last]))


def element_stored(
    kernel: Kernel, values: Sequence[Expr], here: Sequence[Expr], places: Places, scope: str
) -> Statement:
    """An element of the outputs, from the values of the root's elements and through the epilogue.

    Parameters
    ----------
    here : sequence of Expr
        The indices of the element.
    scope : str
        The scope of local buffers.
    """
    results = _without_quotients(results_of(kernel, values, here), scope)
    stored, statements, values = written(results, places, scope)
    writes = [
        places.write(tensor, value, here)
        for tensor, value in zip(kernel.outputs, values, strict=True)
    ]
    return allocated(stored, sequence([*statements, *writes]))


def _without_quotients(values: Iterable[Expr], scope: str) -> list[Expr]:
    """Values of a CPU's loops without quotients that LLVM would take for those of other lanes."""
    if scope != "global":
        return list(values)
    return [rewrite(expand_lets(value), _floated) for value in values]


def _floated(node: Expr) -> Expr | None:
    """``i // 16 → int(floor(float(i) / 16))``, which is exact for int32 in float64.

    LLVM's vectors take a quotient that is the same in a vector for the same in several vectors of
    a turn, and read the wrong elements. It does not analyse floats.
    """
    if op_name(node) not in ("floordiv", "floormod") or dtype_of(node) != "int32":
        return None
    numerator, divisor = operands(node)
    d = const_value(divisor)
    if not isinstance(d, int) or d < 2 or d % 2:  # vectors have an even number of elements
        return None
    quotient = div(cast("float64", numerator), const(float(d), "float64"))
    whole = cast("int32", call("floor", quotient))
    return whole if op_name(node) == "floordiv" else sub(numerator, mul(whole, divisor))


def _reduced(
    reduction: Reduction,
    outer: Mapping[Var, Expr],
    buffers: Sequence[Local],
    places: Places,
    scope: str,
) -> list[Statement]:
    """``acc = identity; for k: acc = combine(acc, source(k))``."""
    table = dict(outer)
    loops = [
        (var, *(bound if isinstance(bound, int) else places.read(bound) for bound in bounds))
        for var, *bounds in _loops(reduction.axes, table)
    ]
    sources = _without_quotients(map(substituter(table), reduction.sources), scope)
    body = accumulated(reduction.combiner, buffers, sources, places, scope)
    identity = reduction.init or reduction.combiner.identity
    begin = [store(acc, value, []) for acc, value in zip(buffers, identity, strict=True)]
    return [*begin, _nest(loops, body)]


def accumulated(
    combiner: Combiner,
    buffers: Sequence[Local],
    sources: Sequence[Expr],
    places: Places,
    scope: str,
    at: Sequence[Expr] = (),
) -> Statement:
    """``acc[at] = combine(acc[at], sources)``, all components at once."""
    combined = combiner.apply([element(buffer, at) for buffer in buffers], sources)
    stored, statements, values = written(combined, places, scope)
    # every new value is computed before the first is stored
    several = len(values) > 1
    new = [local("new", [], dtype_of(value), scope) for value in values] if several else []
    steps = [store(place, value, []) for place, value in zip(new, values, strict=False)]
    values = [element(place, []) for place in new] or values
    steps += [store(acc, value, at) for acc, value in zip(buffers, values, strict=True)]
    return allocated([*stored, *new], sequence([*statements, *steps]))
