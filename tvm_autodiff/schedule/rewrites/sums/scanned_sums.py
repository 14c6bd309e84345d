"""Computes sums that hold a prefix sum as that prefix sum, and a product or a sum of it.

The gradients of a cumulative sum of a product are such sums, and so are sums up to a place along
each of several axes. A prefix sum takes one step for each element, where the sum under its
condition has one for each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....expr.build import (
    affirmed,
    all_of,
    conjuncts,
    div,
    if_then_else,
    like,
    multiplied,
    negate,
    zero_like,
)
from ....expr.factoring import factors_of
from ....expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    const_value,
    dtype_of,
    is_const,
    is_float,
    is_load,
    load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import contains_load, depends_on, expand_lets, postorder, variables_of
from ....graph.graph import each_stage, tensors_read_by
from ....graph.sizes.nonnegative import nonnegative
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    bounds_of,
    data_axis,
    is_compute,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed_reduction,
)
from ....graph.structural import EqualStages
from ...nest.axis_bounds import counted
from ...nest.in_range import Loops, is_safe, loops_of
from ...nest.reductions.operand_values import read_inside
from ...nest.reductions.prefix_reductions import is_number, prefix_reduction_of
from ...nest.reductions.products import is_sum
from ..prefix_lookups import looked_up
from ..prefixes import in_order


@dataclass(frozen=True)
class _Read:
    """A read of a tensor."""

    tensor: Tensor
    indices: Sequence[Expr]


def with_scanned_sums(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[k] = Σ_{i,j} if j > k then a[i,j]*b[i,k] → t[i,k] = Σ_j if j > k then a[i,j]; y[k] = Σ_i
    t[i,k]*b[i,k]``, where t is a prefix sum; ``Σ_k if k <= j then a[k]/b[j] → t[j]/b[j]``, ``Σ_k if
    k <= j and m[j] then a[k] → if m[j] then t[j]`` and ``Σ_k float(k <= j)*a[k] → t[j]``, too.

    Where no element of the prefix sum counts, a tensor b is multiplied by zero in place of being
    left out; divisors and functions, which may be infinite there, keep a condition.
    """
    equal = EqualStages()  # gradients with respect to several factors have the same prefix sum
    return each_stage(outputs, lambda op: _scanned(op, equal))


def _scanned(op: Operation, equal: EqualStages) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or not is_sum(reduction) or reduction.init:
        return None
    if not is_float(reduction.sources[0]) or not const_value(reduction.condition):
        return None
    source = expand_lets(reduction.sources[0])
    guards, every = _conditions(source, loops_of([*op.axis, *reduction.axes]))
    changed = not _is_plain(source, guards)
    for summed in reduction.axes:
        factors, divisors = _quotients(every, summed)
        inside = [factor for factor in factors if depends_on(factor, [summed.var])]
        outside = [factor for factor in factors if not depends_on(factor, [summed.var])]
        within = [guard for guard in guards if depends_on(guard, [summed.var])]
        rest = [guard for guard in guards if not depends_on(guard, [summed.var])]
        if not inside or not (outside or divisors or rest or changed or len(reduction.axes) > 1):
            continue
        others = [axis for axis in reduction.axes if node_id(axis.var) != node_id(summed.var)]
        if any(depends_on(bound, [summed.var]) for axis in others for bound in bounds_of(axis)):
            continue  # another axis is within it
        prefix = _prefix(op, reduction, summed, others, inside, within)
        loops = loops_of([*op.axis, *others])
        if prefix is None or not is_safe([*outside, *divisors, *rest], loops, thorough=True):
            continue
        if divisors or not all(is_load(factor) for factor in outside):
            # they may be infinite where nothing is summed
            some = counted(summed, within, [*op.axis, *others])
            if some is None:
                continue
            rest = [*some, *rest]
        tensor = equal.first(prefix.tensor.op).output(0)
        value = multiplied([load(tensor, prefix.indices), *outside])
        for divisor in divisors:
            value = div(value, divisor)
        value = if_then_else(all_of(rest), value, zero_like(value)) if rest else value
        if not others:
            return make_stage(op.name, list(op.axis), [value])
        left = replace(reduction, axes=tuple(others), sources=(value,))
        return reduction_stage(op.name, list(op.axis), left)
    return None


def _conditions(source: Expr, loops: Loops) -> tuple[list[Expr], list[Expr]]:
    """``if k <= j then (if not m[j] then 0 else a[k])*b → (k <= j, m[j]), (a[k], b)``: the
    conditions of a product, in whatever way they are written, and its factors; ``float(k <= j)*a[k]
    → (k <= j), (a[k])`` for conditions on loops. Conditions of a choice may be looked at anywhere.
    """
    conditions, pending = factors_of(source)
    factors: list[Expr] = []
    while pending:
        factor = pending.pop(0)
        found = _chosen(factor, loops)
        if found is None:
            factors.append(factor)
            continue
        condition, value = found
        inner, more = factors_of(value)
        conditions += [condition, *inner]
        pending = [*more, *pending]
    factors = [factor for factor in factors if not is_const(factor, 1)]
    guards = [part for condition in conditions for part in affirmed(condition)]
    return guards, factors or [like(source, 1)]


def _chosen(factor: Expr, loops: Loops) -> tuple[Expr, Expr] | None:
    """``select(c, v, 0) → c, v``, ``if c then 0 else v → not c, v``, ``float(c) → c, 1``."""
    if op_name(factor) in BRANCHES:
        condition, then, otherwise = operands(factor)
        if is_const(then, 0):
            condition, then, otherwise = negate(condition), otherwise, then
        if not is_const(otherwise, 0):
            return None
    elif op_name(factor) == "cast" and dtype_of(operands(factor)[0]) == "bool":
        condition, then = operands(factor)[0], like(factor, 1)
    else:
        return None
    if is_const(then, 1) and contains_load(condition):
        return None  # a mask is a factor
    branch = op_name(factor) == "if_then_else"
    return (condition, then) if branch or is_safe([condition], loops, thorough=True) else None


def _is_plain(source: Expr, guards: Sequence[Expr]) -> bool:
    """Whether a source has its conditions where a prefix sum is recognised, outermost."""
    if op_name(source) not in BRANCHES:
        return not guards
    condition, then, otherwise = operands(source)
    return is_const(otherwise, 0) and len(conjuncts(condition)) == len(guards) and not any(
        op_name(node) in BRANCHES for node in postorder([then])
    )


def _quotients(factors: Sequence[Expr], summed: Axis) -> tuple[list[Expr], list[Expr]]:
    """``(a/b)*c → (a, c), (b)`` for divisors that do not depend on an axis."""
    found: list[Expr] = []
    divisors: list[Expr] = []
    pending = list(factors)
    while pending:
        factor = pending.pop(0)
        if op_name(factor) == "div" and not depends_on(operands(factor)[1], [summed.var]):
            over, under = operands(factor)
            pending.insert(0, over)
            divisors.append(under)
        else:
            found.append(factor)
    return found, divisors


def _prefix(
    op: Operation,
    reduction: Reduction,
    summed: Axis,
    others: Sequence[Axis],
    factors: Sequence[Expr],
    guards: Sequence[Expr],
) -> _Read | None:
    """The sum of factors over one axis, as a read of a stage, if it is a prefix sum."""
    used = {node_id(v) for v in variables_of([*factors, *guards, *bounds_of(summed)])}
    kept = [axis for axis in (*op.axis, *others) if node_id(axis.var) in used]
    # the axis that the prefixes end at is the last one, whatever sum they are in
    conditions = [*guards, *bounds_of(summed)]
    kept.sort(key=lambda axis: any(depends_on(part, [axis.var]) for part in conditions))
    if not all(is_number(axis_range(axis)[0], 0) for axis in kept):
        return None
    loops = [axis.var for axis in (*op.axis, *reduction.axes)]
    if any(depends_on(bound, loops) for axis in kept for bound in bounds_of(axis)):
        return None  # the prefixes have no shape
    axes = [data_axis(str(axis.var.name), nonnegative(axis_range(axis)[1])) for axis in kept]
    rename = {old.var: new.var for old, new in zip(kept, axes, strict=True)}
    value = multiplied(factors)
    within = loops_of([*kept, summed])
    if not is_safe([value], within, given=guards, thorough=True):
        value = read_inside(value, within)  # other conditions stay behind
    elif not guards and not depends_on(bounds_of(summed), loops):
        return None  # every element counts for each result
    source = if_then_else(all_of(guards), value, zero_like(value)) if guards else value
    inner = renewed_reduction(replace(reduction, axes=(summed,), sources=(source,)), rename)
    stage = reduction_stage(f"{op.name}_prefix", axes, inner)
    [ordered] = in_order(stage[0].op) or stage
    [tensor] = looked_up(ordered.op) or [ordered]
    near = [tensor.op, *(read.op for read in tensors_read_by(tensor.op))]
    if not any(is_compute(one) and prefix_reduction_of(one) is not None for one in near):
        return None
    return _Read(tensor, [axis.var for axis in kept])
