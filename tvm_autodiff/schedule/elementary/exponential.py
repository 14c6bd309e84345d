"""exp, exp2, exp10 and sigmoid of float32.

``b**x = 2**k * b**r`` with k the integer nearest to ``x*log2(b)``, so that ``|r| <= log_b(2)/2``.
``k*log_b(2)`` is subtracted in two parts, the first of which has so few bits that its product is
exact (Cody and Waite). ``b**r - 1 = r*p(r)`` with a polynomial. Rounding to an integer adds and
subtracts 1.5*2**23; the low bits of the sum are k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .code import Code, Value
from .polynomials import fit

ROUNDER = 1.5 * 2.0**23  #: adding it leaves no bits below the point
ROUNDER_BITS = 0x4B400000


@dataclass(frozen=True)
class Base:
    """The base of a power: its logarithm, log_b(2) in two parts, and ``(b**r - 1)/r``."""

    log2: float
    high: float
    low: float
    coefficients: tuple[float, ...]


def _base(ln: float, degree: int) -> Base:
    step = math.log(2.0) / ln
    high = math.floor(step * 2**14) / 2**14  # 14 bits: times 150 it stays exact
    half = step / 2 * 1.002
    coefficients = fit(lambda r: math.expm1(r * ln) / r if r else ln, -half, half, degree)
    return Base(ln / math.log(2.0), high, step - high, coefficients)


E = _base(1.0, 5)
TWO = _base(math.log(2.0), 5)
TEN = _base(math.log(10.0), 5)


def reduced(c: Code, x: Value, base: Base) -> tuple[Value, Value]:
    """``(q, k)`` with ``base**x = (1 + q) * 2**k``, k an int32."""
    shifted = c.fma(x, base.log2, ROUNDER)
    k = shifted - ROUNDER
    r = c.fma(k, -base.high, x)
    if base.low:
        r = c.fma(k, -base.low, r)
    q = r * c.polynomial(r, base.coefficients)
    return q, c.bits(shifted) - ROUNDER_BITS


def power_of_two(c: Code, k: Value) -> Value:
    """``2**k`` for -127 < k < 128; k = -127 gives zero and 128 infinity."""
    return c.from_bits((k + 127) << 23)


def scaled(c: Code, x: Value, k: Value) -> Value:
    """``x * 2**k`` for -252 < k < 254, rounded once, including subnormal results and infinity."""
    half = k >> 1
    return x * power_of_two(c, half) * power_of_two(c, k - half)


def _power(c: Code, x: Value, base: Base) -> Value:
    # beyond: half of the least subnormal number, and infinity
    x = c.clamp(x, -150.5 / base.log2, 128.5 / base.log2)
    q, k = reduced(c, x, base)
    return scaled(c, q + 1.0, k)


def exp(c: Code, x: Value) -> Value:
    """``e**x``."""
    return _power(c, x, E)


def exp2(c: Code, x: Value) -> Value:
    """``2**x``."""
    return _power(c, x, TWO)


def exp10(c: Code, x: Value) -> Value:
    """``10**x``."""
    return _power(c, x, TEN)


def sigmoid(c: Code, x: Value) -> Value:
    """``1/(1 + e**-x)``: e**-|x| does not overflow, and keeps small results exact."""
    bits = c.bits(x)
    magnitude = c.from_bits(bits | -0x80000000)
    e = exp(c, magnitude)
    return c.where(bits >= 0, 1.0, e) / (e + 1.0)
