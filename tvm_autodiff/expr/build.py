"""Constructors for expressions that fold constants as calculus needs it: ``x*1 → x``, ``x*0 → 0``,
``x+0 → x``.

A product with a literal zero is zero because a structurally zero derivative must vanish, even where
the other factor could be NaN. `simplify` handles indices and conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isqrt

from tvm import tirx
from tvm.ir import prim
from tvm_ffi import structural_equal

from .dtypes import common_index, integer_range
from .nodes import (
    INDEX_DTYPES,
    Expr,
    Var,
    binary,
    call_node,
    const_value,
    dtype_of,
    is_const,
    is_float,
    is_integer,
    matched,
    op_name,
    operands,
)

#: comparison → the one that holds where it does not, of numbers that are ordered
NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


def const(value: float, dtype: str) -> Expr:
    """A literal of the given dtype."""
    return tirx.const(value, dtype)


def like(expr: Expr, value: float) -> Expr:
    """A literal with the dtype of `expr`."""
    return tirx.const(value, dtype_of(expr))


def zero_like(expr: Expr) -> Expr:
    """Zero with the dtype of `expr`."""
    return tirx.const(0, dtype_of(expr))


def lowest(dtype: str) -> float:
    """The least finite number of a dtype."""
    return tirx.min_value(dtype).value


def variable(name: str, dtype: str = "int32") -> Var:
    """A fresh variable."""
    return tirx.Var(name, dtype)


def add(left: Expr, right: Expr) -> Expr:
    """``left + right``; a zero disappears and ``a + b*(-1)`` becomes a difference."""
    if is_const(left, 0):
        return right
    if is_const(right, 0):
        return left
    negated = negation_of(right)
    if negated is not None:
        return prim.Sub(*matched(left, negated))
    return prim.Add(*matched(left, right))


def sub(left: Expr, right: Expr) -> Expr:
    """``left - right``; a zero disappears."""
    if is_const(right, 0):
        return left
    if is_const(left, 0):
        return neg(right)
    return prim.Sub(*matched(left, right))


def mul(left: Expr, right: Expr) -> Expr:
    """``left * right``; factors of one disappear, and a literal zero makes the product zero."""
    for one, other in ((left, right), (right, left)):
        if is_const(one, 0):
            return one
        if is_const(one, 1):
            return other
    a, b = const_value(left), const_value(right)
    if a is not None and b is not None and is_float(left):
        return like(left, a * b)
    return prim.Mul(*matched(left, right))


def neg(expr: Expr) -> Expr:
    """``-expr``, written ``expr * (-1)`` as TVM does; a double negation disappears."""
    value = const_value(expr)
    if value is not None:
        return like(expr, -value)
    inner = negation_of(expr)
    return inner if inner is not None else prim.Mul(expr, like(expr, -1))


def negation_of(expr: Expr) -> Expr | None:
    """``x`` where the expression is ``x * (-1)``, else None."""
    if op_name(expr) == "mul":
        left, right = operands(expr)
        if is_const(right, -1):
            return left
        if is_const(left, -1):
            return right
    return None


def div(left: Expr, right: Expr) -> Expr:
    """``left / right`` of floats; division by one and a literal zero numerator disappear."""
    if is_const(right, 1) or is_const(left, 0):
        return left
    return prim.Div(left, right)


def call(name: str, *args: Expr) -> Expr:
    """An intrinsic applied to expressions. The result has the dtype of the first operand."""
    return call_node(name, args, dtype_of(args[0]))


def cast(dtype: str, expr: Expr) -> Expr:
    """`expr` converted to `dtype`, or `expr` itself if it already has that dtype.

    An integer literal wraps round as the number would at run time.
    """
    if dtype_of(expr) == dtype:
        return expr
    value = const_value(expr)
    if value is not None and dtype.startswith(("int", "uint")):
        low, high = integer_range(dtype)
        if isinstance(value, int):
            value = (value - low) % (high - low + 1) + low
        elif not low <= value <= high:  # no value is defined
            return prim.Cast(dtype, expr)
    return tirx.const(value, dtype) if value is not None else prim.Cast(dtype, expr)


def compare(name: str, left: Expr, right: Expr) -> Expr:
    """A comparison by name: ``eq ne lt le gt ge``."""
    return binary(name, left, right)


def equal_integers(left: Expr, right: Expr) -> Expr:
    """``left == right`` of integers of any dtypes, compared in one that holds both."""
    dtype = common_index(dtype_of(left), dtype_of(right))
    return binary("eq", cast(dtype, left), cast(dtype, right))


def true() -> Expr:
    """The condition that always holds."""
    return tirx.const(True, "bool")


def all_of(conditions: Iterable[Expr]) -> Expr:
    """The conjunction of conditions; literal truths disappear, and one literal falsehood makes it
    false.
    """
    result: Expr | None = None
    for condition in conditions:
        value = const_value(condition)
        if value == 0:
            return condition
        if value is None:
            result = condition if result is None else prim.And(result, condition)
    return true() if result is None else result


def any_of(conditions: Iterable[Expr]) -> Expr:
    """The disjunction of conditions; literal falsehoods disappear, and one literal truth makes it
    true.
    """
    result: Expr | None = None
    for condition in conditions:
        value = const_value(condition)
        if value is not None and value != 0:
            return condition
        if value is None:
            result = condition if result is None else prim.Or(result, condition)
    return tirx.const(False, "bool") if result is None else result


def negate(condition: Expr) -> Expr:
    """The negation of a condition; integer comparisons are reversed: ``not (a < b) → a >= b``."""
    name = op_name(condition)
    value = const_value(condition)
    if value is not None:
        return tirx.const(not value, "bool")
    if name == "not":
        return operands(condition)[0]
    if name in NEGATED and not is_float(operands(condition)[0]):
        return binary(NEGATED[name], *operands(condition))
    return prim.Not(condition)


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts of a conjunction, left to right; ``likely`` marks are dropped."""
    pending, parts = [condition], []
    while pending:
        part = pending.pop()
        name = op_name(part)
        if name == "and":
            left, right = operands(part)
            pending += [right, left]
        elif name == "likely":
            pending.append(operands(part)[0])
        elif not is_const(part, 1):
            parts.append(part)
    return parts


#: a comparison of a size with its bound → that of the opposite, with the opposite bound
_WITHIN = {"lt": "gt", "le": "ge"}
_MIRRORED = {"gt": "lt", "ge": "le"}  #: ``b > a → a < b``


def absolute_of(size: Expr) -> Expr | None:
    """The a of ``abs(a)``, which TVM writes as ``select(a >= 0, a, 0 - a)`` for integers."""
    if op_name(size) == "abs":
        return operands(size)[0]
    if op_name(size) != "select":
        return None
    condition, value, otherwise = operands(size)
    if op_name(condition) != "ge" or op_name(otherwise) != "sub":
        return None
    left, zero = operands(condition)
    first, second = operands(otherwise)
    # ``0 - (b - a)`` may be simplified to ``a - b``
    sides = operands(value)[::-1] if op_name(value) == "sub" else ()
    negated = is_const(first, 0) and structural_equal(second, value)
    negated = negated or (len(sides) == 2 and all(map(structural_equal, (first, second), sides)))
    return value if negated and is_const(zero, 0) and structural_equal(left, value) else None


def _bounds(comparison: Expr) -> list[Expr] | None:
    """The comparisons of integers that one of an absolute value, a square, a maximum or a minimum
    stands for; None for others.
    """
    name = op_name(comparison)
    if name not in (*_WITHIN, *_MIRRORED):
        return None
    least, most = operands(comparison)
    if name in _MIRRORED:
        name, least, most = _MIRRORED[name], most, least
    if op_name(least) == "max" and is_integer(least):
        return [compare(name, side, most) for side in operands(least)]
    if op_name(most) == "min" and is_integer(most):
        return [compare(name, least, side) for side in operands(most)]
    if not is_float(least) and dtype_of(least) not in INDEX_DTYPES:
        return None  # the size of the least number of a narrow type is no number of it
    value, bound = absolute_of(least), const_value(most)
    if op_name(least) == "mul" and is_integer(least) and bound is not None and bound >= 0:
        left, right = operands(least)
        root = isqrt(int(bound) - (name == "lt")) if bound else 0
        if structural_equal(left, right) and (name == "le" or bound):
            value, name, most = left, "le", like(left, root)
    if value is None:
        return None
    return [compare(name, value, most), compare(_WITHIN[name], value, neg(most))]


def affirmed(condition: Expr) -> list[Expr]:
    """`conjuncts`, some of them new: ``not (a or b) → not a, not b``, and ``not a != b → a == b``
    for integers, ``abs(a) < b → a < b, a > -b``, ``a*a < 9 → a <= 2, a >= -2`` and ``max(a, b) < c
    → a < c, b < c``.
    """
    pending, parts = conjuncts(condition)[::-1], []
    while pending:
        part = pending.pop()
        inside = operands(part)[0] if op_name(part) == "not" else None
        if inside is not None and op_name(inside) == "or":
            pending += [negate(side) for side in operands(inside)[::-1]]
        elif inside is not None and op_name(opposite := negate(inside)) != "not":
            pending += conjuncts(opposite)[::-1]
        elif (bounds := _bounds(part)) is not None:
            pending += bounds[::-1]
        else:
            parts.append(part)
    return parts


def if_then_else(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """A branch that evaluates only the side it takes. It guards a read."""
    value = const_value(condition)
    if value is not None:
        return then if value else otherwise
    then, otherwise = matched(then, otherwise)
    return call_node("if_then_else", (condition, then, otherwise), dtype_of(then))


def select(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """A choice that may evaluate both sides. It vectorises, but does not guard a read."""
    value = const_value(condition)
    if value is not None:
        return then if value else otherwise
    return prim.Select(condition, *matched(then, otherwise))


def multiplied(factors: Sequence[Expr]) -> Expr:
    """The product of one or more expressions, left to right."""
    result = factors[0]
    for factor in factors[1:]:
        result = mul(result, factor)
    return result


def sum_of(terms: Sequence[Expr]) -> Expr:
    """The sum of one or more expressions, left to right."""
    result = terms[0]
    for term in terms[1:]:
        result = add(result, term)
    return result
