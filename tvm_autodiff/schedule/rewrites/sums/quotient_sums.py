"""Splits reduce axes whose quotients and remainders are read: no inner loop divides.

The order of the elements stays, so every reducer and its rounding do.

    ``Σ_{k<49} f(k//7, k%7)  →  Σ_{a<7, b<7} f(a, b)``, ``Σ_{k<27} f(k//9, k//3%3, k%3)  →
    Σ_{a<3, b<3, c<3} f(a, b, c)``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from ....expr.build import add, const, mul
from ....expr.integers.exact_quotient import exact_quotient
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import depends_on, expand_lets, postorder, substituter
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    is_compute,
    reduce_axis,
    reduction_of,
    reduction_stage,
    rename_bounds,
)
from ...nest.access import affine_forms
from ...nest.decided import decided
from ...nest.in_range import loops_of
from ...nest.literals import FLOOR_DIVISIONS


def with_split_quotients(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``Σ_{k<n*d} f(k//d, k%d) → Σ_{a<n, b<d} f(a, b)`` where that leaves no division of k."""
    return each_stage(outputs, _split)


def _split(op: Operation) -> list[Tensor] | None:
    found = reduction_of(op) if is_compute(op) else None
    if found is None or found.init:
        return None
    current: Reduction | None = None
    for axis in found.axes:
        made = _along(op, current or found, axis)
        current = made or current
    return None if current is None else reduction_stage(op.name, list(op.axis), current)


def _along(op: Operation, found: Reduction, axis: Axis) -> Reduction | None:
    """The reduction with one of its axes split, into as many as it has digits, or None."""
    low, extent = axis_range(axis)
    sources = [expand_lets(source) for source in found.sources]
    sizes = _periods(sources, axis.var, [*op.axis, *found.axes])
    size = min(sizes, default=1)
    if low != 0 or any(other % size for other in sizes):
        return None
    count = exact_quotient(extent, size)
    if count is None or size == 1 or count == 1:
        return None
    name, dtype = axis.var.name, dtype_of(axis.var)
    outer = reduce_axis(f"{name}_outer", count, 0, dtype)
    inner = reduce_axis(f"{name}_inner", size, 0, dtype)
    place = add(mul(outer.var, const(size, dtype)), inner.var)
    number = [node_id(other.var) for other in found.axes].index(node_id(axis.var))
    rename = substituter({axis.var: place})
    after = [rename_bounds(other, rename) for other in found.axes[number + 1 :]]
    axes = (*found.axes[:number], outer, inner, *after)
    every = [*op.axis, *axes]
    loops = loops_of(every)
    moved = tuple(decided(list(map(rename, sources)), loops.variables, loops.ranges))
    if _periods(moved, inner.var, every):
        return None
    made = replace(found, sources=moved, axes=axes, condition=rename(found.condition))
    return _along(op, made, outer) if _periods(moved, outer.var, every) else made


def _periods(sources: Sequence[Expr], var: Var, axes: Sequence[Axis]) -> set[int]:
    """After how many elements of a variable quotients by literals move on and remainders repeat."""
    nodes = [node for node in postorder(list(sources)) if op_name(node) in FLOOR_DIVISIONS]
    near = [node for node in nodes if depends_on(operands(node)[0], [var])]
    forms = affine_forms([operands(node)[0] for node in near], [axis.var for axis in axes])
    found = set()
    for node in near:
        numerator, divisor = operands(node)
        size = const_value(divisor)
        form = forms.get(node_id(numerator))
        if isinstance(size, int) and form is not None and form.coefficient(node_id(var)) % size:
            found.add(size // gcd(form.coefficient(node_id(var)), size))
    return found
