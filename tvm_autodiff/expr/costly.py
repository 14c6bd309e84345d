"""Which functions of numbers take many operations, and which may be infinite."""

from __future__ import annotations

from .nodes import BRANCHES, COMPARISONS, Expr, const_value, is_const, is_float, op_name, operands
from .rewrite import postorder

#: functions that take many operations
EXPENSIVE = frozenset(
    (
        *("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "power", "tanh", "sigmoid"),
        *("erf", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "atan2"),
        *("asinh", "acosh", "atanh", "hypot"),
    )
)
#: those of a sum are products of those of its terms
EXPONENTIALS = frozenset(("exp", "exp2", "exp10", "power"))
#: what takes several times as long as a product
SLOW = EXPENSIVE | {"sqrt", "rsqrt", "div", "fmod"}


def is_expensive(node: Expr) -> bool:
    """Whether a node is a call of an expensive function of floats."""
    return op_name(node) in EXPENSIVE and is_float(node)


def is_slow(node: Expr) -> bool:
    """Whether a node is a call of an expensive function, a root or a quotient of floats; a literal
    divides by its reciprocal.
    """
    by_literal = op_name(node) == "div" and is_const(operands(node)[1])
    return op_name(node) in SLOW and is_float(node) and not by_literal


#: nodes of floats that are finite for all finite values, up to overflow of the result
_FINITE = frozenset(
    (*COMPARISONS, *BRANCHES, "load", "const", "var", "add", "sub", "mul", "min", "max", "abs")
    + ("fma", "cast", "let", "likely", "and", "or", "not", "floor", "ceil", "round", "trunc")
    + ("nearbyint", "itself", "tanh", "sigmoid", "erf", "sin", "cos", "atan", "atan2", "asinh")
)


def may_be_infinite(expr: Expr) -> bool:
    """Whether an expression of finite values may be infinite, or no number: ``1/x``, ``log(x)``."""
    for node in postorder(expr):
        if not is_float(node) or op_name(node) in _FINITE:
            continue
        if op_name(node) != "div" or not const_value(operands(node)[1]):
            return True
    return False
