"""Reduces over the axes of a window one after the other, where they move different places.

A box of nine by nine points takes eighteen steps for each result instead of 81, and so does a
window whose weights are a product. What the first axis makes is computed for all places of the
others at once: ``i + a`` and ``j + b`` are places of two dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from ....expr.build import (
    add,
    all_of,
    conjuncts,
    if_then_else,
    like,
    mul,
    sum_of,
    zero_like,
)
from ....expr.costly import may_be_infinite
from ....expr.factoring import conditional_factors
from ....expr.integers.intervals import Intervals, range_intervals
from ....expr.linear_terms import linear_terms
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    same_node,
    tensor_key,
)
from ....expr.rewrite import (
    contains_load,
    depends_on,
    expand_lets,
    postorder,
    substituter,
    variables_of,
)
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    data_axis,
    is_compute,
    reduction_of,
    reduction_stage,
    renew_axis,
)
from ....rules.reductions.arg_reduction import takes_first_best
from ....rules.reductions.reducers import classify
from ...cost import LAUNCH_CYCLES, MARGIN, MIN_LANES, STORE
from ...kernel import iterations, size_of
from ...nest.access import strides_along
from ...nest.in_range import loops_of, range_conditions
from .moved_places import MovedPlaces

#: kinds of reducers that may take their elements in any order
_KINDS = ("sum", "max", "min")


@dataclass(frozen=True)
class _Split:
    """The reduction of what a stage has reduced over one axis; `steps` is what both take, in points
    of a reduction.
    """

    rest: Reduction
    steps: float


def with_separated_windows(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``s[i, j] = Σ_{a, b} x[i + a, j + b]  →  t[i, q] = Σ_a x[i + a, q], s[i, j] = Σ_b t[i, j +
    b]`` where that takes fewer steps; also maxima and minima, under conditions, and with factors
    that know one of the axes.
    """
    return each_stage(outputs, _separated)


def _separated(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None or reduction.init or len(reduction.axes) < 2:
        return None
    ranges = [axis_range(axis) for axis in reduction.axes]
    if not all(isinstance(part, int) for pair in ranges for part in pair):
        return None
    kind = _kind(reduction)
    points = prod(int(extent) for _, extent in ranges)
    if kind is None or points < STORE or iterations(op) < LAUNCH_CYCLES:
        return None
    best, limit = None, _steps(op.axis, reduction) / MARGIN
    for axes in _first(reduction):
        for together in (False, True):
            split = _split(op, reduction, kind, axes, together, limit)
            if split is not None:
                best, limit = split, split.steps
    if best is None:
        return None
    made = reduction_stage(op.name, list(op.axis), best.rest)
    return _separated(made[0].op) or made


def _kind(reduction: Reduction) -> str | None:
    """The kind of the reducer of values; the place of an extreme may come with it."""
    if len(reduction.sources) == 1:
        kind = classify(reduction.combiner, 0)
        return kind if kind in _KINDS else None
    return "selection" if takes_first_best(reduction.combiner) else None


def _first(reduction: Reduction) -> list[tuple[Axis, ...]]:
    """What may be reduced first: each axis, and axes that move the same places, ``x[8*a + p]``."""
    single = [(axis,) for axis in reduction.axes]
    together = list(single)
    reads = [node for node in postorder(list(reduction.sources)) if is_load(node)]
    for index in (index for read in reads for index in operands(read)):
        met = [axes for axes in together if depends_on(index, _variables(axes))]
        if len(met) > 1:
            together = [axes for axes in together if all(axes is not one for one in met)]
            together.append(tuple(axis for axes in met for axis in axes))
    return [*single, *(axes for axes in together if 1 < len(axes) < len(reduction.axes))]


def _variables(axes: Sequence[Axis]) -> list[Var]:
    return [axis.var for axis in axes]


def _split(
    op: Operation,
    reduction: Reduction,
    kind: str,
    first: Sequence[Axis],
    together: bool,
    limit: float,
) -> _Split | None:
    """The reduction over some axes first, if the others move other places of what it reads and it
    takes fewer steps than a limit; with `together`, also places that several axes of the result
    move.
    """
    own_vars = _variables(first)
    rest = [other for other in reduction.axes if all(other is not axis for axis in first)]
    every = _variables(rest)
    known = {one.var: axis_range(one) for one in (*op.axis, *reduction.axes)}
    intervals = Intervals(range_intervals(known))
    pairs = [_added(source, own_vars) for source in reduction.sources[1:]]
    if any(depends_on(own, every) for own, _ in pairs):
        return None
    if any(intervals.of(part)[0] < 0 for pair in pairs for part in pair):
        return None  # before the place of an identity, -1
    neutral = reduction.combiner.identity[0]
    factors = _factors(reduction.sources[0], kind, neutral)
    own = [factor for factor, _ in factors if depends_on(factor, own_vars)]
    left = [factor for factor, _ in factors if not depends_on(factor, own_vars)]
    conditions = list({node_id(c): c for _, cs in factors for c in cs}.values())
    kept = [axis for axis in rest if _beside(own, own_vars, axis.var)]
    others = [axis.var for axis in rest if all(axis is not one for one in kept)]
    inside = [c for c in conditions if depends_on(c, own_vars)]
    outside = [c for c in conditions if not depends_on(c, own_vars)]
    if not own or any(depends_on(c, others) or contains_load(c) for c in inside):
        return None
    if any(axis_range(axis)[0] != 0 for axis in kept):
        return None
    # factors outside, without the conditions on the first axes under which they are written
    freed = [
        factor
        for factor, cs in factors
        if not depends_on(factor, own_vars) and any(depends_on(c, own_vars) for c in cs)
    ]
    if any(may_be_infinite(factor) for factor in freed):
        return None  # where nothing is summed, it would be multiplied by zero
    if any(op_name(node) == "if_then_else" for node in postorder(freed)):
        return None  # whose reads may be in bounds by both conditions
    axes_of_results = _variables(op.axis) if together else []
    moved = MovedPlaces(own_vars, others, axes_of_results, known)
    fixed = [moved.over_places(factor) for factor in own]
    if None in fixed or not moved.places:
        return None
    within = [factor for factor in fixed if factor is not None]
    spatial = [one for one in op.axis if depends_on([*within, *inside], [one.var])]
    places = {node_id(one.var): (renew_axis(one), one.var) for one in spatial}
    places |= {node_id(one.var): (_as_data(one), one.var) for one in kept}
    again = [renew_axis(axis) for axis in first]
    renamed_axes = dict(zip(own_vars, _variables(again), strict=True))
    rename = substituter({**renamed_axes, **{old: new.var for new, old in places.values()}})
    places |= {node_id(one.var): (one, index) for one, index in moved.places}
    found = [places[key] for key in _in_memory(within, places)]
    axes = [one for one, _ in found]
    renamed, needed = list(map(rename, within)), list(map(rename, inside))
    shown = [rename(own) for own, _ in pairs]

    def reduced(conditions: Sequence[Expr]) -> tuple[Reduction, list[Expr]]:
        """The reduction over the first axes, and reads of its results."""
        source = _under(conditions, _product(renamed), neutral)
        inner = replace(reduction, axes=tuple(again), sources=(source, *shown))
        part = reduction_stage(f"{op.name}_{own_vars[0].name}", axes, inner)
        return inner, [load(tensor, [index for _, index in found]) for tensor in part]

    def after(reads: Sequence[Expr], conditions: Sequence[Expr]) -> Reduction:
        """The reduction of these reads."""
        value, *shows = reads
        value = _under(conditions, _product([*left, value]), neutral)
        shows = [add(one, other) for one, (_, other) in zip(shows, pairs, strict=True)]
        return replace(reduction, axes=tuple(rest), sources=(value, *shows))

    inner, reads = reduced(needed)
    stored = size_of([axis_range(one)[1] for one in axes]) * STORE / _lanes(axes, inner)
    steps = _steps(axes, inner) + stored + _steps(op.axis, after(reads, outside))
    if steps >= limit:
        return None  # before the conditions that keep reads in bounds are proved
    needed += range_conditions(renamed, loops_of([*axes, *again]), needed)
    _, reads = reduced(needed)
    # the conditions on the first axes may have kept these reads in bounds
    outside += range_conditions([*freed, reads[0]], loops_of([*op.axis, *rest]), outside)
    return _Split(after(reads, outside), steps)


def _beside(factors: Sequence[Expr], own: Sequence[Var], var: Var) -> bool:
    """``x[2*j + b]``: whether a variable stands in one index with others, so that a sum over those
    has a value for each of its values.
    """
    reads = [node for node in postorder(list(factors)) if is_load(node)]
    indices = [index for read in reads for index in operands(read)]
    return any(depends_on(index, own) and depends_on(index, [var]) for index in indices)


def _as_data(axis: Axis) -> Axis:
    return data_axis(axis.var.name, axis_range(axis)[1], dtype_of(axis.var))


def _added(place: Expr, variables: Sequence[Var]) -> tuple[Expr, Expr]:
    """``3*a + b + 1 → 3*a, b + 1``: what variables add to a place, and what others do."""
    terms, constant = linear_terms(expand_lets(place))
    own = [mul(node, like(node, k)) for node, k in terms if depends_on(node, variables)]
    rest = [mul(node, like(node, k)) for node, k in terms if not depends_on(node, variables)]
    return sum_of([zero_like(place), *own]), sum_of([like(place, constant), *rest])


def _steps(axes: Sequence[Axis], reduction: Reduction) -> float:
    """The points of a reduction, as many at a time as vectors take."""
    loops = [*axes, *reduction.axes]
    return size_of([axis_range(axis)[1] for axis in loops]) / _lanes(axes, reduction)


def _lanes(axes: Sequence[Axis], reduction: Reduction) -> int:
    """How many points are taken at a time: those along the last axis of the results, or a long one
    that is reduced, where reads follow in memory. Operands of products are copied so that they do.
    """
    read = [load_tensor(node) for node in postorder(list(reduction.sources)) if is_load(node)]
    if len(set(map(tensor_key, read))) > 1:
        return MIN_LANES
    if _run(reduction) >= 2 * MIN_LANES:
        return MIN_LANES
    counts = [size_of([axis_range(a)[1]]) for a in axes[-1:] if _follow(a.var, reduction)]
    return min(MIN_LANES, *counts) if counts else 1


def _run(reduction: Reduction) -> int:
    """The number of elements along the last reduced axes that follow in memory as one run."""
    variables = [axis.var for axis in reduction.axes]
    reads = [node for node in postorder(list(reduction.sources)) if is_load(node)]
    run = 1
    for axis in reversed(reduction.axes):
        strides = strides_along(reads, axis.var, variables)
        if strides is None or any(stride not in (0, run) for stride in strides):
            break
        run *= size_of([axis_range(axis)[1]])
    return run


def _follow(last: Var, reduction: Reduction) -> bool:
    """Whether what neighbours along a variable read follows in memory."""
    for node in postorder(list(reduction.sources)):
        if is_load(node) and depends_on(node, [last]):
            *outer, place = operands(node)
            terms, _ = linear_terms(place)
            curved = [part for part, _ in terms if not same_node(part, last)]
            if depends_on([*outer, *curved], [last]):
                return False
    return True


def _in_memory(factors: Sequence[Expr], axes: Iterable[int]) -> list[int]:
    """The ids of axes, those of the dimensions that reads go along in the order of these."""
    reads = [node for node in postorder(list(factors)) if is_load(node)]
    met = [node_id(var) for read in reads for var in variables_of(operands(read))]
    order = {key: place for place, key in reversed([*enumerate(met)])}
    return sorted(axes, key=lambda key: order.get(key, -1))


def _factors(source: Expr, kind: str, neutral: Expr) -> list[tuple[Expr, tuple[Expr, ...]]]:
    """The factors of a sum, or the operand of another reducer, with their conditions."""
    if kind == "sum":
        return conditional_factors(expand_lets(source))
    value, conditions = expand_lets(source), []
    while op_name(value) == "if_then_else" and _equal(operands(value)[2], neutral):
        condition, value, _ = operands(value)
        conditions += conjuncts(condition)
    return [(value, tuple(conditions))]


def _equal(left: Expr, right: Expr) -> bool:
    value = const_value(left)
    return value is not None and value == const_value(right)


def _under(conditions: Sequence[Expr], value: Expr, neutral: Expr) -> Expr:
    return if_then_else(all_of(conditions), value, neutral) if conditions else value


def _product(factors: Sequence[Expr]) -> Expr:
    return reduce(mul, factors)
