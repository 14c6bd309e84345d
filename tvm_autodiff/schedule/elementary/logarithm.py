"""log, log2, log10 and log1p of float32.

``x = 2**e * (1 + f)`` with ``1 + f`` between sqrt(1/2) and sqrt(2), from the bits, and ``log_b(x) =
e*log_b(2) + f*p(f)`` with a polynomial. The first part is exact because log_b(2) is cut to few
bits; the remainder joins the second part. The leading coefficient of the polynomial is split in the
same way, so that near x = 1, where only ``f*p(f)`` counts, only one rounding is lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .code import FLOAT, INT, Code, Value
from .polynomials import fit

ROOT_HALF_BITS = 0x3F3504F3  #: sqrt(1/2)
LOW, HIGH = -0.2929, 0.4143  #: the interval of f
INFINITY_BITS = 0x7F800000


@dataclass(frozen=True)
class Base:
    """The base of a logarithm: log_b(2) and 1/ln(b) in two parts each, and the rest of
    ``log_b(1 + f) = f/ln(b) + f**2 * p(f)``.
    """

    two: tuple[float, float]
    slope: tuple[float, float]
    coefficients: tuple[float, ...]


def _split(value: float, bits: int) -> tuple[float, float]:
    """A value as one of few bits and a remainder."""
    unit = 2.0 ** (math.frexp(value)[1] - bits)
    high = round(value / unit) * unit
    return high, value - high


def _base(ln: float) -> Base:
    coefficients = fit(lambda f: (math.log1p(f) - f) / (f * f * ln), LOW, HIGH, 8)
    return Base(_split(math.log(2.0) / ln, 15), _split(1.0 / ln, 24), coefficients)


E = _base(1.0)
TWO = _base(math.log(2.0))
TEN = _base(math.log(10.0))


def exponent_and_rest(c: Code, x: Value) -> tuple[Value, Value]:
    """``(e, m)`` with ``x = 2**e * m`` and m near 1, e an int32; x must be positive and normal."""
    bits = c.bits(x) - ROOT_HALF_BITS
    return bits >> 23, c.from_bits((bits & 0x7FFFFF) + ROOT_HALF_BITS)


def normal_parts(c: Code, x: Value) -> tuple[Value, Value]:
    """`exponent_and_rest` of a positive x that may be subnormal."""
    tiny = x < 2.0**-126
    e, m = exponent_and_rest(c, c.where(tiny, x * 2.0**23, x))
    return e - c.where(tiny, c.constant(INT, 23), 0), m


def _combined(c: Code, e: Value, f: Value, base: Base) -> Value:
    """``e*log_b(2) + log_b(1 + f)``."""
    e = c.cast(FLOAT, e)
    rest = c.fma(c.polynomial(f, base.coefficients), f, base.slope[1])
    small = c.fma(rest, f, e * base.two[1])
    return c.fma(e, base.two[0], c.fma(f, base.slope[0], small))


def _with_limits(c: Code, x: Value, result: Value, pole: float) -> Value:
    """-inf at the pole, NaN below it, and x itself if it is infinite or NaN."""
    result = c.where((c.bits(x) & 0x7FFFFFFF) >= INFINITY_BITS, x, result)
    return c.where(x <= pole, c.where(x.equals(pole), -math.inf, math.nan), result)


def _logarithm(c: Code, x: Value, base: Base) -> Value:
    e, m = normal_parts(c, x)
    return _with_limits(c, x, _combined(c, e, m - 1.0, base), 0.0)


def log(c: Code, x: Value) -> Value:
    """The natural logarithm."""
    return _logarithm(c, x, E)


def log2(c: Code, x: Value) -> Value:
    """The logarithm to the base 2."""
    return _logarithm(c, x, TWO)


def log10(c: Code, x: Value) -> Value:
    """The logarithm to the base 10."""
    return _logarithm(c, x, TEN)


def log1p(c: Code, x: Value) -> Value:
    """``log(1 + x)``: the rounding error of 1 + x is added to f, on the scale of f."""
    u = x + 1.0
    lost = c.where(x < 2.0**25, x - (u - 1.0), 0.0)
    e, m = exponent_and_rest(c, u)
    # 2**-e; of e = 127 and 128 nothing is lost
    scale = c.from_bits(c.where(e < 127, 127 - e, 0) << 23)
    f = c.fma(lost, scale, m - 1.0)
    # what 1 + x does not see rounds to x, and -0 stays
    result = c.where(u.equals(1.0), x, _combined(c, e, f, E))
    return _with_limits(c, x, result, -1.0)
