"""Divides the factors of a sum of products, not the products.

The average over the neighbours of a node divides each term by a degree that only one factor shares
its loops with: that factor is divided once, and the sum is a product of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.build import div, if_then_else, like, multiplied
from ....expr.nodes import (
    Expr,
    Tensor,
    binary,
    const_value,
    dtype_of,
    is_const,
    is_float,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import contains_load, depends_on, expand_lets, variables_of
from ....expr.sharing.lets import bind_shared
from ....graph.graph import each_stage
from ....graph.stage import Operation, is_compute, loop_axes, reduction_of, reduction_stage
from ...nest.reductions.products import is_sum


def with_divided_factors(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[i, j] = Σ_k a[i, k]*b[k, j]/d[k] → y[i, j] = Σ_k a[i, k]*(b[k, j]/d[k])``, ``Σ_k a[k, j]/
    float(i + k + 1) → Σ_k a[k, j]*(1/float(i + k + 1))``.

    The factor of the fewest loops is divided that has those of the divisor. Divisors that the sum
    does not change are left to `factored_sums`. A quotient may leave the range of float16 where a
    product would not: its sums stay.
    """
    return each_stage(outputs, _changed)


def _changed(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or not is_sum(reduction):
        return None
    if not is_float(reduction.sources[0]) or dtype_of(reduction.sources[0]) == "float16":
        return None
    summed = [axis.var for axis in reduction.axes]
    loops = {node_id(axis.var) for axis in loop_axes(op)}
    source = expand_lets(reduction.sources[0])
    if op_name(source) == "if_then_else" and is_const(operands(source)[2], 0):
        condition, product, _ = operands(source)
        product = _divided(product, loops, summed)
        changed = None if product is None else if_then_else(condition, product, like(product, 0.0))
    else:
        changed = _divided(source, loops, summed)
    if changed is None:
        return None
    bound = replace(reduction, sources=(bind_shared(changed),))
    return reduction_stage(op.name, list(op.axis), bound)


def _divided(product: Expr, loops: set[int], summed: Sequence[Expr]) -> Expr | None:
    """The product with its divisors at the factors, or None if none is moved."""
    factors, divisors = _parts(product)
    uses = [_loops(factor, loops) for factor in factors]
    whole = frozenset[int]().union(*uses)
    left, numbers, moved = [], [], False
    for divisor in divisors:
        own = _loops(divisor, loops)
        wider = [n for n, use in enumerate(uses) if own <= use < whole]
        if not depends_on(divisor, summed):
            left.append(divisor)
        elif wider:
            place = min(wider, key=lambda n: len(uses[n]))
            factors[place] = div(factors[place], divisor)
            moved = True
        elif not whole <= own and not contains_load(divisor):
            numbers.append(binary("div", like(divisor, 1), divisor))
            moved = True
        else:
            left.append(divisor)
    if not moved:
        return None
    value = multiplied(factors)
    for number in numbers:
        value = binary("mul", value, number)  # `mul` would divide by the divisor again
    for divisor in left:
        value = div(value, divisor)
    return value


def _parts(expr: Expr) -> tuple[list[Expr], list[Expr]]:
    """The factors of a product in order, and what it is divided by."""
    if op_name(expr) == "mul":
        (left, below), (right, beside) = map(_parts, operands(expr))
        return left + right, below + beside
    if op_name(expr) == "div" and const_value(operands(expr)[1]) is None:
        numerator, divisor = operands(expr)
        factors, divisors = _parts(numerator)
        return factors, [*divisors, divisor]
    return [expr], []


def _loops(expr: Expr, loops: set[int]) -> frozenset[int]:
    return frozenset(node_id(var) for var in variables_of(expr)) & frozenset(loops)
