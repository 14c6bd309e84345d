"""Splits the output axes of stages at the quotients and remainders that they read: rows of
neighbours in memory, whose loops divide nothing.

The memory layout does not change. Stages over flattened axes, such as the butterflies of a Fourier
transform or the halves of each head in a rotary embedding, run in vectors this way.

    ``y[k] = f(x[k//32*32 + (k + 16)%32])  →  y[a, b] = f(x[a*32 + (b + 16)%32])``

So are those of a symbolic number of places, where an axis has whole rows of them.

    ``y[k] = x[k//m, k%m], k < n*m  →  y[a, b] = x[a, b]``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

from ...expr.build import add, cast, const, like, mul
from ...expr.integers.exact_quotient import exact_quotient
from ...expr.nodes import (
    Axis,
    Expr,
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
    same_node,
)
from ...expr.rewrite import (
    contains,
    depends_on,
    expand_lets,
    postorder,
    replace_outermost,
    rewrite,
    substituter,
)
from ...expr.structural import StructuralKeys
from ...graph.stage import (
    axis_range,
    bodies,
    bounds_of,
    data_axis,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed,
    renewed_reduction,
)
from ..cost import MIN_LANES
from ..kernel import Kernel
from ..nest.access import affine_forms
from ..nest.decided import decided
from ..nest.in_range import loops_of
from ..nest.literals import FLOOR_DIVISIONS
from .quotient_axes import SplitKernel

#: the shortest rows: shorter ones are written out over residue classes
MIN_ROW = 2 * MIN_LANES


def split_into_rows(kernel: Kernel) -> SplitKernel | None:
    """The kernel over split axes, or None if no axis can be split into rows."""
    op, reduction = kernel.root, reduction_of(kernel.root)
    axes, table = renewed(op.axis)
    reduced: list[Axis] = []
    if reduction is not None:
        reduction = renewed_reduction(reduction, table)
        reduced = list(reduction.axes)
        bounds = [bound for axis in reduced for bound in bounds_of(axis)]
        if reduction.init or not all(const_value(one) is not None for one in bounds):
            return None
        values = [*map(expand_lets, reduction.sources), reduction.condition]
    else:
        values = [substituter(table)(expand_lets(body)) for body in bodies(op)]
    if not contains(values, lambda node: op_name(node) in FLOOR_DIVISIONS):
        return None
    loops = loops_of([*axes, *reduced])
    values = decided(values, loops.variables, loops.ranges)
    groups = [[axis] for axis in axes]
    found = _next(values, groups, reduced)
    if found is None:
        return None
    while found is not None:
        values, groups = found
        found = _next(values, groups, reduced)
    numbers = iter(range(sum(map(len, groups))))
    places = tuple(tuple(next(numbers) for _ in group) for group in groups)
    axes = [axis for group in groups for axis in group]
    if reduction is None:
        made = make_stage(op.name, axes, values)
    else:
        *sources, condition = values
        split = replace(reduction, sources=tuple(sources), condition=condition)
        made = reduction_stage(op.name, axes, split)
    return SplitKernel(Kernel(made[0].op, repetition=kernel.repetition), places)


def _next(
    values: Sequence[Expr], groups: Sequence[Sequence[Axis]], reduced: Sequence[Axis]
) -> tuple[list[Expr], list[list[Axis]]] | None:
    return _step(values, groups, reduced) or _symbolic_step(values, groups, reduced)


def _step(
    values: Sequence[Expr], groups: Sequence[Sequence[Axis]], reduced: Sequence[Axis]
) -> tuple[list[Expr], list[list[Axis]]] | None:
    """The values and groups with one more axis split in two; None if none can be."""
    axes = [axis for group in groups for axis in group]
    for axis in axes:
        size = _row(values, axis, [*axes, *reduced])
        if size is None:
            continue
        name, dtype, extent = axis.var.name, dtype_of(axis.var), axis_range(axis)[1]
        outer = data_axis(f"{name}_row", int(extent) // size, dtype)
        inner = data_axis(f"{name}_inside", size, dtype)
        place = add(mul(outer.var, const(size, dtype)), inner.var)
        split = {id(axis): [outer, inner]}
        moved = [[new for old in group for new in split.get(id(old), [old])] for group in groups]
        every = [*(one for group in moved for one in group), *reduced]
        rename, loops = substituter({axis.var: place}), loops_of(every)
        return decided(list(map(rename, values)), loops.variables, loops.ranges), moved
    return None


def _symbolic_step(
    values: Sequence[Expr], groups: Sequence[Sequence[Axis]], reduced: Sequence[Axis]
) -> tuple[list[Expr], list[list[Axis]]] | None:
    """The same for an axis of so many rows of so many places as a call has."""
    keys = StructuralKeys()
    for axis in (one for group in groups for one in group):
        low, extent = axis_range(axis)
        own = [
            node
            for node in postorder(list(values))
            if op_name(node) in FLOOR_DIVISIONS and depends_on(operands(node)[0], [axis.var])
        ]
        direct = [node for node in own if same_node(operands(node)[0], axis.var)]
        divisors = {keys.expr(operands(node)[1]): operands(node)[1] for node in direct}
        if low != 0 or isinstance(extent, int) or len(divisors) != 1:
            continue
        [size] = divisors.values()
        count = _without_factor(extent, size, keys)
        if count is None:
            continue
        name, dtype = axis.var.name, dtype_of(axis.var)
        outer = data_axis(f"{name}_row", cast(dtype, count), dtype)
        inner = data_axis(f"{name}_inside", cast(dtype, size), dtype)
        table = {
            node_id(node): outer.var if op_name(node) == "floordiv" else inner.var
            for node in direct
        }
        table[node_id(axis.var)] = add(mul(outer.var, cast(dtype, size)), inner.var)
        split = {id(axis): [outer, inner]}
        moved = [[new for old in group for new in split.get(id(old), [old])] for group in groups]
        ends = {node_id(one.var): keys.expr(bounds_of(one)[1]) for one in (outer, inner)}
        fresh = [replace_outermost(value, table) for value in values]
        return [rewrite(value, partial(_within, ends, keys)) for value in fresh], moved
    return None


def _without_factor(extent: Expr, size: Expr, keys: StructuralKeys) -> Expr | None:
    """``n*m → n`` without the factor m; None if there is none, or if rows of it are short."""
    length = const_value(size)
    if length is not None:
        found = exact_quotient(extent, int(length)) if length >= MIN_ROW else None
        return None if found is None else like(extent, found) if isinstance(found, int) else found
    factors = _factors(extent)
    places = [n for n, one in enumerate(factors) if keys.expr(one) == keys.expr(size)]
    if not places or len(factors) == 1:
        return None
    return reduce(mul, [*factors[: places[0]], *factors[places[0] + 1 :]])


def _factors(extent: Expr) -> list[Expr]:
    if op_name(extent) != "mul":
        return [extent]
    return [factor for part in operands(extent) for factor in _factors(part)]


def _within(ends: Mapping[int, int], keys: StructuralKeys, node: Expr) -> Expr | None:
    """``a % n → a``, ``a // n → 0`` for a loop below n."""
    if op_name(node) not in FLOOR_DIVISIONS:
        return None
    left, right = operands(node)
    if ends.get(node_id(left)) != keys.expr(right):
        return None
    return left if op_name(node) == "floormod" else like(left, 0)


def _row(values: Sequence[Expr], axis: Axis, axes: Sequence[Axis]) -> int | None:
    """The largest period of the quotients and remainders of an axis that are rows, if it is a
    multiple or a divisor of all others.
    """
    low, extent = axis_range(axis)
    if low != 0 or not isinstance(extent, int) or extent < 2 * MIN_ROW:
        return None
    nodes = [node for node in postorder(list(values)) if op_name(node) in FLOOR_DIVISIONS]
    near = [node for node in nodes if depends_on(operands(node)[0], [axis.var])]
    forms = affine_forms([operands(node)[0] for node in near], [one.var for one in axes])
    periods: set[int] = set()
    for node in near:
        numerator, divisor = operands(node)
        size, form = const_value(divisor), forms.get(node_id(numerator))
        if form is None:
            continue  # a quotient of a quotient, which becomes one of an axis
        if not isinstance(size, int) or form.terms != ((node_id(axis.var), 1),):
            return None
        periods.add(size)
    rows = [size for size in periods if MIN_ROW <= size < extent and extent % size == 0]
    if not rows:
        return None
    chosen = max(rows)
    fits = all(chosen % size == 0 or size % chosen == 0 for size in periods)
    return chosen if fits else None
