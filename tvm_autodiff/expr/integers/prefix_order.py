"""Conditions that select what comes before a place, or after it: ``k <= i``, ``i < k + 1``."""

from __future__ import annotations

from typing import NamedTuple

from ..build import sub
from ..dtypes import keeps_values
from ..linear_terms import linear_terms
from ..nodes import INDEX_DTYPES, Expr, Var, dtype_of, node_id, op_name, operands

#: comparison of ``k - i`` with zero → the least, and the largest difference that it allows
_ALLOWS: dict[str, tuple[int | None, int | None]] = {
    "lt": (None, -1),
    "le": (None, 0),
    "gt": (1, None),
    "ge": (0, None),
}


class PrefixOrder(NamedTuple):
    """Which elements a place selects: those before it or, `backward`, those after it; and whether
    its own one is among them.
    """

    backward: bool
    inclusive: bool


def prefix_order(condition: Expr, element: Var, place: Var) -> PrefixOrder | None:
    """The order of two variables that a condition requires; None for other conditions.

    Narrow and unsigned numbers wrap, so they have no order here.

    Examples
    --------
    >>> from tvm import te
    >>> k, i = te.var("k"), te.var("i")
    >>> prefix_order(k < i + 1, k, i)
    PrefixOrder(backward=False, inclusive=True)
    >>> prefix_order(i < k, k, i)
    PrefixOrder(backward=True, inclusive=False)
    """
    if op_name(condition) not in _ALLOWS or dtype_of(operands(condition)[0]) not in INDEX_DTYPES:
        return None
    terms, constant = linear_terms(sub(*operands(condition)))
    factors = {node_id(unconverted(node)): factor for node, factor in terms if factor}
    sign = factors.get(node_id(element), 0)
    if factors != {node_id(element): sign, node_id(place): -sign} or abs(sign) != 1:
        return None
    least, most = (None if end is None else end - constant for end in _ALLOWS[op_name(condition)])
    if sign < 0:
        least, most = (None if end is None else -end for end in (most, least))
    if most in (-1, 0):
        return PrefixOrder(False, most == 0)
    return PrefixOrder(True, least == 0) if least in (0, 1) else None


def unconverted(index: Expr) -> Expr:
    """``int64(k) → k``, where a conversion keeps every value: that to uint8 wraps."""
    if op_name(index) != "cast":
        return index
    [inner] = operands(index)
    return inner if keeps_values(dtype_of(inner), dtype_of(index)) else index
