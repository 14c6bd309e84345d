"""x to the power y in float64.

``x**y = e**(y*log|x|)``. The product can reach 745, and its absolute error becomes a relative one,
so the logarithm and the product are sums of two float64 (Dekker): ``log(m) = 2s + 2/3*s*z +
s*z**2*p(z)`` with ``s = (m - 1)/(m + 1)`` and ``z = s**2``, of which the third term is so small
that its rounding does not show. Results for negative x, zeros, infinities and NaN are those of C's
pow.
"""

from __future__ import annotations

import math

from ..code import Code, Value
from ..hyperbolic import magnitude_and_sign, with_sign
from ..polynomials import fit
from .exponential import LN2_HIGH, LN2_LOW, exp_of_sum
from .logarithm import INFINITY_BITS, LARGEST, parts

_THIRD, _THIRD_LOW = 2.0 / 3.0, 2.0**-54 * (2.0 / 3.0)  #: 2/3, and what its float64 lacks


def _series(z: float) -> float:
    """``(2*artanh(s)/s - 2 - 2/3*z)/z**2`` for ``z = s**2``."""
    return math.fsum(2.0 * z**n / (2 * n + 5) for n in range(24))


_COEFFICIENTS = fit(_series, 0.0, LARGEST * 1.002, 6)


def _log(c: Code, a: Value) -> tuple[Value, Value]:
    """The logarithm of a positive number, and what its float64 lacks."""
    e, f = parts(c, a)
    below = f + 2.0
    lost = f - (below - 2.0)
    inverse = 1.0 / below
    s = f * inverse
    back, more = c.product(s, below)
    s_low = ((f - back) - (more + s * lost)) * inverse
    z, z_low = c.product(s, s)
    z_low = c.fma(s + s, s_low, z_low)
    t, t_low = c.product(s, z)
    t_low = t_low + c.fma(s, z_low, s_low * z)
    u, u_low = c.product(t, _THIRD)
    u_low = u_low + c.fma(t_low, _THIRD, t * _THIRD_LOW)
    rest = c.fma(t * z, c.polynomial(z, _COEFFICIENTS), u_low + (s_low + s_low))
    twice = s + s
    near = twice + u
    rest = rest + ((twice - near) + u)
    whole = e * LN2_HIGH
    high = whole + near
    low = ((whole - high) + near) + c.fma(e, LN2_LOW, rest)
    total = high + low
    return total, (high - total) + low


def power(c: Code, x: Value, y: Value) -> Value:
    """``x**y``."""
    a, sign = magnitude_and_sign(c, x)
    log, log_low = _log(c, a)
    endless = c.bits(a) >= INFINITY_BITS
    log = c.where(a.equals(0.0), -math.inf, c.where(endless, a, log))
    high = y * log
    # beyond, the result is zero, infinite, or NaN
    inside = magnitude_and_sign(c, high)[0] < 800.0
    _, low = c.product(c.where(inside, y, 0.0), c.where(inside, log, 0.0))
    low = c.where(inside, c.fma(y, log_low, low), 0.0)
    result = exp_of_sum(c, c.clamp(high, -746.0, 710.5), low)
    # 0 times infinity: |x| = 1 with an infinite y, y = 0 with an infinite logarithm
    trivial = x.equals(1.0) | y.equals(0.0) | (a.equals(1.0) & y.equals(y))
    result = c.where(trivial, 1.0, result)
    # the sign of x counts if y is odd; a fractional power of a negative number is undefined
    half = y * 0.5
    fraction = c.floor(y).differs(y)
    even = c.floor(half).equals(half)
    one = c.bits(c.where(fraction | even, c.constant(y.kind, 0.0), -0.0))
    invalid = (x < 0.0) & (x > -math.inf) & fraction
    return c.where(invalid, math.nan, with_sign(c, result, sign & one))
