"""hypot of float32 and float64: the larger number times a root that is between 1 and sqrt(2)."""

from __future__ import annotations

import math

from .code import Code, Value
from .hyperbolic import magnitude_and_sign


def hypot(c: Code, x: Value, y: Value) -> Value:
    """``|x|*sqrt(1 + (y/x)**2)`` for the larger x, the square of which might overflow; infinite if
    one of the numbers is.
    """
    (a, _), (b, _) = magnitude_and_sign(c, x), magnitude_and_sign(c, y)
    larger = a > b
    most, least = c.where(larger, a, b), c.where(larger, b, a)
    # equal ones may be zeros
    ratio = c.where(a.equals(b), 1.0, least) / c.where(a.equals(b), 1.0, most)
    value = most * c.sqrt(c.fma(ratio, ratio, 1.0))
    return c.where(a.equals(math.inf), a, c.where(b.equals(math.inf), b, value))
