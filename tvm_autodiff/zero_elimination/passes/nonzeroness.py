"""Factors out the condition under which an expression can be non-zero.

The result is ``if condition then value else 0``. `summands` decomposes expressions into summands
with conditions.
"""

from __future__ import annotations

from typing import TypeVar

from ...errors import InvalidArgumentError
from ...expr.build import zero_like
from ...expr.nodes import (
    Expr,
    Tensor,
    as_expr,
    dtype_of,
    is_tensor,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ...expr.sharing.lets import bind_shared
from ...graph.bounded_stage import bounded_stage
from ...graph.stage import bodies, is_compute
from ...keywords import checked_keywords
from ..sums.summands import joined, summands, where

TensorOrExpr = TypeVar("TensorOrExpr")


@checked_keywords
def lift_nonzeroness_condition(tensor_or_expr: TensorOrExpr) -> TensorOrExpr:
    """Factor out the condition under which an expression can be non-zero.

    ``(if a then x else 0) * (if b then y else 0)  →  if a and b then x*y else 0``,
    ``(if a and c then x else 0) + (if b and c then y else 0)  →
    if c and (a or b) then (if a then x else 0) + (if b then y else 0) else 0``,
    ``(if a then x else 0) / y  →  if a then x/y else 0``,
    ``float32(a) * x  →  select(a, x, 0)``.

    Parameters
    ----------
    tensor_or_expr : Tensor or scalar expression
        An expression, or a tensor, all of whose bodies or reduction sources are rewritten. A
        product with a structural zero is zero, even if the other factor is infinite or NaN.

    Returns
    -------
    Tensor or expression
        ``if condition then value else 0``, or the argument itself if there is no such condition. A
        condition that protects reads stays a branch, and the condition of a select becomes a
        select.

    Raises
    ------
    InvalidArgumentError
        If a tensor is not the output of `te.compute`.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> A, i, k = te.placeholder((8,), name="A"), te.var("i"), te.var("k")
    >>> e = te.if_then_else(i < 4, A[i], 0.0) * te.if_then_else(k < 2, A[k], 0.0)
    >>> text(lift_nonzeroness_condition(e))
    'if i < 4 and k < 2 then A[i]*A[k] else 0.0'

    References
    ----------
    apache/tvm issue 1996, "Automatic differentiation for tensor expressions".
    """
    if not is_tensor(tensor_or_expr):
        return _lifted(as_expr(tensor_or_expr))
    tensor: Tensor = tensor_or_expr
    op = tensor.op
    if not is_compute(op):
        raise InvalidArgumentError(
            f"tensor {op.name} is not the output of te.compute: there is no expression to factor"
        )
    old = bodies(op)
    new = [_lifted_body(body) for body in old]
    if all(node_id(a) == node_id(b) for a, b in zip(old, new, strict=True)):
        return tensor
    return bounded_stage(op.name, list(op.axis), new, op.tag)[tensor.value_index]


def _lifted_body(body: Expr) -> Expr:
    """``⊕_k source → ⊕_k lifted(source)``; other bodies are lifted directly."""
    if op_name(body) != "reduce":
        return _lifted(body)
    count = len(body.source)
    parts = operands(body)
    new = [*(_lifted(source) for source in parts[:count]), *parts[count:]]
    if all(node_id(a) == node_id(b) for a, b in zip(parts, new, strict=True)):
        return body
    return with_operands(body, new)


def _lifted(expr: Expr) -> Expr:
    if dtype_of(expr) == "bool":
        return expr
    whole = joined(summands(expr, most=1, either=True), either=True)
    if whole is None:
        return zero_like(expr)
    return bind_shared(where(whole)) if whole.conditions else expr
