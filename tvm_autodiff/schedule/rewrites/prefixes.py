"""Brings prefix reductions, in any notation, into the one form that `prefix_reductions` recognises.

    ``out[i] = ⊕_{k<n-i} f(n-1-k)           →  out[i] = ⊕_{m<n} if m >= i then f(m)``
    ``out[i] = ⊕_{k<n} if i+k < n then f(i+k)  →  out[i] = ⊕_{m<n} if m >= i then f(m)``

The reduce axis becomes the reduced element. Both sums have the same elements: the new index is a
bijection for each i, and the bounds of the old one are among the conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...expr.build import all_of, compare, conjuncts, const, if_then_else, like
from ...expr.linear_terms import linear_terms
from ...expr.nodes import (
    BRANCHES,
    COMPARISONS,
    Axis,
    Expr,
    Tensor,
    Var,
    binary,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import depends_on, expand_lets, replace_outermost, substituter
from ...expr.sharing.lets import merge_equal
from ...expr.simplify import collect_terms
from ...graph.graph import each_stage
from ...graph.stage import (
    Operation,
    Reduction,
    axis_range,
    is_compute,
    reduce_axis,
    reduction_of,
    reduction_stage,
)
from ..cost import MAX_COPIES
from ..nest.access import affine_forms, combine
from ..nest.reductions.commuting import commutes
from ..nest.reductions.prefix_reductions import prefix_reduction_of

#: comparison → sign and shift that make it ``form >= 0``
AT_LEAST = {"ge": (1, 0), "gt": (1, -1), "le": (-1, 0), "lt": (-1, -1)}


@dataclass(frozen=True)
class _Bound:
    """``k*of_summed + i*of_axis + constant >= 0``."""

    of_summed: int
    of_axis: int
    constant: int

    def least(self, extent: int) -> int:
        """The smallest value of the left side for k and i in ``0 .. extent - 1``."""
        terms = (self.of_summed, self.of_axis)
        return self.constant + sum(min(0, factor * (extent - 1)) for factor in terms)

    def moved(self, place: _Place) -> _Bound:
        """The bound in terms of the new index."""
        return _Bound(
            self.of_summed * place.sign,
            self.of_axis + self.of_summed * place.slope,
            self.constant + self.of_summed * place.constant,
        )


@dataclass(frozen=True)
class _Place:
    """``k = sign*m + slope*i + constant``: the old index by the new one."""

    sign: int
    slope: int
    constant: int


def with_prefixes_in_order(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, with prefix reductions in the form that is scheduled as a scan."""
    return each_stage(outputs, in_order)


def in_order(op: Operation) -> list[Tensor] | None:
    """The stage in order; None for other stages, and for those already in order."""
    found = reduction_of(op) if is_compute(op) else None
    if found is None or len(found.axes) != 1 or found.init:
        return None
    if prefix_reduction_of(op) is not None:
        return None
    values, conditions = _guarded(found)
    for axis in op.axis:
        made = _along(axis, found, values, conditions)
        if made is None:
            continue
        ordered = reduction_stage(op.name, list(op.axis), made)
        if prefix_reduction_of(ordered[0].op) is not None:
            return ordered
    return None


def _guarded(found: Reduction) -> tuple[list[Expr], list[Expr]]:
    """``if c then f else identity → f, c`` for all sources."""
    sources = merge_equal(list(map(expand_lets, found.sources)))
    choices = [operands(source) for source in sources if op_name(source) in BRANCHES]
    if len(choices) < len(sources) or len({node_id(condition) for condition, *_ in choices}) > 1:
        return sources, []
    others = [const_value(otherwise) for *_, otherwise in choices]
    if None in others or others != list(map(const_value, found.combiner.identity)):
        return sources, []
    return [value for _, value, _ in choices], conjuncts(choices[0][0])


def _along(
    axis: Axis, found: Reduction, values: Sequence[Expr], conditions: Sequence[Expr]
) -> Reduction | None:
    low, extent = axis_range(axis)
    [summed] = found.axes
    if low != 0 or not isinstance(extent, int) or extent < MAX_COPIES:
        return None
    variables = [axis.var, summed.var]
    start, size = (_expression(bound, summed.var) for bound in axis_range(summed))
    known = [_bound(condition, variables) for condition in conditions]
    bounds = [bound for bound in known if bound is not None]
    rest = [c for c, bound in zip(conditions, known, strict=True) if bound is None]
    for limit in (_at_most(start, summed.var), _at_most(summed.var + 1, start + size)):
        ways = [_bound(way, variables) for way in limit]
        if not any(way is not None and _implied(way, bounds) for way in ways):
            if len(ways) != 1 or ways[0] is None:
                return None
            bounds.append(ways[0])
    last = extent - 1
    for place in (
        *(_Place(1, 0, 0), _Place(-1, 0, last), _Place(1, -1, 0)),
        *(_Place(-1, 1, 0), _Place(-1, -1, last), _Place(1, 1, -last)),
    ):
        order = _order([bound.moved(place) for bound in bounds], extent)
        if order is None:
            continue
        made = reduce_axis(summed.var.name, extent, 0, dtype_of(summed.var))
        move = substituter({summed.var: _written(place, made.var, axis.var)})
        if place.sign < 0 and not commutes(found.combiner):
            continue
        pairs = list(zip(values, found.combiner.identity, strict=True))
        moved = [collect_terms(move(if_then_else(all_of(rest), a, b))) for a, b in pairs]
        if depends_on(moved, [axis.var]):
            continue
        guards = all_of([_condition(bound, made.var, axis.var) for bound in order])
        others = zip(moved, found.combiner.identity, strict=True)
        sources = tuple(if_then_else(guards, value, other) for value, other in others)
        return replace(found, axes=(made,), sources=sources)
    return None


def _at_most(left: Expr, right: Expr) -> list[Expr]:
    """``k + 1 <= 16 - min(i, 15) → k + 1 <= 16 - i or k + 1 <= 1``: alternative conditions."""
    difference = right - left
    for node, factor in linear_terms(difference)[0]:
        if (op_name(node), factor) in (("min", -1), ("max", 1)):
            return [
                compare("ge", replace_outermost(difference, {node_id(node): part}), like(left, 0))
                for part in operands(node)
            ]
    return [compare("le", left, right)]


def _implied(bound: _Bound, others: Sequence[_Bound]) -> bool:
    """Whether one of the others is at least as strong."""
    factors = (bound.of_summed, bound.of_axis)
    return any(
        (other.of_summed, other.of_axis) == factors and other.constant <= bound.constant
        for other in others
    )


def _expression(bound: Expr | int, like: Var) -> Expr:
    return const(bound, dtype_of(like)) if isinstance(bound, int) else bound


def _bound(condition: Expr, variables: Sequence[Var]) -> _Bound | None:
    """A condition on the two variables alone, each with a factor of 1, 0 or -1."""
    name = op_name(condition)
    if name not in COMPARISONS or name not in AT_LEAST or not is_integer(operands(condition)[0]):
        return None
    left, right = operands(condition)
    forms = affine_forms([left, right], list(variables))
    a, b = forms.get(node_id(left)), forms.get(node_id(right))
    if a is None or b is None:
        return None
    form = combine(a, b, -1, {node_id(var): number for number, var in enumerate(variables)})
    sign, shift = AT_LEAST[name]
    of_axis, of_summed = (sign * form.coefficient(node_id(var)) for var in variables)
    if abs(of_axis) > 1 or abs(of_summed) > 1:
        return None
    return _Bound(of_summed, of_axis, sign * form.constant + shift)


def _order(bounds: Sequence[_Bound], extent: int) -> list[_Bound] | None:
    """The bounds that matter within ``0 .. extent - 1``.

    None if they admit an element outside of it, or do not compare the index with the axis.
    """
    last = extent - 1
    above = any(
        b.of_summed == 1 and min(-b.constant, -b.constant - b.of_axis * last) >= 0 for b in bounds
    )
    below = any(
        b.of_summed == -1 and max(b.constant, b.constant + b.of_axis * last) <= last for b in bounds
    )
    tightest: dict[tuple[int, int], _Bound] = {}
    for bound in sorted(bounds, key=lambda bound: -bound.constant):
        tightest[bound.of_summed, bound.of_axis] = bound
    kept = [bound for bound in tightest.values() if bound.least(extent) < 0]
    orders = [bound for bound in kept if bound.of_axis]
    if not above or not below or len(orders) != 1 or orders[0].of_summed != -orders[0].of_axis:
        return None
    [order] = orders
    # m >= i + c holds for some i only if m >= c, and m <= i + c only if m <= last + c
    most = order.constant if order.of_summed > 0 else order.constant + last
    return [
        bound
        for bound in kept
        if bound.of_axis or bound.of_summed != order.of_summed or bound.constant < most
    ]


def _written(place: _Place, index: Var, axis: Var) -> Expr:
    """``sign*m + slope*i + constant`` in the type of m."""
    dtype = dtype_of(index)
    terms = ((place.sign, index), (place.slope, axis.astype(dtype)))
    total: Expr = const(place.constant, dtype)
    for factor, var in terms:
        if factor:
            total = binary("add" if factor > 0 else "sub", total, var)
    return total


def _condition(bound: _Bound, index: Var, axis: Var) -> Expr:
    """``m >= i + c`` and the like."""
    dtype = dtype_of(index)
    place = _Place(bound.of_summed, bound.of_axis, bound.constant)
    if bound.of_axis and not bound.constant:
        name = "ge" if bound.of_summed > 0 else "le"
        return compare(name, index, axis.astype(dtype))
    return compare("ge", _written(place, index, axis), const(0, dtype))
