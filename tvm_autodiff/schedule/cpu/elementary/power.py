"""x to the power y, of float32.

``x**y = 2**(y*log2|x|)``. The product is up to 128 and its absolute error becomes a relative one:
the logarithm is taken in float64, where the product with y neither overflows nor rounds visibly.
What a negative x, zeros, infinities and NaN give is what C's powf gives.
"""

from __future__ import annotations

import math

from .code import DOUBLE, FLOAT, INT, Code, Value
from .exponential import ROUNDER, ROUNDER_BITS, TWO, scaled
from .hyperbolic import magnitude_and_sign, with_sign
from .logarithm import HIGH, INFINITY_BITS, LOW, normal_parts
from .polynomials import fit

# 2**-38: with a product of 128, an error of 2**-31 of the result
_LOG2 = fit(lambda f: math.log1p(f) / (f * math.log(2.0)), LOW, HIGH, 13)


def _log2(c: Code, a: Value) -> Value:
    """log2 of a non-negative float32, in float64."""
    e, m = normal_parts(c, a)
    f = c.cast(DOUBLE, m) - 1.0
    finite = c.fma(f, c.polynomial(f, _LOG2), c.cast(DOUBLE, e))
    result = c.where(a.equals(0.0), -math.inf, finite)
    return c.where(c.bits(a) >= INFINITY_BITS, c.cast(DOUBLE, a), result)


def power(c: Code, x: Value, y: Value) -> Value:
    """``x**y``."""
    a, sign = magnitude_and_sign(c, x)
    log = _log2(c, a)
    t = c.clamp(c.cast(DOUBLE, y) * log, -151.0, 129.0)
    # the nearest integer of the rounded exponent is near enough: 2**r is good a little beyond 1/2
    shifted = c.cast(FLOAT, t) + ROUNDER
    k = c.bits(shifted) - ROUNDER_BITS
    r = c.cast(FLOAT, t - c.cast(DOUBLE, shifted - ROUNDER))
    p = c.fma(r, c.polynomial(r, TWO.coefficients), 1.0)
    # 0 times infinity: |x| = 1 with an infinite y, y = 0 with an infinite logarithm
    trivial = x.equals(1.0) | y.equals(0.0) | (a.equals(1.0) & y.equals(y))
    result = c.where(trivial, 1.0, scaled(c, p, k))
    # the sign of x counts where y is odd; a fraction of a negative number is none
    small = c.where(c.from_bits(c.bits(y) & 0x7FFFFFFF) < 2.0**24, y, 0.0)
    whole = c.cast(INT, small)
    odd = (whole & 1) << 31
    signed = with_sign(c, result, sign & odd)
    invalid = (x < 0.0) & (x > -math.inf) & c.cast(FLOAT, whole).differs(small)
    return c.where(invalid, math.nan, signed)
