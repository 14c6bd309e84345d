"""x to the power y in float32; some literal y need only products and roots, also in float64.

``x**y = 2**(y*log2|x|)``. The product can reach 128, and its absolute error becomes a relative one,
so the logarithm is taken in float64, where the product with y neither overflows nor rounds visibly.
Results for negative x, zeros, infinities and NaN are those of C's powf.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .code import DOUBLE, FLOAT, INT, Code, Value
from .exponential import ROUNDER, ROUNDER_BITS, TWO, scaled
from .hyperbolic import magnitude_and_sign, with_sign
from .logarithm import HIGH, INFINITY_BITS, LOW, normal_parts
from .polynomials import fit

# good to 2**-33: with a product of 128, an error of a quarter of a unit
_LOG2 = fit(lambda f: math.log1p(f) / (f * math.log(2.0)), LOW, HIGH, 11)


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
    # the sign of x counts if y is odd; a fractional power of a negative number is undefined
    small = c.where(c.from_bits(c.bits(y) & 0x7FFFFFFF) < 2.0**24, y, 0.0)
    whole = c.cast(INT, small)
    fraction = c.cast(FLOAT, whole).differs(small)
    odd = c.where(fraction, 0, (whole & 1) << 31)
    signed = with_sign(c, result, sign & odd)
    invalid = (x < 0.0) & (x > -math.inf) & fraction
    return c.where(invalid, math.nan, signed)


def _square(c: Code, x: Value) -> Value:
    return x * x


def _inverse_square(c: Code, x: Value) -> Value:
    inverse = 1.0 / x  # the square of x may overflow where the result does not vanish
    return inverse * inverse


def _root(c: Code, x: Value) -> Value:
    # C's powf gives +0 for -0, and infinity for its negative
    return c.where(x.equals(-math.inf), math.inf, c.sqrt(x) + 0.0)


def _whole(c: Code, x: Value, exponent: int) -> Value:
    """A product of few equal numbers, by squares."""
    if exponent == 1:
        return x
    half = _whole(c, x, exponent // 2)
    return half * half * x if exponent % 2 else half * half


def _magnitude(c: Code, x: Value) -> Value:
    """``|x|``, with +0 for -0."""
    return c.where(x < 0.0, 0.0 - x, x) + 0.0


def _with_root(c: Code, x: Value, whole: int) -> Value:
    return _whole(c, _magnitude(c, x), whole) * _root(c, x)


def _with_inverse_root(c: Code, x: Value, whole: int) -> Value:
    # no factor leaves the range where the result does not
    inverse = 1.0 / _magnitude(c, x)
    return (1.0 / _root(c, x)) * _whole(c, inverse, whole)


#: exponent → (a name, the arithmetic), of float32 and float64
LITERAL_POWERS: dict[float, tuple[str, Callable[[Code, Value], Value]]] = {
    2.0: ("square", _square),
    3.0: ("cube", lambda c, x: x * x * x),
    4.0: ("fourth_power", lambda c, x: _square(c, x * x)),
    5.0: ("fifth_power", lambda c, x: _whole(c, x, 5)),
    6.0: ("sixth_power", lambda c, x: _whole(c, x, 6)),
    7.0: ("seventh_power", lambda c, x: _whole(c, x, 7)),
    -1.0: ("inverse", lambda c, x: 1.0 / x),
    -2.0: ("inverse_square", _inverse_square),
    -3.0: ("inverse_cube", lambda c, x: _whole(c, 1.0 / x, 3)),
    0.5: ("power_half", _root),
    1.5: ("power_three_halves", lambda c, x: _with_root(c, x, 1)),
    2.5: ("power_five_halves", lambda c, x: _with_root(c, x, 2)),
    3.5: ("power_seven_halves", lambda c, x: _with_root(c, x, 3)),
    -0.5: ("power_minus_half", lambda c, x: 1.0 / _root(c, x)),
    -1.5: ("power_minus_three_halves", lambda c, x: _with_inverse_root(c, x, 1)),
    -2.5: ("power_minus_five_halves", lambda c, x: _with_inverse_root(c, x, 2)),
}
