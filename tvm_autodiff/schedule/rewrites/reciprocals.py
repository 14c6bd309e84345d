"""Replaces divisors that are constant over many quotients by factors, with one more rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...expr.build import call, cast, compare, div, like, mul, multiplied, select
from ...expr.nodes import (
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_float,
    let_variable,
    load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import contains_load, postorder, rewrite, substitute, variables_of
from ...expr.structural import StructuralKeys
from ...graph.graph import each_stage
from ...graph.stage import (
    Operation,
    axis_vars,
    is_compute,
    make_stage,
    reduction_of,
    reduction_stage,
)
from ..cost import LAUNCH_CYCLES
from ..kernel import iterations
from ..nest.in_range import is_safe, loops_of
from ..nest.reductions.products import is_sum

#: dtype → n for which quotients by divisors outside of 2**-n to 2**n are scaled by 2**(n - 2): half
#: of the exponents, so that neither the numerator nor the divisor leaves them
SCALED_FROM = {dtype: np.finfo(dtype).maxexp // 2 for dtype in ("float32", "float64")}


def factors_for(divisor: Expr) -> list[Expr]:
    """The factors that replace a divisor: ``x / s → x * c(s) * (1/(s*c(s)))``.

    c is one except for tiny and huge divisors, whose reciprocal would overflow or be subnormal.
    """
    narrow = dtype_of(divisor) not in SCALED_FROM
    wide = cast("float32", divisor) if narrow else divisor
    one = like(wide, 1.0)
    if dtype_of(divisor) == "float16":  # all of its numbers have a normal reciprocal in float32
        return [div(one, wide)]
    limit = SCALED_FROM[dtype_of(wide)]
    size = call("abs", wide)
    large = compare("gt", size, like(wide, 2.0**limit))
    small = compare("lt", size, like(wide, 2.0**-limit))
    down, up = like(wide, 2.0 ** (2 - limit)), like(wide, 2.0 ** (limit - 2))
    scale = select(small, up, select(large, down, one))
    return [scale, div(one, mul(wide, scale))]


def divided(numerator: Expr, factors: Sequence[Expr]) -> Expr:
    """The quotient, in the dtype of the numerator."""
    value = multiplied([cast(dtype_of(factors[0]), numerator), *factors])
    return cast(dtype_of(numerator), value)


def with_reciprocals(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``Σ_k f(k) / s → Σ_k f(k) * c * r, r = 1/(s*c)`` if s is one number for the stage, and
    ``Σ_k f(k) / 3 → Σ_k f(k) * (1/3)``.
    """
    keys = StructuralKeys()
    made: dict[int, list[Tensor]] = {}

    def factors(divisor: Expr) -> list[Expr]:
        key = keys.expr(divisor)
        if key not in made:
            made[key] = [
                make_stage(name, [], [value])[0]
                for name, value in zip(
                    ("reciprocal", "scale"), reversed(factors_for(divisor)), strict=False
                )
            ]
        return [load(tensor, []) for tensor in reversed(made[key])]

    def change(op: Operation) -> list[Tensor] | None:
        many = is_compute(op) and op.num_outputs == 1 and iterations(op) >= LAUNCH_CYCLES
        return _multiplied(op, factors) if many else None

    return each_stage(outputs, change)


def _multiplied(op: Operation, factors: Callable[[Expr], list[Expr]]) -> list[Tensor] | None:
    """A sum without quotients by loop-invariant numbers, or None if it has none."""
    reduction = reduction_of(op)
    if reduction is None or not is_sum(reduction):
        return None
    source = reduction.sources[0]
    fixed = _Fixed(source, [*axis_vars(op), *(axis.var for axis in reduction.axes)])

    def visit(node: Expr) -> Expr | None:
        if op_name(node) != "div" or not is_float(node):
            return None
        numerator, divisor = operands(node)
        value = fixed.value(divisor)
        if value is None or fixed.value(numerator) is not None:
            return None
        if contains_load(value):  # read once, also where no element is computed
            return divided(numerator, factors(value)) if is_safe([value], loops_of(())) else None
        inverse = _inverse(value)
        return None if inverse is None else mul(numerator, inverse)

    changed = rewrite(source, visit)
    if node_id(changed) == node_id(source):
        return None
    return reduction_stage(op.name, list(op.axis), replace(reduction, sources=(changed,)))


def _inverse(divisor: Expr) -> Expr | None:
    """``3 → 1/3`` for literals that are neither tiny nor huge."""
    value, limit = const_value(divisor), SCALED_FROM.get(dtype_of(divisor))
    if value is None or limit is None or not 2.0**-limit <= abs(value) <= 2.0**limit:
        return None
    return like(divisor, 1.0 / value)


class _Fixed:
    """The parts of a body that do not change with its axes."""

    def __init__(self, body: Expr, variables: Sequence[Var]) -> None:
        self._varies = {node_id(var) for var in variables}
        self._lets: dict[Var, Expr] = {}
        for node in reversed(list(postorder(body))):  # lets before what they hold
            if op_name(node) == "let":
                value = self.value(operands(node)[0])
                if value is None:
                    self._varies.add(node_id(let_variable(node)))
                else:
                    self._lets[let_variable(node)] = value

    def value(self, part: Expr) -> Expr | None:
        """A part that depends on nothing the body binds, or None if it changes."""
        if any(node_id(var) in self._varies for var in variables_of(part)):
            return None
        return substitute(part, self._lets)
