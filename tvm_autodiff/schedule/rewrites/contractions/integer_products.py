"""Sums of products of narrow integers are sums of float32, where all of them are exact.

A product of int32 takes two operations and has no fused addition: sums of products of int8 took 2.5
times as long as those of float32. A float32 holds each integer up to 2**24 exactly, and with them
each partial sum of so many products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ....expr.build import add, cast, const, if_then_else, mul, select, variable
from ....expr.integers.intervals import Intervals, range_intervals
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    dtype_of,
    is_const,
    load,
    op_name,
    operands,
)
from ....expr.rewrite import contains_load, depends_on, expand_lets, substituter
from ....expr.sharing.lets import bind_shared
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    data_axis,
    is_compute,
    make_stage,
    reduce_axis_over,
    reduction_of,
    reduction_stage,
    renew_axis,
    sum_combiner,
    sum_over,
)
from ...cost import LAUNCH_CYCLES, SHORT_LOOP
from ...kernel import iterations
from ...nest.reductions.products import is_sum
from ..sums.split_reduction import divisor_at_least

#: float32 holds all integers up to it, those of one bit more than are stored
_EXACT = 2 << np.finfo(np.float32).nmant


def with_float_products(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[i, j] = Σ_k int32(a[i, k])*int32(b[k, j])  →  p[i, j] = Σ_k float32(a[i, k])*float32(b[k,
    j]), y[i, j] = int32(p[i, j])`` for int8 and few k; of more, sums of parts of them are added.
    """
    return each_stage(outputs, _in_floats)


def _in_floats(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or not is_sum(reduction) or reduction.init or not len(op.axis):
        return None
    source = expand_lets(reduction.sources[0])
    axes = [*op.axis, *reduction.axes]
    literal = all(isinstance(end, int) for axis in axes for end in axis_range(axis))
    if dtype_of(source) != "int32" or not literal or iterations(op) < LAUNCH_CYCLES:
        return None
    if not _shares_operands(source, op.axis):
        return None
    low, high = Intervals(range_intervals({a.var: axis_range(a) for a in axes})).of(source)
    largest = max(abs(low), abs(high))
    terms = prod(int(axis_range(axis)[1]) for axis in reduction.axes)
    if largest * terms <= _EXACT:
        return _converted(op, reduction, source, None, 1)
    axis = max(reduction.axes, key=lambda one: int(axis_range(one)[1]))
    extent = int(axis_range(axis)[1])
    needed = -(-largest * terms // _EXACT)
    parts = divisor_at_least(extent, needed) if needed < extent else extent
    if terms // parts < SHORT_LOOP:  # as many numbers would be stored as saved
        return None
    return _converted(op, reduction, source, axis, parts)


def _shares_operands(source: Expr, axes: Sequence[Axis]) -> bool:
    """Whether a source is a product whose factors are read again along an axis of the result."""
    while op_name(source) in ("if_then_else", "select") and is_const(operands(source)[2], 0):
        source = operands(source)[1]
    if op_name(source) != "mul":
        return False
    factors = operands(source)
    return all(map(contains_load, factors)) and all(
        any(not depends_on(factor, [axis.var]) for axis in axes) for factor in factors
    )


def _converted(
    op: Operation, reduction: Reduction, source: Expr, split: Axis | None, parts: int
) -> list[Tensor]:
    """The sum in floats, of which one axis may be split in parts."""
    spatial = [renew_axis(axis) for axis in op.axis]
    table: dict[object, Expr] = {
        old.var: new.var for old, new in zip(op.axis, spatial, strict=True)
    }
    reduced: list[Axis] = []
    outer = list(spatial)
    for axis in reduction.axes:
        low, extent = (int(bound) for bound in axis_range(axis))
        dtype, own = dtype_of(axis.var), axis is split
        size = extent // parts if own else extent
        reduced.append(reduce_axis_over(variable(axis.var.name, dtype), size))
        place = add(reduced[-1].var, const(low, dtype))
        if own:
            outer.insert(0, data_axis("part", parts, dtype))
            place = add(mul(outer[0].var, const(size, dtype)), place)
        table[axis.var] = place
    body = bind_shared(_float_of(substituter(table)(source)))
    floats = replace(
        reduction, combiner=sum_combiner("float32"), sources=(body,), axes=tuple(reduced), init=()
    )
    [sums] = reduction_stage(f"{op.name}_floats", outer, floats)
    axes = [renew_axis(axis) for axis in op.axis]
    here = [axis.var for axis in axes]
    if split is None:
        return make_stage(op.name, axes, [cast("int32", load(sums, here))])
    every = reduce_axis_over(variable("part", dtype_of(split.var)), parts)
    whole = sum_over(cast("int32", load(sums, [every.var, *here])), [every])
    return make_stage(op.name, axes, [whole])


def _float_of(source: Expr) -> Expr:
    """A product of integers as one of floats."""
    name = op_name(source)
    if name == "mul":
        return mul(*map(_float_of, operands(source)))
    if name in ("if_then_else", "select"):
        condition, then, otherwise = operands(source)
        choose = if_then_else if name == "if_then_else" else select
        return choose(condition, _float_of(then), _float_of(otherwise))
    if name == "cast" and dtype_of(operands(source)[0]) in ("int8", "uint8", "int16", "uint16"):
        return cast("float32", operands(source)[0])
    return cast("float32", source)
