"""Schedules reductions over masks: the maxima of segments, and where they are.

Each element is combined with the one result that it belongs to. Axes of the result that the mask
does not depend on are inside, others are outside and shared by threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...codegen.loop_nest import (
    SERIAL,
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
    nested,
    parameter,
    sequence,
    store,
    when,
)
from ...codegen.stages.primfunc import StageFunction, external_reads
from ...expr.build import all_of, cast, compare, const, select, variable
from ...expr.nodes import Expr, Var, const_value, dtype_of
from ...expr.rewrite import depends_on, substituter
from ...graph.kinds.scatter_add import inside, nest_index
from ...graph.stage import (
    Extent,
    axis_range,
    axis_vars,
    bounds_of,
    index_dtype,
    outputs_of,
    reduction_of,
)
from ..declined import Declined, other_kind
from ..kernel import Kernel, size_of
from ..machine import Machine
from ..nest.reductions.masked_reductions import MaskedReduction, masked_reduction_of
from ..rule import Made, Rest
from .loops.parallel import shared_loops


def masked_reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a reduction whose elements belong to the results that data name."""
    found = masked_reduction_of(kernel.root)
    if found is None:
        return other_kind("no data tell which of many results an element belongs to")
    made = _Nest(Kernel(kernel.root), found, machine).function()
    return [made] if kernel.epilogue is None else [made, Rest(Kernel(kernel.epilogue))]


class _Nest:
    """The loops of one reduction over a mask.

    Elements outside of the mask of a result are the same for it, so that it takes the first of
    them. This is the first element of all, but for the one result that this belongs to: `first`
    is its index until an element follows that belongs to another one.
    """

    def __init__(self, kernel: Kernel, masked: MaskedReduction, machine: Machine) -> None:
        self.masked, self.op = masked, kernel.root
        reduction = reduction_of(self.op)
        assert reduction is not None
        self.combiner, self.axes = reduction.combiner, reduction.axes
        self.outputs = outputs_of(self.op)
        self.inputs = external_reads(kernel.ops)
        self.places, self.buffers = Places.of(self.inputs)
        self.outs = [parameter(t, f"out{n}") for n, t in enumerate(self.outputs)]
        self.result = self.op.axis[masked.axis]
        self.extent = axis_range(self.result)[1]
        mask = [masked.place, *masked.before, *masked.after]
        rest = [axis for number, axis in enumerate(self.op.axis) if number != masked.axis]
        self.outer = [axis for axis in rest if depends_on(mask, [axis.var])]
        self.inner = [axis for axis in rest if not depends_on(mask, [axis.var])]
        self.dtype = index_dtype(self.extent)
        self.first, self.hit = (local(name, [1], self.dtype) for name in ("first", "hit"))
        combined = [*self.axes, *self.outer, *self.inner]
        work = size_of([axis_range(axis)[1] for axis in combined], machine.symbolic_size)
        self.threads = machine.threads if machine.worth_threads(work) else 1

    def function(self) -> StageFunction:
        """The nest as a function."""
        body = self._begun()
        elements = self._element()
        for axis in reversed(self.axes):
            low, extent = (self.places.read(bound) for bound in bounds_of(axis))
            elements = loop(axis.var, extent, elements, SERIAL, low)
        body = allocated([self.first, self.hit], sequence([*body, elements]))
        loops = [(axis.var, axis_range(axis)[1]) for axis in self.outer]
        func = function([*self.buffers, *self.outs], shared_loops(loops, body, self.threads))
        return StageFunction(func, tuple(self.inputs), tuple(self.outputs))

    def _begun(self) -> list[Statement]:
        """``first = the result of the first element; out[n] = first other element, or identity``.
        """
        identity = list(self.combiner.identity)
        var = variable(self.result.var.name, dtype_of(self.result.var))
        if self.masked.others is None:
            return [self._over([(var, self.extent)], self._stored(var, identity))]
        begin = substituter({axis.var: bounds_of(axis)[0] for axis in self.axes})
        others = self.combiner.apply(identity, [begin(one) for one in self.masked.others])
        extents = [bounds_of(axis)[1] for axis in self.axes]
        symbolic = [extent for extent in extents if const_value(extent) is None]
        exists = [compare("gt", extent, const(0, dtype_of(extent))) for extent in symbolic]
        none = _set(self.first, const(-1, self.dtype))
        found = when(all_of(exists), self._found(self.first, begin))
        takes = all_of([compare("ne", cast(self.dtype, var), _read(self.first)), *exists])
        start = [select(takes, a, b) for a, b in zip(others, identity, strict=True)]
        return [none, found, self._over([(var, self.extent)], self._stored(var, start))]

    def _element(self) -> Statement:
        """What one element changes."""
        added = self._combined(_read(self.hit), self.masked.members)
        hits = [
            _set(self.hit, const(-1, self.dtype)),
            self._found(self.hit, substituter({})),
        ]
        counts = when(_is_set(self.hit), added)
        if self.masked.others is None:
            return sequence([*hits, counts])
        other = self._combined(_read(self.first), self.masked.others)
        gone = _set(self.first, const(-1, self.dtype))
        differs = compare("ne", _read(self.hit), _read(self.first))
        miss = when(all_of([_is_set(self.first), differs]), sequence([other, gone]))
        return sequence([*hits, miss, counts])

    def _found(self, into: Local, move: Callable[[Expr], Expr]) -> Statement:
        """``if before: p = place; if 0 <= p < N and after: into = p``, at an element."""
        masked = self.masked
        place = variable("place", dtype_of(masked.place))
        at = variable("at", self.dtype)
        index = nest_index(place)
        here = substituter({self.result.var: cast(dtype_of(self.result.var), at)})
        after = [self.places.read(here(move(one))) for one in masked.after]
        body: Statement = _set(into, at)
        for condition in reversed(after):
            body = when(condition, body)
        body = sequence([bind(at, cast(self.dtype, index)), body])
        body = when(all_of(inside(index, self.op.output(0).shape[masked.axis])), body)
        body = sequence([bind(place, self.places.read(move(masked.place))), body])
        for condition in reversed(masked.before):
            body = when(self.places.read(move(condition)), body)
        return body

    def _combined(self, at: Expr, values: Sequence[Expr]) -> Statement:
        """``out[at] ⊕= values`` along the inner axes."""
        var = variable(self.result.var.name, dtype_of(self.result.var))
        here = substituter({self.result.var: var})
        index = self._index(var)
        before = [element(out, index) for out in self.outs]
        read = [self.places.read(here(value)) for value in values]
        bound, after = combination(self.combiner, before, read)
        new = [variable("new", dtype_of(value)) for value in after]
        stores = [store(out, one, index) for out, one in zip(self.outs, new, strict=True)]
        body = self._over([], sequence([*bound, *map(bind, new, after), *stores]))
        return sequence([bind(var, cast(dtype_of(var), at)), body])

    def _stored(self, var: Var, values: Sequence[Expr]) -> Statement:
        index = self._index(var)
        here = substituter({self.result.var: var})
        read = [self.places.read(here(value)) for value in values]
        return sequence([store(o, v, index) for o, v in zip(self.outs, read, strict=True)])

    def _index(self, result: Var) -> list[Expr]:
        index: list[Expr] = list(axis_vars(self.op))
        index[self.masked.axis] = result
        return index

    def _over(self, loops: Sequence[tuple[Var, Extent]], body: Statement) -> Statement:
        return nested([*loops, *((a.var, axis_range(a)[1]) for a in self.inner)], body)


def _set(place: Local, value: Expr) -> Statement:
    return store(place, value, [const(0, "int32")])


def _read(place: Local) -> Expr:
    return element(place, [const(0, "int32")])


def _is_set(place: Local) -> Expr:
    return compare("ge", _read(place), const(0, dtype_of(_read(place))))
