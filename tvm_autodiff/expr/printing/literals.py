"""Prints literals as the shortest decimal that denotes the same number in the literal's dtype.

A float32 third is 0.33333334, not the double that TVM stores.
"""

from __future__ import annotations

import numpy as np

from ..nodes import Expr, const_value, dtype_of, is_float


def literal(node: Expr) -> str:
    """The shortest decimal that gives the same value in the literal's dtype.

    Examples
    --------
    >>> from tvm import tirx
    >>> literal(tirx.const(1 / 3, "float32")), literal(tirx.const(1 / 3, "bfloat16"))
    ('0.33333334', '0.3333')
    """
    value, dtype = const_value(node), dtype_of(node)
    if dtype == "bool":
        return "true" if value else "false"
    if not is_float(node) or value is None:
        return str(value)
    if dtype == "bfloat16":
        return _shortest_bfloat16(value)
    kind = {"float16": np.float16, "float32": np.float32}.get(dtype, np.float64)
    with np.errstate(over="ignore"):
        # the fewest digits in Python's notation, since numpy's notation changes between releases
        return repr(float(np.format_float_scientific(kind(value), unique=True)))


def _shortest_bfloat16(value: float) -> str:
    def rounded(number: float) -> int:
        bits = int(np.float32(number).view(np.uint32))
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16

    if not np.isfinite(value):
        return str(float(value))
    digits = (float(f"{value:.{count}g}") for count in range(1, 9))
    return str(next((number for number in digits if rounded(number) == rounded(value)), value))
