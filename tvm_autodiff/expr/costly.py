"""Which functions of numbers take many operations."""

from __future__ import annotations

from .nodes import Expr, is_float, op_name

#: functions that take many operations
EXPENSIVE = frozenset(
    (
        *("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "power", "tanh", "sigmoid"),
        *("erf", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "atan2"),
        *("asinh", "acosh", "atanh", "hypot"),
    )
)


def is_expensive(node: Expr) -> bool:
    """Whether a node is a call of an expensive function of floats."""
    return op_name(node) in EXPENSIVE and is_float(node)
