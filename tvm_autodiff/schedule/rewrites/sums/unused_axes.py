"""Reductions over axes that their source does not read: a product with the number of elements.

Means over a broadcast and their gradients are such sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ....expr.build import cast, const, mul
from ....expr.dtypes import bits_of, integer_range
from ....expr.nodes import Axis, Expr, Tensor, binary, dtype_of, load, node_id
from ....expr.rewrite import variables_of
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    axis_vars,
    bounds_of,
    is_compute,
    reduction_of,
    reduction_stage,
    with_bodies,
)
from ....rules.reductions.arg_reduction import is_neutral
from ....rules.reductions.reducers import classify

_MOST = integer_range("int32")[1]  #: elements of which a type of 32 bits holds the number


def without_repeated_elements(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``Σ_{k, l<L} f(k)  →  L·Σ_k f(k),  max_{k, l<L} f(k)  →  max_k f(k)`` for literal extents."""
    return each_stage(outputs, _once)


def _once(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None or reduction.init:
        return None
    kinds = [classify(reduction.combiner, n) for n in range(len(reduction.sources))]
    unused = _unused(reduction)
    count = prod(int(axis_range(axis)[1]) for axis in unused)
    if not unused or not 0 < count <= _MOST or not {"sum", "max", "min"}.issuperset(kinds):
        return None
    if any(bits_of(dtype_of(source)) < 32 for source in reduction.sources):
        return None

    def scaled(value: Expr, kind: str) -> Expr:
        return mul(value, const(count, dtype_of(value))) if kind == "sum" else value

    def begun(value: Expr, kind: str, identity: Expr) -> Expr:
        """The value, or the first one of the reducer if that is larger than negative ones."""
        own = kind == "sum" or is_neutral(identity, "gt" if kind == "max" else "lt")
        return value if own else binary(kind, value, cast(dtype_of(value), identity))

    kept = tuple(axis for axis in reduction.axes if axis not in unused)
    if not kept:
        values = map(begun, reduction.sources, kinds, reduction.combiner.identity)
        return with_bodies(op, [*map(scaled, values, kinds)])
    if "sum" not in kinds:
        return reduction_stage(op.name, list(op.axis), replace(reduction, axes=kept))
    once = reduction_stage(f"{op.name}_once", list(op.axis), replace(reduction, axes=kept))
    totals = [load(tensor, axis_vars(op)) for tensor in once]
    return with_bodies(op, [*map(scaled, totals, kinds)])


def _unused(reduction: Reduction) -> list[Axis]:
    """The axes of literal ranges that no source, condition or range of another axis contains."""
    bounds = [bound for axis in reduction.axes for bound in bounds_of(axis)]
    read = variables_of([*reduction.sources, reduction.condition, *bounds])
    used = {node_id(var) for var in read}
    return [
        axis
        for axis in reduction.axes
        if node_id(axis.var) not in used and isinstance(axis_range(axis)[1], int)
    ]
