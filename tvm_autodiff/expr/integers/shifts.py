"""Divisions by a power of two that is known only as a shift.

A division takes tens of cycles and has no vectors; a shift takes one.
"""

from __future__ import annotations

from ..dtypes import bits_of
from ..nodes import Expr, binary, dtype_of, is_const, op_name, operands
from ..rewrite import contains, rewrite
from .intervals import Intervals

#: signed types, whose right shift rounds down as `floordiv` does
_SIGNED = ("int32", "int64")


def with_shifts(root: Expr, intervals: Intervals) -> Expr:
    """``a // (1 << n)  →  a >> n,  a % (1 << n)  →  a & ((1 << n) - 1)`` where n fits.

    Parameters
    ----------
    root : Expr
    intervals : Intervals
        The intervals of its parts.

    Examples
    --------
    >>> from tvm import te
    >>> a, n = te.var("a"), te.var("n")
    >>> one = te.const(1, "int32")
    >>> with_shifts((a // (one << n)) % (one << n), Intervals(lambda var: (0, 7)))
    a >> n & (1 << n) - 1
    """

    def visit(node: Expr) -> Expr | None:
        if not _divides(node):
            return None
        divided, divisor = operands(node)
        one, places = operands(divisor)
        low, high = intervals.of(places)
        if low < 0 or high > bits_of(dtype_of(node)) - 2:  # beyond, the power is negative
            return None
        if op_name(node) == "floordiv":
            return binary("shift_right", divided, places)
        return binary("bitwise_and", divided, divisor - one)

    return rewrite(root, visit) if contains([root], _divides) else root


def _divides(node: Expr) -> bool:
    """Whether a node divides by ``1 << n``."""
    if op_name(node) not in ("floordiv", "floormod") or dtype_of(node) not in _SIGNED:
        return False
    divisor = operands(node)[1]
    return op_name(divisor) == "shift_left" and is_const(operands(divisor)[0], 1)
