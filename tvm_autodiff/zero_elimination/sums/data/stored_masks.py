"""Reads of stages that hold a mask, such as one-hot vectors, as the mask: its equation can then
determine an axis of a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....expr.build import conjuncts
from ....expr.nodes import (
    Expr,
    Tensor,
    const_value,
    dtype_of,
    is_const,
    is_integer,
    op_name,
    operands,
)
from ....expr.rewrite import map_loads, substituter
from ....graph.stage import axis_vars, bodies, is_compute, reduction_of


def is_mask(node: Expr) -> bool:
    """Whether a number is selected by an equation between integers, by one of several, or by few
    of the differences on a circle.
    """
    name = op_name(node)
    if name not in ("cast", "select", "if_then_else"):
        return False
    condition = operands(node)[0]
    return dtype_of(condition) == "bool" and any(map(_is_rare, conjuncts(condition)))


def _is_rare(condition: Expr) -> bool:
    """Whether a condition determines an index up to a few values."""
    name = op_name(condition)
    if name in ("or", "and"):
        sides = map(_is_rare, operands(condition))
        return all(sides) if name == "or" else any(sides)
    if name == "eq":
        return is_integer(operands(condition)[0])
    if name not in ("lt", "le") or op_name(operands(condition)[0]) != "floormod":
        return False
    [remainder, end] = operands(condition)
    divisor, count = const_value(operands(remainder)[1]), const_value(end)
    return divisor is not None and count is not None and 2 * (count + (name == "le")) <= divisor


def with_stored_masks(expr: Expr) -> Expr:
    """``o[e, n]*v with o[e, n] = if idx[e] == n then 1 else 0 → (if idx[e] == n then 1 else 0)*v``.
    """
    return map_loads(expr, _mask)


def _mask(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
    op = tensor.op
    if not is_compute(op) or op.num_outputs != 1 or reduction_of(op) is not None:
        return None
    [body] = bodies(op)
    if not is_mask(body) or not all(is_const(number) for number in operands(body)[1:]):
        return None
    if len(operands(body)) > 1 and not is_const(operands(body)[2], 0):
        return None
    return substituter(dict(zip(axis_vars(op), indices, strict=True)))(body)
