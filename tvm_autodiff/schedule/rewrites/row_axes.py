"""Splits the output axes of stages at the quotients and remainders that they read: rows of
neighbours in memory, whose loops divide nothing.

The memory layout does not change. Stages over flattened axes, such as the butterflies of a Fourier
transform or the halves of each head in a rotary embedding, run in vectors this way.

    ``y[k] = f(x[k//32*32 + (k + 16)%32])  →  y[a, b] = f(x[a*32 + (b + 16)%32])``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import add, const, mul
from ...expr.nodes import Axis, Expr, const_value, dtype_of, node_id, op_name, operands
from ...expr.rewrite import contains, depends_on, expand_lets, postorder, substituter
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
    found = _step(values, groups, reduced)
    if found is None:
        return None
    while found is not None:
        values, groups = found
        found = _step(values, groups, reduced)
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
