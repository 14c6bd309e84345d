"""Conditions that are choices, as those of nested choices are in gradients, as conjunctions.

TVM simplifies the sides of a choice under its condition, and a condition anew wherever it guards
something: its time is exponential in the depth of conditions that are choices.
"""

from __future__ import annotations

from ....expr.build import all_of, any_of, negate
from ....expr.nodes import BRANCHES, Expr, dtype_of, op_name, operands
from ....expr.rewrite import rewrite


def with_conjunctions(root: Expr) -> Expr:
    """``select(a, b, c) → a and b or not a and c``, for conditions b and c."""
    return rewrite(root, _conjunction)


def _conjunction(node: Expr) -> Expr | None:
    if op_name(node) not in BRANCHES or dtype_of(node) != "bool":
        return None
    condition, then, otherwise = operands(node)
    return any_of([all_of([condition, then]), all_of([negate(condition), otherwise])])
