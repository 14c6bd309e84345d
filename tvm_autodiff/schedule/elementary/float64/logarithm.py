"""log, log2, log10 and log1p of float64.

``x = 2**e * (1 + f)`` with ``1 + f`` between sqrt(1/2) and sqrt(2), from the bits, and ``log(1 + f)
= 2*artanh(s)`` with ``s = f/(2 + f)``, whose series in s**2 is short. It is written as ``f -
(f**2/2 - s*(f**2/2 + z*p(z)))`` with ``z = s**2``, so that the leading term is exact.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

from ..code import DOUBLE, LONG, Code, Value
from ..polynomials import fit
from .exponential import DIGITS, LG2_HIGH, LG2_LOW, LN2_HIGH, LN2_LOW, SIGN

ROOT_HALF_BITS = 0x3FE6A09E667F3BCD  #: sqrt(1/2)
INFINITY_BITS = 0x7FF0000000000000
_MANTISSA = (1 << 52) - 1
LARGEST = (3.0 - 2.0 * math.sqrt(2.0)) ** 2  #: of z


def _series(z: float) -> float:
    """``(2*artanh(s)/s - 2)/s**2`` for ``z = s**2``."""
    return math.fsum(2.0 * z**n / (2 * n + 3) for n in range(24))


def _with_rest(ln: str) -> tuple[float, float]:
    """The inverse of a logarithm, and what its float64 lacks."""
    with localcontext() as context:
        context.prec = DIGITS
        exact = 1 / Decimal(ln).ln()
        return float(exact), float(exact - Decimal(float(exact)))


_TO_2, _TO_2_LOW = _with_rest("2")
_TO_10, _TO_10_LOW = _with_rest("10")
_COEFFICIENTS = fit(_series, 0.0, LARGEST * 1.002, 6)


def parts(c: Code, x: Value) -> tuple[Value, Value]:
    """``(e, f)`` with ``x = 2**e * (1 + f)`` for a positive x."""
    tiny = x < 2.0**-1022
    bits = c.bits(c.where(tiny, x * 2.0**52, x)) - ROOT_HALF_BITS
    f = c.from_bits((bits & _MANTISSA) + ROOT_HALF_BITS) - 1.0
    return c.cast(DOUBLE, (bits >> 52) - c.where(tiny, c.constant(LONG, 52), 0)), f


def _near(c: Code, f: Value, more: Value | float = 0.0) -> Value:
    """``log(1 + f)``, and what is small beside it."""
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    return f - (half - c.fma(s, c.fma(z, c.polynomial(z, _COEFFICIENTS), half), more))


def _with_limits(c: Code, x: Value, result: Value, pole: float = 0.0) -> Value:
    """-inf at the pole, NaN below it, and x itself if it is infinite or NaN."""
    result = c.where((c.bits(x) & ~SIGN) >= INFINITY_BITS, x, result)
    infinite = c.where(x.equals(pole), c.constant(DOUBLE, -math.inf), math.nan)
    return c.where(x <= pole, infinite, result)


def log(c: Code, x: Value) -> Value:
    """The natural logarithm; -inf for zero, NaN for negative arguments."""
    e, f = parts(c, x)
    return _with_limits(c, x, c.fma(e, LN2_HIGH, _near(c, f, e * LN2_LOW)))


def log2(c: Code, x: Value) -> Value:
    """The logarithm to the base 2, of whole powers exactly."""
    e, f = parts(c, x)
    near = _near(c, f)
    return _with_limits(c, x, c.fma(near, _TO_2, c.fma(near, _TO_2_LOW, e)))


def log10(c: Code, x: Value) -> Value:
    """The logarithm to the base 10."""
    e, f = parts(c, x)
    near = _near(c, f)
    small = c.fma(near, _TO_10_LOW, e * LG2_LOW)
    return _with_limits(c, x, c.fma(e, LG2_HIGH, c.fma(near, _TO_10, small)))


def log1p(c: Code, x: Value) -> Value:
    """``log(1 + x)``: the rounding error of 1 + x is added to f, on the scale of f."""
    u = x + 1.0
    lost = c.where(x < 2.0**54, x - (u - 1.0), 0.0)
    bits = c.bits(u) - ROOT_HALF_BITS
    whole = bits >> 52
    # 2**-e; of large e nothing is lost
    scale = c.from_bits((1023 - c.where(whole < 1000, whole, 0)) << 52)
    f = c.fma(lost, scale, c.from_bits((bits & _MANTISSA) + ROOT_HALF_BITS) - 1.0)
    e = c.cast(DOUBLE, whole)
    # what 1 + x does not see rounds to x, and -0 stays
    result = c.where(u.equals(1.0), x, c.fma(e, LN2_HIGH, _near(c, f, e * LN2_LOW)))
    return _with_limits(c, x, result, -1.0)
