"""log of float64.

``x = 2**e * (1 + f)`` with ``1 + f`` between sqrt(1/2) and sqrt(2), from the bits, and ``log(1 + f)
= 2*artanh(s)`` with ``s = f/(2 + f)``, whose series in s**2 is short. It is written as ``f -
(f**2/2 - s*(f**2/2 + z*p(z)))`` with ``z = s**2``, so that the leading term is exact.
"""

from __future__ import annotations

import math

from .code import DOUBLE, LONG, Code, Value
from .float64 import LN2_HIGH, LN2_LOW
from .polynomials import fit

ROOT_HALF_BITS = 0x3FE6A09E667F3BCD  #: sqrt(1/2)
INFINITY_BITS = 0x7FF0000000000000
_MANTISSA = (1 << 52) - 1
_LARGEST = (3.0 - 2.0 * math.sqrt(2.0)) ** 2  #: of z


def _series(z: float) -> float:
    """``(2*artanh(s)/s - 2)/s**2`` for ``z = s**2``."""
    return math.fsum(2.0 * z**n / (2 * n + 3) for n in range(24))


_COEFFICIENTS = fit(_series, 0.0, _LARGEST * 1.002, 6)


def log(c: Code, x: Value) -> Value:
    """The natural logarithm; -inf for zero, NaN for negative arguments."""
    tiny = x < 2.0**-1022
    bits = c.bits(c.where(tiny, x * 2.0**52, x)) - ROOT_HALF_BITS
    f = c.from_bits((bits & _MANTISSA) + ROOT_HALF_BITS) - 1.0
    e = c.cast(DOUBLE, (bits >> 52) - c.where(tiny, c.constant(LONG, 52), 0))
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    small = c.fma(s, c.fma(z, c.polynomial(z, _COEFFICIENTS), half), e * LN2_LOW)
    result = c.fma(e, LN2_HIGH, f - (half - small))
    result = c.where((c.bits(x) & ~(-1 << 63)) >= INFINITY_BITS, x, result)
    return c.where(
        x <= 0.0, c.where(x.equals(0.0), c.constant(DOUBLE, -math.inf), math.nan), result
    )
