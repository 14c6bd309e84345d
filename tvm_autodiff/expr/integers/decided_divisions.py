"""Quotients and remainders that the ranges of loops decide."""

from __future__ import annotations

from collections.abc import Callable

from ..build import add, const, mul, sub
from ..nodes import Expr, Var, const_value, dtype_of, is_const, node_id, op_name, operands
from ..rewrite import contains, preorder, rewrite
from .intervals import Interval, Intervals, is_index

_DIVISIONS = ("floordiv", "floormod")
#: what a decided quotient is an operand of: zeros and ones disappear
_FOLDED: dict[str, Callable[[Expr, Expr], Expr]] = {"add": add, "sub": sub, "mul": mul}


def with_decided_divisions(root: Expr, variable: Callable[[Var], Interval]) -> Expr:
    """``t//24 → 0, t % 24 → t`` for t in 0..23, ``(t + 24)//24 → 1, (t + 24) % 24 → t + 24 - 24``.

    Under a minimum or a maximum they stay: what is clamped is no affine form without them, either,
    and rules divide an axis at its quotients.

    Parameters
    ----------
    root : Expr
    variable : callable
        The interval of a variable.

    Examples
    --------
    >>> from tvm import te
    >>> t = te.var("t")
    >>> with_decided_divisions(t // 24 * 7 + t % 24, lambda var: (0, 23))
    t
    """
    bounds = Intervals(variable)
    clamps = [node for node in preorder(root) if op_name(node) in ("min", "max") and is_index(node)]
    clamped = set(map(node_id, preorder(clamps)))

    def decided(node: Expr) -> Expr | None:
        divided, divisor = operands(node)
        step = const_value(divisor)
        if not is_index(node) or not isinstance(step, int) or step <= 0:
            return None
        if node_id(node) in clamped:
            return None
        low, high = bounds.of(divided)
        quotient = low // step
        if quotient != high // step:
            return None
        if op_name(node) == "floordiv":
            return const(quotient, dtype_of(node))
        return sub(divided, const(quotient * step, dtype_of(node)))

    def visit(node: Expr) -> Expr | None:
        name = op_name(node)
        if name in _DIVISIONS:
            return decided(node)
        if name in _FOLDED and is_index(node) and any(map(is_const, operands(node))):
            return _FOLDED[name](*operands(node))
        return None

    def is_decided(node: Expr) -> bool:
        return op_name(node) in _DIVISIONS and decided(node) is not None

    return rewrite(root, visit) if contains(root, is_decided) else root
