"""Which functions of numbers take many operations."""

from __future__ import annotations

from .nodes import Expr, is_const, is_float, op_name, operands

#: functions that take many operations
EXPENSIVE = frozenset(
    (
        *("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "power", "tanh", "sigmoid"),
        *("erf", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "atan2"),
        *("asinh", "acosh", "atanh", "hypot"),
    )
)
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
