"""Rewrites rounded-up divisions, as libraries write them, into a single floor division.

``select(e % m == 0, e // m, e // m + 1)`` becomes ``(e + m - 1) // m``, which the linear solver can
handle. Adaptive pooling computes the ends of its windows this way.
"""

from __future__ import annotations

from .. import build
from ..nodes import Expr, const_value, dtype_of, is_const, op_name, operands
from ..rewrite import rewrite
from ..structural import StructuralKeys


def fold_ceil_divisions(expr: Expr) -> Expr:
    """``select(e % m == 0, e // m, e // m + 1) → (e + m - 1) // m`` for positive constants m.

    Examples
    --------
    >>> from tvm import te, tirx
    >>> from tvm_autodiff.expr.printing.text import text
    >>> i = te.var("i")
    >>> text(fold_ceil_divisions(tirx.Select((i * 8 % 3).equal(0), i * 8 // 3, i * 8 // 3 + 1)))
    '(i*8 + 2)//3'
    """
    return rewrite(expr, _fold)


def _fold(node: Expr) -> Expr | None:
    if op_name(node) not in ("select", "if_then_else"):
        return None
    condition, exact, rounded = operands(node)
    if op_name(condition) != "eq" or op_name(exact) != "floordiv" or op_name(rounded) != "add":
        return None
    remainder, zero = operands(condition)
    below, one = operands(rounded)
    numerator, divisor = operands(exact)
    value = const_value(divisor)
    if op_name(remainder) != "floormod" or not is_const(zero, 0) or not is_const(one, 1):
        return None
    keys = StructuralKeys()
    same = keys.expr(below) == keys.expr(exact) and [
        keys.expr(part) for part in operands(remainder)
    ] == [keys.expr(numerator), keys.expr(divisor)]
    if not same or value is None or value <= 0:
        return None
    shifted = build.add(numerator, build.const(value - 1, dtype_of(numerator)))
    return build.binary("floordiv", shifted, divisor)
