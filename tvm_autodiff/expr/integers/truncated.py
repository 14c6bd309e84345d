"""Divisions that round to zero as divisions that round down.

TVM 0.27 moves the start of a vector of places by a multiple of the divisor, ``truncmod(4 - lane, 2)
→ truncmod(-lane, 2)``, which changes the sign of what is left over.
"""

from __future__ import annotations

from ..build import compare, const, neg, select
from ..nodes import Expr, binary, const_value, dtype_of, op_name, operands
from ..rewrite import contains, rewrite
from .intervals import Intervals

_FLOORED = {"truncdiv": "floordiv", "truncmod": "floormod"}
_SIGNED = ("int32", "int64")


def with_floor_divisions(root: Expr, intervals: Intervals) -> Expr:
    """``truncdiv(a, c) → a // c``, ``truncmod(a, c) → a % c`` by positive literals where a is never
    negative, and else ``select(a >= 0, a % c, -(-a % c))``.

    Numbers of which nothing is known, such as data, are divided as they are.

    Parameters
    ----------
    root : Expr
    intervals : Intervals
        The intervals of its parts.

    Examples
    --------
    >>> from tvm import te, tirx
    >>> i, four = te.var("i"), te.const(4, "int32")
    >>> with_floor_divisions(tirx.truncmod(9 - i, four), Intervals(lambda var: (0, 9)))
    (9 - i) % 4
    >>> with_floor_divisions(tirx.truncdiv(i - 1, four), Intervals(lambda var: (0, 9)))
    T.Select(i - 1 >= 0, (i - 1) // 4, (i - 1) * -1 // 4 * -1)
    """

    def visit(node: Expr) -> Expr | None:
        if not _truncates(node):
            return None
        divided, divisor = operands(node)
        value, floored = const_value(divisor), _FLOORED[op_name(node)]
        low, _ = intervals.of(divided)
        if value is None or value <= 0 or -low >= 2 ** (31 if dtype_of(node) == "int32" else 63):
            return None
        whole = binary(floored, divided, divisor)
        if low >= 0:
            return whole
        mirrored = neg(binary(floored, neg(divided), divisor))
        return select(compare("ge", divided, const(0, dtype_of(node))), whole, mirrored)

    return rewrite(root, visit) if contains([root], _truncates) else root


def _truncates(node: Expr) -> bool:
    return op_name(node) in _FLOORED and dtype_of(node) in _SIGNED
