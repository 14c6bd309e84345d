"""Rewrites rounded-up divisions, as libraries write them, into a single floor division.

``select(e % m == 0, e // m, e // m + 1)`` becomes ``(e + m - 1) // m``, which the linear solver can
handle. Adaptive pooling computes the ends of its windows this way. What the solver finds for every
m-th place of an axis has the form ``(e + -e % m) // m``.
"""

from __future__ import annotations

from .. import build
from ..linear_terms import linear_terms
from ..nodes import Expr, const_value, dtype_of, is_const, node_id, op_name, operands
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


def rounded_numerator(
    terms: list[tuple[Expr, int]], constant: int, c: int
) -> tuple[list[tuple[Expr, int]], int] | None:
    """``(a + e % c)//c → (a + c - 1)//c`` if c divides a + e, and ``(a - e % c)//c → a//c`` if
    c divides a - e: the terms and the constant of the new numerator; None for others.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> rounded_numerator([(i, 1), (i * 3 % 4, 1)], 0, 4)
    ([(i, 1)], 3)
    """
    for place, (node, k) in enumerate(terms):
        if op_name(node) != "floormod" or abs(k) != 1 or const_value(operands(node)[1]) != c:
            continue
        rest = terms[:place] + terms[place + 1 :]
        inside, more = linear_terms(operands(node)[0])
        factors = {node_id(term): factor for term, factor in rest}
        for term, factor in inside:
            factors[node_id(term)] = factors.get(node_id(term), 0) + k * factor
        if all(factor % c == 0 for factor in (constant + k * more, *factors.values())):
            return rest, constant + (c - 1 if k > 0 else 0)
    return None


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
