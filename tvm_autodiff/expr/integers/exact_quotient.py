"""Quotients of extents that leave no remainder, whatever the sizes are."""

from __future__ import annotations

from ..linear_terms import linear_sum, linear_terms
from ..nodes import Expr, dtype_of


def exact_quotient(extent: Expr | int, divisor: int) -> Expr | int | None:
    """``extent / divisor`` where all terms of an extent are multiples of the divisor, else None.

    Examples
    --------
    >>> from tvm import te
    >>> n = te.var("n")
    >>> exact_quotient(12, 4), exact_quotient(n * 8 + 16, 8), exact_quotient(n * 6, 4)
    (3, n + 2, None)
    """
    if isinstance(extent, int):
        return None if extent % divisor else extent // divisor
    terms, constant = linear_terms(extent)
    if constant % divisor or any(factor % divisor for _, factor in terms):
        return None
    found = [(node, factor // divisor) for node, factor in terms]
    return linear_sum(found, constant // divisor, dtype_of(extent))
