"""Assembles sum terms into stages: the gradient of a tensor as one tensor.

The terms of one or several consumers share target axes. Terms without a sum become one expression;
sums over boxes of equal extents become one reduction; other sums become separate stages, which a
last stage adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import add, cast, const, sum_of, true
from ...expr.dtypes import common_float
from ...expr.nodes import Axis, Expr, Tensor, dtype_of, is_float, load, op_name, operands
from ...expr.rewrite import substituter
from ...expr.sharing.lets import bind_shared
from ...graph.bounded_stage import bounded_stage
from ...graph.stage import (
    Combiner,
    Reduction,
    axis_range,
    reduce_axis_over,
    reduce_expr,
    renew_axis,
    sum_combiner,
    whole_tensor,
)
from .prefix_sums import places_of
from .sum import Sum, Target


def join_equal_boxes(terms: Sequence[Sum]) -> list[Sum]:
    """``Σ_k f + Σ_l g → Σ_k (f + g[l := k])`` for boxes of equal extents; the order is kept.

    Sums up to a place stay apart: together they would take a step for each pair.
    """
    joined: dict[object, Sum] = {}
    for number, term in enumerate(terms):
        extents = tuple(_extent_key(axis) for axis in term.axes)
        if places_of(term.source, term.target.every_axis, term.axes) is not None:
            joined[number] = term
            continue
        known = joined.get(extents)
        if known is None:
            joined[extents] = term
            continue
        rename = substituter(
            {old.var: new.var for old, new in zip(term.axes, known.axes, strict=True)}
        )
        joined[extents] = replace(
            known,
            source=add(known.source, rename(term.source)),
            guards=(*known.guards, *(rename(guard) for guard in term.guards)),
            unsolved=(*known.unsolved, *term.unsolved),
            masks=(*known.masks, *term.masks),
            made=(*known.made, *term.made),
            windows=(*known.windows, *term.windows),
        )
    return list(joined.values())


def _extent_key(axis: Axis) -> object:
    _, extent = axis_range(axis)
    return extent if isinstance(extent, int) else hash(extent)


def assemble(
    name: str,
    target: Target,
    groups: Sequence[Sequence[Sum]],
    tensors: Sequence[Tensor] = (),
    dtype: str = "float32",
) -> Tensor:
    """The total of sums and of ready tensors, as a tensor over the target's axes.

    Parameters
    ----------
    name : str
        The name of the resulting stage. Separate sums get this name with a number.
    target : Target
        The axes of the result.
    groups : sequence of sequences of Sum
        One group per consumer. Only sums of one group share a reduction, so that a contraction
        stays a contraction.
    tensors : sequence of Tensor
        Further summands of the result's shape, such as custom derivatives.
    dtype : str
        The dtype of the result. A result without summands is zero.
    """
    axes = [*target.prefix, *target.axes]
    here = [axis.var for axis in axes]
    plain: list[Expr] = [load(tensor, here) for tensor in tensors]
    sums: list[Sum] = []
    for group in groups:
        for term in join_equal_boxes(group):
            if term.axes:
                sums.append(term)
            else:
                plain.append(term.source)
    if len(plain) == 1 and not sums and not tensors:
        same = whole_tensor(plain[0], axes)
        if same is not None:
            return same
    if not plain and len(sums) == 1:
        return _stage(name, axes, sums[0].source, sums[0].axes, sums[0].combiner)
    if len(plain) == 1 and len(tensors) == 1 and not sums:
        return tensors[0]
    for number, term in enumerate(sums):
        stage = _stage(f"{name}_sum{number}", axes, term.source, term.axes)
        plain.append(load(stage, here))
    body = sum_of(_rounded_once(plain)) if plain else const(0, dtype)
    return _stage(name, axes, bind_shared(body))


def _rounded_once(terms: Sequence[Expr]) -> list[Expr]:
    """``float16(a) + b + float16(c) → float16(a + c) + b`` for a and c of one wider dtype."""
    groups: dict[str, list[Expr]] = {}
    for number, term in enumerate(terms):
        own, key = dtype_of(term), f"term {number}"
        if op_name(term) == "cast" and is_float(operands(term)[0]):
            wide = dtype_of(operands(term)[0])
            key = wide if common_float(own, wide) == wide != own else key
        groups.setdefault(key, []).append(term)
    return [
        one[0]
        if len(one) == 1
        else cast(dtype_of(one[0]), sum_of([operands(term)[0] for term in one]))
        for one in groups.values()
    ]


def _stage(
    name: str,
    axes: Sequence[Axis],
    body: Expr,
    summed: Sequence[Axis] = (),
    combiner: Combiner | None = None,
) -> Tensor:
    """A stage over new copies of the target's axes, which several stages have shared so far.

    `summed` are the axes of a sum or another reduction, whose extents may depend on the others.
    """
    fresh = [renew_axis(axis) for axis in axes]
    rename = substituter({old.var: new.var for old, new in zip(axes, fresh, strict=True)})
    body = rename(body)
    if summed:
        extents = [axis_range(axis)[1] for axis in summed]
        inner = [
            reduce_axis_over(axis.var, n if isinstance(n, int) else rename(n))
            for axis, n in zip(summed, extents, strict=True)
        ]
        reducer = sum_combiner(dtype_of(body)) if combiner is None else combiner
        body = reduce_expr(Reduction(reducer, (body,), tuple(inner), true(), ()))
    return bounded_stage(name, fresh, [body])[0]
