"""Reductions up to a place that is computed look their results up in a prefix reduction.

    ``y[b, i] = Σ_{k<n} if k <= g(i) then f(b, k)  →  p[b, j] = Σ_{k<n} if k <= j then f(b, k);
    y[b, i] = if g(i) >= 0 then p[b, min(g(i), n - 1)]``

A prefix reduction takes one step for each element, and a lookup one for each result. The place may
be data, another function of the axes than the axis itself, or an axis of another length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from ...expr.build import add, all_of, compare, conjuncts, const, if_then_else, select, sub
from ...expr.linear_terms import linear_sum, linear_terms
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    binary,
    const_value,
    dtype_of,
    is_integer,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import depends_on, expand_lets, loaded_tensors, postorder, substituter
from ...expr.simplify import collect_terms, prove, simplify
from ...graph.graph import each_stage
from ...graph.sizes.equal_sizes import equal_extents
from ...graph.sizes.nonnegative import nonnegative
from ...graph.stage import (
    Combiner,
    Extent,
    Operation,
    Reduction,
    axis_range,
    data_axis,
    is_compute,
    make_stage,
    reduce_axis,
    reduce_axis_over,
    reduction_of,
    reduction_stage,
    shape_of,
)
from ...graph.structural import EqualStages
from ..cost import MAX_COPIES, STORE
from ..kernel import size_of
from ..nest.in_range import is_safe, loops_of
from ..nest.reductions.prefix_reductions import is_number, is_short, prefix_reduction_of
from .prefixes import AT_LEAST


def with_prefix_lookups(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, with lookups in prefix reductions."""
    equal = EqualStages()  # several results may look up in the same one
    return each_stage(outputs, lambda op: looked_up(op, equal))


@dataclass(frozen=True)
class _Place:
    """``m = sign*k + offset``: an index that counts the elements for all results alike."""

    sign: int
    offset: Expr

    def element(self, index: Expr) -> Expr:
        """The reduce axis by the index."""
        return sub(index, self.offset) if self.sign > 0 else sub(self.offset, index)


@dataclass(frozen=True)
class _Bounds:
    """``low <= m <= high`` for each of the lower and upper bounds."""

    lower: tuple[Expr, ...] = ()
    upper: tuple[Expr, ...] = ()

    def apart(self, variables: Sequence[Var]) -> tuple[_Bounds, _Bounds]:
        """Those that are the same for all results, and those that are not."""
        fixed, moving = (
            _Bounds(
                tuple(b for b in self.lower if depends_on(b, variables) == moves),
                tuple(b for b in self.upper if depends_on(b, variables) == moves),
            )
            for moves in (False, True)
        )
        return fixed, moving


@dataclass(frozen=True)
class _Range:
    """``start <= m < start + extent``: the elements of the prefix reduction, and up to which place
    each result counts them, from the last one on if `backward`.
    """

    start: Expr
    extent: Extent
    place: Expr
    backward: bool


def looked_up(op: Operation, equal: EqualStages | None = None) -> list[Tensor] | None:
    """One stage with lookups in a prefix reduction, `equal` to one that was made before; None if it
    has none.
    """
    equal = EqualStages() if equal is None else equal
    found = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if found is None or len(found.axes) != 1 or found.init or not const_value(found.condition):
        return None
    if not len(op.axis) or not all(is_number(axis_range(axis)[0], 0) for axis in op.axis):
        return None
    if prefix_reduction_of(op) is not None:
        return None
    parts = _choice(found)
    if parts is None:
        return None
    for place in _places(found, parts[1]):
        made = _Lookup(op, found, place, *parts).stages(equal)
        if made is not None:
            return made
    return None


def _choice(found: Reduction) -> tuple[list[Expr], Expr, Expr] | None:
    """``if c then f else e → c, f, e`` where e is a number: the identity, or what an extreme takes
    for each of the elements that do not count.
    """
    source, identity = expand_lets(found.sources[0]), found.combiner.identity[0]
    if op_name(source) not in ("if_then_else", "select"):
        return [], source, identity
    condition, value, otherwise = operands(source)
    other = const_value(otherwise)
    if other is None:
        return None
    if other == const_value(identity):
        return conjuncts(condition), value, identity
    return (conjuncts(condition), value, otherwise) if _is_extreme(found.combiner) else None


def _is_extreme(combiner: Combiner) -> bool:
    """Whether the largest or the smallest value is the result, however often it is there."""
    [result] = combiner.result
    formal = {node_id(combiner.lhs[0]), node_id(combiner.rhs[0])}
    return op_name(result) in ("max", "min") and set(map(node_id, operands(result))) == formal


def _places(found: Reduction, value: Expr) -> Iterator[_Place]:
    """The reduce axis, and the indices of reads that move along with it."""
    [axis] = found.axes
    yield _Place(1, const(0, dtype_of(axis.var)))
    seen: set[int] = set()
    for read in postorder(value):
        for index in operands(read) if is_load(read) else ():
            if node_id(index) in seen or dtype_of(index) != dtype_of(axis.var):
                continue
            seen.add(node_id(index))
            part = _linear(index, axis.var)
            if part is not None and const_value(part[1]) is None:
                yield _Place(*part)


def _linear(expr: Expr, var: Var) -> tuple[int, Expr] | None:
    """The factor, 1 or -1, of a variable in a linear form, and the rest; None for others."""
    terms, constant = linear_terms(expr)
    factor = sum(k for node, k in terms if node_id(node) == node_id(var))
    rest = [(node, k) for node, k in terms if node_id(node) != node_id(var)]
    if abs(factor) != 1 or any(depends_on(node, [var]) for node, _ in rest):
        return None
    return factor, linear_sum(rest, constant, dtype_of(var))


class _Lookup:
    """A reduction by an index that counts the elements."""

    def __init__(
        self,
        op: Operation,
        found: Reduction,
        place: _Place,
        conditions: Sequence[Expr],
        value: Expr,
        other: Expr,
    ) -> None:
        self.op, self.found, self.other = op, found, other
        [self.summed] = found.axes
        self.dtype = dtype_of(self.summed.var)
        self.identity = found.combiner.identity[0]
        low, extent = (self._number(bound) for bound in axis_range(self.summed))
        self.place = place
        self.ranges = {axis.var: axis_range(axis) for axis in op.axis}
        self.within = self._bounds([(1, low), (-1, sub(add(low, extent), const(1, self.dtype)))])
        solved = [self._solved(condition) for condition in conditions]
        self.guards = self._bounds([bound for bound in solved if bound is not None])
        rest = [c for c, bound in zip(conditions, solved, strict=True) if bound is None]
        self.outside = [c for c in rest if not depends_on(c, [self.summed.var])]
        inner = [c for c in rest if depends_on(c, [self.summed.var])]
        self.value = if_then_else(all_of(inner), value, other) if inner else value

    def stages(self, equal: EqualStages) -> list[Tensor] | None:
        """The lookups in a prefix reduction, or None where there is none, or it does not pay."""
        index = data_axis("m", 1, self.dtype).var
        move = substituter({self.summed.var: self.place.element(index)})
        value = collect_terms(move(self.value))
        span = self._range(value, index)
        if span is None or is_short(span.extent):
            return None
        used = [axis for axis in self.op.axis if depends_on(value, [axis.var])]
        free = [axis for axis in self.op.axis if not depends_on(value, [axis.var])]
        if size_of([axis_range(axis)[1] for axis in free]) < MAX_COPIES:
            return None
        size = size_of([*(axis_range(axis)[1] for axis in used), span.extent])
        tensors = [self.op.output(0), *loaded_tensors(value)]
        if size > STORE * max(size_of(shape_of(tensor)) for tensor in tensors):
            return None
        return self._made(value, index, span, free, equal)

    def _made(
        self, value: Expr, index: Var, span: _Range, free: Sequence[Axis], equal: EqualStages
    ) -> list[Tensor] | None:
        """The stages; the elements lie along the first axis that the value does not depend on."""
        first = self.op.axis.index(free[0]) if free else 0
        exact = self._is_axis(span, free)
        apart = {node_id(axis.var) for axis in free}
        rename: dict[Var, Expr] = {}
        axes: list[Axis] = []
        for number, axis in enumerate(self.op.axis):
            if number == first:
                along = data_axis("place", nonnegative(span.extent), self.dtype)
                axes.append(along)
            elif node_id(axis.var) not in apart:
                axes.append(data_axis(axis.var.name, axis_range(axis)[1], dtype_of(axis.var)))
                rename[axis.var] = axes[-1].var
        # a range of negative length has no elements, which a proof need not know
        element = reduce_axis(self.summed.var.name, span.extent, 0, self.dtype)
        rename[index] = add(element.var, span.start)
        body = collect_terms(substituter(rename)(value))
        if not is_safe([body], loops_of([*axes, element]), thorough=True):
            return None
        element = reduce_axis_over(element.var, nonnegative(span.extent))
        counts = compare("ge" if span.backward else "le", element.var, along.var)
        source = if_then_else(counts, body, self.identity)
        made = replace(self.found, axes=(element,), sources=(source,))
        name = self.op.name if exact else f"{self.op.name}_prefix"
        [prefix] = reduction_stage(name, axes, made)
        if prefix_reduction_of(prefix.op) is None:
            return None
        if exact:
            return [prefix]
        tensor = equal.first(prefix.op).output(0)
        return self._looking_up(tensor, span, first, apart)

    def _looking_up(
        self, tensor: Tensor, span: _Range, first: int, apart: set[int]
    ) -> list[Tensor]:
        """``y[i] = p[place(i)]``, within the elements that there are."""
        last = self._last(span.extent)
        zero = const(0, self.dtype)
        if span.backward:
            at = binary("max", span.place, zero)
            exist, more = compare("le", at, last), compare("gt", at, zero)
            at = span.place if self._holds("ge", span.place, zero) else at
        else:
            at = binary("min", span.place, last)
            exist, more = compare("ge", at, zero), compare("lt", at, last)
            at = span.place if self._holds("le", span.place, last) else at
        indices: list[Expr] = []
        for number, axis in enumerate(self.op.axis):
            if number == first:
                indices.append(at)
            elif node_id(axis.var) not in apart:
                indices.append(axis.var)
        known = prove(exist, self.ranges)
        conditions = [*self.outside, *([] if known else [exist])]
        value = load(tensor, indices)
        if conditions:
            value = if_then_else(all_of(conditions), value, self.identity)
        if node_id(self.other) != node_id(self.identity):
            if not isinstance(span.extent, int):
                more = all_of([more, compare("ge", last, zero)])
            other = select(more, self.other, self.identity)
            [value] = self.found.combiner.apply([value], [other])
        return make_stage(self.op.name, list(self.op.axis), [value])

    def _is_axis(self, span: _Range, free: Sequence[Axis]) -> bool:
        """Whether the prefix reduction is the result: a place for each element, in order."""
        if len(free) != 1 or self.outside or node_id(self.other) != node_id(self.identity):
            return False
        same = node_id(span.place) == node_id(free[0].var)
        return same and equal_extents(span.extent, axis_range(free[0])[1])

    def _range(self, value: Expr, index: Var) -> _Range | None:
        """The elements, and how many count for a result; None if not all from an end on do."""
        variables = [axis.var for axis in self.op.axis]
        every = _Bounds(
            (*self.within.lower, *self.guards.lower), (*self.within.upper, *self.guards.upper)
        )
        fixed, moving = every.apart(variables)
        if node_id(self.other) != node_id(self.identity):
            # what does not count is then all that the guards leave out
            of_guards, _ = self.guards.apart(variables)
            _, of_axis = self.within.apart(variables)
            if of_guards != _Bounds() or of_axis != _Bounds() or self.outside:
                return None
        one = const(1, self.dtype)
        start = self._one("max", fixed.lower)
        end = self._one("min", fixed.upper)
        if start is not None and all(self._holds("le", low, start) for low in moving.lower):
            if end is None:
                end = self._least_dimension(value, index, moving.upper)
            if end is None or not moving.upper:
                return None
            place = reduce(lambda a, b: binary("min", a, b), moving.upper)
            return self._span(start, sub(add(end, one), start), sub(place, start), False)
        if end is not None and all(self._holds("ge", high, end) for high in moving.upper):
            zero = const(0, self.dtype)
            if start is None and any(self._holds("ge", low, zero) for low in moving.lower):
                start = zero
            if start is None or not moving.lower:
                return None
            place = reduce(lambda a, b: binary("max", a, b), moving.lower)
            return self._span(start, sub(add(end, one), start), sub(place, start), True)
        return None

    def _span(self, start: Expr, extent: Expr, place: Expr, backward: bool) -> _Range:
        size = simplify(extent)
        known = const_value(size)
        number: Extent = size if known is None else max(int(known), 0)
        return _Range(simplify(start), number, simplify(place), backward)

    def _least_dimension(
        self, value: Expr, index: Var, places: Sequence[Expr]
    ) -> Expr | None:
        """The last element of a dimension that the index runs along and that no place exceeds."""
        for read in postorder(value):
            if not is_load(read):
                continue
            for one, dim in zip(operands(read), shape_of(load_tensor(read)), strict=True):
                if node_id(one) != node_id(index):
                    continue
                last = self._last(dim)
                if any(self._holds("le", place, last) for place in places):
                    return last
        return None

    def _one(self, name: str, bounds: Sequence[Expr]) -> Expr | None:
        """The strictest of fixed bounds."""
        return simplify(reduce(lambda a, b: binary(name, a, b), bounds)) if bounds else None

    def _holds(self, name: str, left: Expr, right: Expr) -> bool:
        return prove(compare(name, left, right), self.ranges)

    def _solved(self, condition: Expr) -> tuple[int, Expr] | None:
        """``k >= e → 1, e`` and ``k <= e → -1, e``; None for other conditions."""
        if op_name(condition) not in AT_LEAST or not is_integer(operands(condition)[0]):
            return None
        left, right = operands(condition)
        if dtype_of(left) != self.dtype or dtype_of(right) != self.dtype:
            return None
        sign, shift = AT_LEAST[op_name(condition)]
        part = _linear(sub(left, right), self.summed.var)
        if part is None:
            return None
        # sign*(factor*k + rest) + shift >= 0
        factor, rest = sign * part[0], part[1]
        zero = const(0, self.dtype)
        rest = add(rest if sign > 0 else sub(zero, rest), const(shift, self.dtype))
        return factor, (sub(zero, rest) if factor > 0 else rest)

    def _bounds(self, bounds: Sequence[tuple[int, Expr]]) -> _Bounds:
        """The bounds of the reduce axis as those of the index."""
        lower: list[Expr] = []
        upper: list[Expr] = []
        for side, bound in bounds:
            signed = bound if self.place.sign > 0 else sub(const(0, self.dtype), bound)
            moved = simplify(add(signed, self.place.offset))
            (lower if side * self.place.sign > 0 else upper).append(moved)
        return _Bounds(tuple(lower), tuple(upper))

    def _last(self, extent: Extent) -> Expr:
        one = const(1, self.dtype)
        return const(extent - 1, self.dtype) if isinstance(extent, int) else sub(extent, one)

    def _number(self, bound: Extent) -> Expr:
        return const(bound, self.dtype) if isinstance(bound, int) else bound
