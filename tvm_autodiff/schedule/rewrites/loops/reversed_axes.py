"""Reverses reduce axes whose coefficients in remainders are large, or that move reads of symbolic
tensors against an output axis.

``(i - k) % n`` has the coefficient n - 1, since those of remainders are not negative. What a tile
copies would have as many places as ``i + (n - 1)*k`` has values; from the last k on it is one more
than ``i + k`` has.

    ``Σ_{k<n} w[k] * x[(i + k*(n - 1)) % n]  →  Σ_{k<n} w[n - 1 - k] * x[(i + k + 1) % n]``

What ``i - k`` reads lies where both end, for symbolic extents; ``i + k`` begins where both do.

    ``Σ_{k<n} w[k] * x[i - k + n - 1]  →  Σ_{k<n} w[n - 1 - k] * x[i + k]``
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from ....expr.build import cast, const, like, sub
from ....expr.linear_terms import linear_terms
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    const_value,
    dtype_of,
    is_load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import contains_load, depends_on, expand_lets, postorder, rewrite, substituter
from ....expr.simplify import collect_terms, normalize_node
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    axis_range,
    is_compute,
    loop_axes,
    reduce_axis,
    reduction_bounds,
    reduction_of,
    reduction_stage,
)
from ...cost import MIN_LANES
from ...nest.decided import decided
from ...nest.reductions.commuting import commutes


def with_reversed_axes(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, with such axes of reductions from the last element on."""
    return each_stage(outputs, _reversed)


@dataclass(frozen=True)
class _Remainder:
    """A numerator by its terms: ids of the nodes, and coefficients."""

    terms: tuple[tuple[int, int], ...]
    divisor: int

    def has_any(self, variables: Container[int]) -> bool:
        """Whether one of some variables is a term."""
        return any(key in variables for key, _ in self.terms)

    def largest(self, backward: frozenset[int]) -> int:
        """The largest coefficient, in the direction in which it is smaller."""
        signed = [-c if key in backward else c for key, c in self.terms]
        ways = ([sign * c % self.divisor for c in signed] for sign in (1, -1))
        return min(max(way, default=0) for way in ways)


def _reversed(op: Operation) -> list[Tensor] | None:
    found = reduction_of(op) if is_compute(op) else None
    if found is None or found.init or not commutes(found.combiner):
        return None
    ranges = {node_id(axis.var): axis_range(axis) for axis in loop_axes(op)}
    known = {
        key: (low, low + extent - 1)
        for key, (low, extent) in ranges.items()
        if isinstance(low, int) and isinstance(extent, int)
    }
    sources = decided(
        list(map(expand_lets, found.sources)), [axis.var for axis in loop_axes(op)], known
    )
    # sums of few results have their vectors along what is summed, in the order of memory
    results = {
        node_id(axis.var)
        for axis in op.axis
        if node_id(axis.var) in known and axis_range(axis)[1] >= 2 * MIN_LANES
    }
    remainders = [one for one in _remainders(sources) if one.has_any(results)]
    backward: frozenset[int] = frozenset()
    ragged = depends_on(reduction_bounds(op), [axis.var for axis in loop_axes(op)])
    for axis in found.axes:
        key = node_id(axis.var)
        if ranges[key][0] == 0 and key in known:
            other = backward | {key}
            if _cost(remainders, other) < _cost(remainders, backward):
                backward = other
        elif ranges[key][0] == 0 and not ragged and _runs_against(axis, op.axis, sources):
            backward |= {key}
    if not backward:
        return None
    axes = [_renewed(axis) if node_id(axis.var) in backward else axis for axis in found.axes]
    table = {
        old.var: _from_the_end(new)
        for old, new in zip(found.axes, axes, strict=True)
        if node_id(old.var) in backward
    }
    move = substituter(table)
    moved = [collect_terms(rewrite(move(source), normalize_node)) for source in sources]
    made = replace(
        found, axes=tuple(axes), sources=tuple(moved), condition=move(found.condition)
    )
    return reduction_stage(op.name, list(op.axis), made)


def _runs_against(axis: Axis, spatial: Sequence[Axis], sources: Sequence[Expr]) -> bool:
    """Whether more indices of reads go down along an axis and up along an output axis than go up
    along both.
    """
    results, ahead = {node_id(one.var) for one in spatial}, 0
    for node in postorder(list(sources)):
        for index in operands(node) if is_load(node) else ():
            terms = {node_id(part): factor for part, factor in linear_terms(index)[0]}
            own = terms.get(node_id(axis.var), 0)
            if own and any(terms.get(key, 0) > 0 for key in results):
                ahead += 1 if own > 0 else -1
    return ahead < 0


def _remainders(sources: Sequence[Expr]) -> list[_Remainder]:
    found = []
    for node in postorder(list(sources)):
        if op_name(node) != "floormod":
            continue
        numerator, divisor = operands(node)
        value = const_value(divisor)
        if isinstance(value, int) and value > 0 and not contains_load(numerator):
            terms, _ = linear_terms(numerator)
            found.append(_Remainder(tuple((node_id(n), c) for n, c in terms), value))
    return found


def _cost(remainders: Sequence[_Remainder], backward: frozenset[int]) -> int:
    return sum(one.largest(backward) for one in remainders)


def _renewed(axis: Axis) -> Axis:
    return reduce_axis(axis.var.name, axis_range(axis)[1], 0, dtype_of(axis.var))


def _from_the_end(axis: Axis) -> Expr:
    extent, dtype = axis_range(axis)[1], dtype_of(axis.var)
    if isinstance(extent, int):
        return sub(const(extent - 1, dtype), axis.var)
    return sub(cast(dtype, sub(extent, like(extent, 1))), axis.var)
