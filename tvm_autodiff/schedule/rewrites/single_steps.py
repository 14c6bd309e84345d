"""Reductions over axes of one element become plain expressions.

``y[i] = Σ_{k<1} f(i, k)  →  y[i] = f(i, 0)``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import const, if_then_else
from ...expr.fold import fold
from ...expr.nodes import Expr, Tensor, Var, dtype_of
from ...expr.rewrite import depends_on, substituter
from ...graph.graph import each_stage
from ...graph.stage import (
    Operation,
    axis_range,
    bounds_of,
    is_compute,
    reduction_of,
    reduction_stage,
    with_bodies,
)


def without_single_steps(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors whose reductions have no axis of literal extent 1."""
    return each_stage(outputs, _changed)


def _changed(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None or reduction.init:
        return None
    table: dict[Var, Expr] = {}
    rest = []
    for axis in reduction.axes:
        low, extent = axis_range(axis)
        if extent == 1 and isinstance(low, int):
            table[axis.var] = const(low, dtype_of(axis.var))
        else:
            rest.append(axis)
    if not table or any(depends_on(bounds_of(axis), list(table)) for axis in rest):
        return None
    rename = substituter(table)
    sources, condition = tuple(map(rename, reduction.sources)), rename(reduction.condition)
    if rest:
        left = replace(reduction, sources=sources, axes=tuple(rest), condition=condition)
        return reduction_stage(str(op.name), list(op.axis), left)
    identity = reduction.combiner.identity
    results = map(fold, reduction.combiner.apply(identity, sources))  # 0 + x is x
    return with_bodies(
        op,
        [if_then_else(condition, a, b) for a, b in zip(results, identity, strict=True)],
    )
