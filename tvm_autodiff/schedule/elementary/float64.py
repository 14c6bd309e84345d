"""exp, sigmoid, tanh, sinh and cosh of float64.

The method is that of `exponential` with wider parts: ``e**x = 2**k * e**r`` with k the integer
nearest to ``x*log2(e)``. ``e**r = 1 + (r + r**2 * p(r))`` keeps the leading terms out of the
polynomial, whose coefficients are rounded. The fitted values are computed in decimals, because the
difference ``e**r - 1 - r`` cancels. tanh and sinh need ``e**x - 1``, as in `hyperbolic`.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

from .code import Code, Value
from .polynomials import fit

ROUNDER = 1.5 * 2.0**52  #: adding it leaves no bits below the point
ROUNDER_BITS = 0x4338000000000000
DIGITS = 50

_LN2 = math.log(2.0)
LN2_HIGH = math.floor(_LN2 * 2**40) / 2**40  # 40 bits: times 1,076 it stays exact


def _rest(r: float) -> float:
    """``(e**r - 1 - r)/r**2``."""
    with localcontext() as context:
        context.prec = DIGITS
        exact = Decimal(r)
        return float((exact.exp() - 1 - exact) / (exact * exact)) if r else 0.5


def _low() -> float:
    """The remainder of ln 2 after its part that is exact in products."""
    with localcontext() as context:
        context.prec = DIGITS
        return float(Decimal(2).ln() - Decimal(LN2_HIGH))


LN2_LOW = _low()
_COEFFICIENTS = fit(_rest, -_LN2 / 2 * 1.002, _LN2 / 2 * 1.002, 9)


SIGN = -(1 << 63)  #: the bits of -0
_TANH_ONE = 20.0  #: tanh(19.07) rounds to 1
_SINH_HALF = 20.0  #: sinh(18.8) rounds to half of the exponential


def _reduced(c: Code, x: Value) -> tuple[Value, Value]:
    """``(q, k)`` with ``e**x = (1 + q) * 2**k``, k an int64."""
    shifted = c.fma(x, 1 / _LN2, ROUNDER)
    k = shifted - ROUNDER
    r = c.fma(k, -LN2_LOW, c.fma(k, -LN2_HIGH, x))
    q = c.fma(r * r, c.polynomial(r, _COEFFICIENTS), r)
    return q, c.bits(shifted) - ROUNDER_BITS


def exp(c: Code, x: Value) -> Value:
    """``e**x``, including subnormal results and infinity."""
    # beyond: half of the least subnormal number, and infinity
    q, k = _reduced(c, c.clamp(x, -1075.5 * _LN2, 1024.5 * _LN2))
    half = k >> 1  # in two factors, neither of which is subnormal
    return (q + 1.0) * _power_of_two(c, half) * _power_of_two(c, k - half)


def sigmoid(c: Code, x: Value) -> Value:
    """``1/(1 + e**-x)``: e**-|x| does not overflow, and keeps small results exact."""
    bits = c.bits(x)
    e = exp(c, c.from_bits(bits | SIGN))
    return c.where(bits >= 0, 1.0, e) / (e + 1.0)


def tanh(c: Code, x: Value) -> Value:
    """``-t/(t + 2)`` with ``t = e**(-2|x|) - 1``."""
    bits = c.bits(x)
    a = c.clamp(c.from_bits(bits & ~SIGN), 0.0, _TANH_ONE)
    q, k = _reduced(c, a * -2.0)
    s = _power_of_two(c, k)
    t = c.fma(s, q, s - 1.0)
    return c.from_bits((c.bits(t / (t + 2.0)) & ~SIGN) | (bits & SIGN))


def _half_exp(c: Code, a: Value) -> tuple[Value, Value, Value]:
    """``(e**a/2, q, k)`` for a >= 0, of which the first overflows where sinh and cosh do."""
    q, k = _reduced(c, c.clamp(a, 0.0, 1025.5 * _LN2))
    half = k >> 1
    return (q + 1.0) * _power_of_two(c, half) * _power_of_two(c, k - half - 1), q, k


def sinh(c: Code, x: Value) -> Value:
    """``(t + t/(t + 1))/2`` with ``t = e**|x| - 1``; where that rounds to it, ``e**|x|/2``."""
    bits = c.bits(x)
    a = c.from_bits(bits & ~SIGN)
    half, q, k = _half_exp(c, a)
    s = _power_of_two(c, k)
    t = c.fma(s, q, s - 1.0)
    result = c.where(a > _SINH_HALF, half, (t + t / (t + 1.0)) * 0.5)
    return c.from_bits((c.bits(result) & ~SIGN) | (bits & SIGN))


def cosh(c: Code, x: Value) -> Value:
    """``h + 1/(4h)`` with ``h = e**|x|/2``."""
    half, _, _ = _half_exp(c, c.from_bits(c.bits(x) & ~SIGN))
    return half + 0.25 / half


def _power_of_two(c: Code, k: Value) -> Value:
    """``2**k`` for -1023 < k < 1024."""
    return c.from_bits((k + 1023) << 52)
