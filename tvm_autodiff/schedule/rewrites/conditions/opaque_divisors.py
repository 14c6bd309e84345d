"""Keeps divisors that may be zero from TVM, which folds them, and rejects a division by a literal
zero also where a condition excludes it: a loop of one step makes its index a zero.

    ``if i > 0 then x[i]/float32(i) else 0 → if i > 0 then x[i]/itself(float32(i)) else 0``
"""

from __future__ import annotations

from collections.abc import Callable

from ....expr.build import const
from ....expr.integers.intervals import Interval, Intervals
from ....expr.intrinsics import itself
from ....expr.nodes import (
    INTEGER_DIVISIONS,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_const,
    is_integer,
    is_load,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ....expr.rewrite import contains_load, postorder, rewrite, substitute, variables_of
from ....expr.structural import StructuralKeys

_DIVISIONS = frozenset((*INTEGER_DIVISIONS, "div"))


def with_opaque_divisors(root: Expr, variable: Callable[[Var], Interval]) -> Expr:
    """The body of a stage whose divisors are no literal zeros.

    Parameters
    ----------
    root : Expr
        Divisors that read tensors are known at the call only, but TVM folds ``y - y`` to zero.
    variable : callable
        The interval of a variable.
    """
    bounds = Intervals(variable)

    def alone(divisor: Expr) -> Expr:
        """``x[i] - x[k] → x[0] - x[0]`` for loops of one step."""
        ends = {var: variable(var) for var in variables_of(divisor) if is_integer(var)}
        steps = {var: low for var, (low, high) in ends.items() if low == high}
        return substitute(divisor, {var: const(low, dtype_of(var)) for var, low in steps.items()})

    def visit(node: Expr) -> Expr | None:
        if op_name(node) not in _DIVISIONS:
            return None
        divided, divisor = operands(node)
        if const_value(divisor) or is_load(divisor):
            return None
        read = contains_load(divisor) or not all(map(is_integer, variables_of(divisor)))
        if read and not _cancels(alone(divisor)):
            return None  # also what a let computes from elements
        number = divisor
        while op_name(number) == "cast":
            [number] = operands(number)
        if op_name(number) == "itself":
            return None
        if is_integer(number):
            low, high = bounds.of(number)
            if low > 0 or high < 0:
                return None
        return with_operands(node, (divided, itself(divisor)))

    return rewrite(root, visit)


def _cancels(expr: Expr) -> bool:
    """Whether an expression is zero, or contains ``y - y``."""
    if is_const(expr, 0):
        return True
    differences = [node for node in postorder(expr) if op_name(node) == "sub"]
    keys = StructuralKeys().parts(expr) if differences else {}
    return any(keys[node_id(a)] == keys[node_id(b)] for a, b in map(operands, differences))
