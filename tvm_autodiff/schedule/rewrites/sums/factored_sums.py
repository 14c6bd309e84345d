"""Sums with fewer multiplications: common factors once, and loop invariants first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from ....expr.build import compare, conjuncts, if_then_else, like, negate
from ....expr.costly import is_expensive, is_slow, may_be_infinite
from ....expr.factoring import apart, factored
from ....expr.nodes import (
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_const,
    load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import contains, contains_load, depends_on, loaded_tensors, variables_of
from ....expr.sharing.lets import bind_shared
from ....graph.graph import each_stage
from ....graph.sizes.nonnegative import not_empty
from ....graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bounds_of,
    data_axis,
    is_compute,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed_reduction,
)
from ...nest.decided import decided
from ...nest.in_range import Loops, is_safe, loops_of
from ...nest.reductions.operand_values import guarded
from ...nest.reductions.products import is_sum
from .joined_choices import with_joined_choices

#: in which a product of literals and factors keeps its range; float16 holds numbers up to 65504
_DTYPES = ("float32", "float64")


def with_factored_sums(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y = Σ_k (f(k)*a*2 + f(k)*a*b) → s = Σ_k f(k)*(2 + b), y = s*a``, ``y[i] = Σ_k x[i,
    k]/sqrt(v[i]) → s[i] = Σ_k x[i, k], y[i] = s[i]/sqrt(v[i])``, and so in each sum where it saves
    work; conditions of all terms stay inside but for those that data decide for a whole product of
    matrices.

    Other stages stay as they are: what a maximum is taken of may be computed again elsewhere, and
    compared with it. A sum may leave the range of its dtype where a factor kept each of its terms
    inside.
    """
    return each_stage(outputs, _changed)


def _changed(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or not is_sum(reduction) or dtype_of(reduction.sources[0]) not in _DTYPES:
        return None
    if not const_value(reduction.condition) or reduction.init:
        return None
    loops = [*axis_vars(op), *(axis.var for axis in reduction.axes)]
    reduced = [axis.var for axis in reduction.axes]
    nest = loops_of([*op.axis, *reduction.axes])
    conditions, terms = _conditions_of(reduction.sources[0])
    terms = with_joined_choices(terms, nest, reduced)
    choices, summed = _choices_of(terms, nest, reduced)

    def is_operand(part: Expr) -> bool:
        # of a product of matrices: a quotient has the loops of all factors
        return bool({node_id(var) for var in loops} - {node_id(var) for var in variables_of(part)})

    [source] = factored([summed], lambda part: depends_on(part, loops), is_operand)
    computes = contains(source, is_expensive)  # others wait for memory
    matrices = _is_product_of_matrices(source, reduced)

    def stays(part: Expr) -> bool:
        # what is computed for each result is worth a product for it, and what is read is where it
        # would be an operand more
        leaves = matrices or _has_slow_results(part, reduced)
        return depends_on(part, reduced if leaves else loops)

    def changes(divisor: Expr) -> bool:
        return depends_on(divisor, reduced)

    worthwhile = computes or matrices or _has_slow_results(source, reduced)
    parts = apart(source, stays, changes, is_operand) if worthwhile else None
    # what data decide for a whole result is decided after the sum
    outer = [c for c in conditions if matrices and contains_load(c) and not depends_on(c, reduced)]
    left = [c for c in conditions if not any(c is one for one in outer)]
    if outer and not is_safe([guarded(left, source)], nest):
        outer, left = [], conditions
    outer += choices
    if parts is None and not outer:
        if node_id(source) == node_id(terms):
            return None
        changed = replace(reduction, sources=(bind_shared(guarded(conditions, source)),))
        return reduction_stage(op.name, list(op.axis), changed)
    product, times = parts or (source, lambda total: total)
    inside = bind_shared(guarded(left, product))
    axes = [data_axis(str(axis.var.name), axis_range(axis)[1]) for axis in op.axis]
    rename = dict(zip(axis_vars(op), [axis.var for axis in axes], strict=True))
    inner = renewed_reduction(replace(reduction, sources=(inside,)), rename)
    [total] = reduction_stage(f"{op.name}_unscaled", axes, inner)
    sums = load(total, axis_vars(op))
    whole = times(sums)
    if conditions or choices:
        # they may hold for no term, and protect what is outside
        if not is_safe([guarded(outer, whole)], loops_of(op.axis)):
            return None
        if may_be_infinite(whole):
            whole = if_then_else(compare("eq", sums, like(sums, 0.0)), like(sums, 0.0), whole)
    whole = guarded(outer, whole)
    # factors may divide by zero or read anywhere where the sum has no terms
    if any(depends_on(bound, reduced) for axis in reduction.axes for bound in bounds_of(axis)):
        if may_be_infinite(whole) or len(loaded_tensors(whole)) > 1:
            return None  # whether it has terms is no expression of the results' places
    else:
        whole = guarded(not_empty(reduction.axes), whole)
    return make_stage(op.name, list(op.axis), [whole])


def _is_product_of_matrices(source: Expr, reduced: Sequence[Var]) -> bool:
    """Whether factors that the sum changes have loops of the result that others do not have."""
    factors, pending = [], [source]
    while pending:
        node = pending.pop()
        if op_name(node) in ("mul", "div"):
            pending += operands(node)
        elif depends_on(node, reduced):
            factors.append({node_id(var) for var in variables_of(node)})
    return any(not (a <= b or b <= a) for a, b in combinations(factors, 2))


def _has_slow_results(expr: Expr, reduced: Sequence[Var]) -> bool:
    """Whether a slow part of an expression is the same for all terms of a sum, or they are divided
    by such a number.
    """

    def is_one(node: Expr) -> bool:
        part = operands(node)[1] if op_name(node) == "div" else node
        return is_slow(node) and not depends_on(part, reduced)

    return contains(expr, is_one)


def _choices_of(
    terms: Expr, nest: Loops, reduced: Sequence[Var]
) -> tuple[list[Expr], Expr]:
    """``select(c, s, 0) → [c], s`` for choices by data that the sum does not change, where s is a
    product of matrices or has slow factors that the sum does not change.
    """
    choices: list[Expr] = []
    left = terms
    while op_name(left) == "select":
        condition, then, otherwise = operands(left)
        [condition] = decided([condition], nest.variables, nest.ranges)
        if not contains_load(condition) or depends_on(condition, reduced):
            break
        if is_const(otherwise, 0):
            left = then
        elif is_const(then, 0):
            condition, left = negate(condition), otherwise
        else:
            break
        choices.append(condition)
    if _is_product_of_matrices(left, reduced) or _has_slow_results(left, reduced):
        return choices, left
    return [], terms


def _conditions_of(source: Expr) -> tuple[list[Expr], Expr]:
    """``if c and d then s else 0 → [c, d], s``."""
    if op_name(source) == "if_then_else" and is_const(operands(source)[2], 0):
        condition, terms, _ = operands(source)
        return list(conjuncts(condition)), terms
    return [], source
