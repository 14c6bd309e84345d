"""Prefix reductions as scans, which are differentiated instead: reducers whose general rule would
take one step for every pair of elements.

Such a stage reduces the elements up to its own place, or from there on: ``out[i] = Π_{k<n} if k < i
then x[k] else 1``, ``out[i] = Π_{k<i+1} x[k]``. Sums and maxima have rules of their own, which keep
the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...expr.build import all_of, compare, conjuncts, const, if_then_else
from ...expr.integers.prefix_order import prefix_order
from ...expr.linear_terms import linear_terms
from ...expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    always,
    const_value,
    dtype_of,
    is_float,
    load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import depends_on, expand_lets, substituter
from ...expr.sharing.lets import merge_equal
from ...graph.bounded_stage import bounded_stage
from ...graph.sizes.equal_sizes import equal_extents
from ...graph.stage import (
    Operation,
    Reduction,
    axis_range,
    data_axis,
    is_compute,
    outputs_of,
    reduction_of,
    renew_axis,
)
from .prefix_suffix import combined_prefix_suffix, element_tensor
from .reducers import classify

#: kinds of reducers with rules of their own that keep the number of points
_LINEAR = frozenset(("sum", "max", "min", "selection"))


@dataclass(frozen=True)
class _Prefix:
    """``out[.., i, ..] = ⊕_k values(k)``, for k up to i, or from i on."""

    place: int  #: the number of the axis i
    values: tuple[Expr, ...]
    backward: bool
    inclusive: bool


def prefix_form(op: Operation) -> list[Tensor] | None:
    """A scan with the outputs of a prefix reduction; None for other stages."""
    found = reduction_of(op) if is_compute(op) else None
    if found is None or len(found.axes) != 1 or found.init or not always(found.condition):
        return None
    if not all(map(is_float, outputs_of(op))):
        return None
    if all(classify(found.combiner, n) in _LINEAR for n in range(len(found.sources))):
        return None
    prefix = _by_bound(op, found) or _by_condition(op, found)
    if prefix is None or depends_on(prefix.values, [op.axis[prefix.place].var]):
        return None
    return _scanned(op, found, prefix)


def _by_bound(op: Operation, found: Reduction) -> _Prefix | None:
    """``Π_{k<i+1} x[k]``: bounds that end at the place."""
    [axis] = found.axes
    low, extent = axis_range(axis)
    if low != 0 or isinstance(extent, int):
        return None
    for place, own in enumerate(op.axis):
        terms, constant = linear_terms(extent)
        alone = [(node_id(node), factor) for node, factor in terms] == [(node_id(own.var), 1)]
        if alone and constant in (0, 1) and axis_range(own)[0] == 0:
            return _Prefix(place, found.sources, False, constant == 1)
    return None


def _by_condition(op: Operation, found: Reduction) -> _Prefix | None:
    """``Π_{k<n} if k < i then x[k] else 1``: one condition that all sources share."""
    [axis] = found.axes
    low, extent = axis_range(axis)
    sources = merge_equal([expand_lets(source) for source in found.sources])
    if low != 0 or any(op_name(source) not in BRANCHES for source in sources):
        return None
    condition = operands(sources[0])[0]
    values = []
    for source, identity in zip(sources, found.combiner.identity, strict=True):
        same, value, other = operands(source)
        number = const_value(other)
        if node_id(same) != node_id(condition) or number is None or number != const_value(identity):
            return None
        values.append((value, other))
    parts = conjuncts(condition)
    for number, part in enumerate(parts):
        for place, own in enumerate(op.axis):
            order = prefix_order(part, axis.var, own.var)
            start, results = axis_range(own)
            if order is None or start != 0 or not equal_extents(extent, results):
                continue
            rest = all_of([*parts[:number], *parts[number + 1 :]])
            counted = tuple(if_then_else(rest, value, other) for value, other in values)
            return _Prefix(place, counted, *order)
    return None


def _scanned(op: Operation, found: Reduction, prefix: _Prefix) -> list[Tensor]:
    """The state before an element, or after it, at each place."""
    [old] = found.axes
    rows = [axis for number, axis in enumerate(op.axis) if number != prefix.place]
    count = axis_range(op.axis[prefix.place])[1]
    element = data_axis(old.var.name, count, dtype_of(old.var))
    axes = [*map(renew_axis, rows), element]
    here = [axis.var for axis in axes]
    move = substituter(dict(zip([*(axis.var for axis in rows), old.var], here, strict=True)))
    elements = {}
    for number, value in enumerate(prefix.values):
        identity = found.combiner.identity[number]
        body = _counted(prefix, element, move(expand_lets(value)), identity)
        elements[number] = element_tensor(f"{op.name}_elements", axes, body, len(rows))
    sides = combined_prefix_suffix(op.name, found.combiner, elements, {}, axes, len(rows))
    states = sides[int(prefix.backward)]
    outer = [renew_axis(axis) for axis in op.axis]
    own = _place_last(outer, prefix.place)
    values: Sequence[Expr] = [load(state, own) for state in states]
    if prefix.inclusive:
        read = [load(one, own[len(own) - len(one.shape) :]) for one in elements.values()]
        pair = (read, values) if prefix.backward else (values, read)
        values = found.combiner.apply(*pair)
    return bounded_stage(f"{op.name}_scanned", outer, list(values))


def _place_last(axes: Sequence[Axis], place: int) -> list[Expr]:
    """The variables of axes, that of one place last."""
    found = [axis.var for axis in axes]
    return [*found[:place], *found[place + 1 :], found[place]]


def _counted(prefix: _Prefix, axis: Axis, value: Expr, identity: Expr) -> Expr:
    """An element where it is reduced at some place: the last or first one may never be."""
    if prefix.inclusive:
        return value
    dtype = dtype_of(axis.var)
    if prefix.backward:
        return if_then_else(compare("ge", axis.var, const(1, dtype)), value, identity)
    count = axis_range(axis)[1]
    last = const(count - 1, dtype) if isinstance(count, int) else count - 1
    return if_then_else(compare("lt", axis.var, last), value, identity)
