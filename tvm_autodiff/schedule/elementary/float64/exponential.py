"""exp, exp2, exp10, sigmoid, tanh, sinh and cosh of float64.

The method is that of `exponential` with wider parts: ``e**x = 2**k * e**r`` with k the integer
nearest to ``x*log2(e)``. ``e**r = 1 + (r + r**2 * p(r))`` keeps the leading terms out of the
polynomial, whose coefficients are rounded. The fitted values are computed in decimals, because the
difference ``e**r - 1 - r`` cancels. tanh and sinh need ``e**x - 1``, as in `hyperbolic`.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

from ..code import Code, Value
from ..polynomials import fit

ROUNDER = 1.5 * 2.0**52  #: adding it leaves no bits below the point
ROUNDER_BITS = 0x4338000000000000
DIGITS = 50

_LN2, _LN10 = math.log(2.0), math.log(10.0)
LN2_HIGH = math.floor(_LN2 * 2**40) / 2**40  # 40 bits: times 1,076 it stays exact


def _rest(r: float) -> float:
    """``(e**r - 1 - r)/r**2``."""
    with localcontext() as context:
        context.prec = DIGITS
        exact = Decimal(r)
        return float((exact.exp() - 1 - exact) / (exact * exact)) if r else 0.5


def _low() -> tuple[float, float]:
    """The remainders of ln 2 and log10(2) after their parts that are exact in products."""
    with localcontext() as context:
        context.prec = DIGITS
        two = Decimal(2)
        return float(two.ln() - Decimal(LN2_HIGH)), float(two.log10() - Decimal(LG2_HIGH))


LG2_HIGH = math.floor(math.log10(2.0) * 2**40) / 2**40
LN2_LOW, LG2_LOW = _low()
_COEFFICIENTS = fit(_rest, -_LN2 / 2 * 1.002, _LN2 / 2 * 1.002, 9)


SIGN = -(1 << 63)  #: the bits of -0
_TANH_ONE = 20.0  #: tanh(19.07) rounds to 1
_SINH_HALF = 20.0  #: sinh(18.8) rounds to half of the exponential


def _reduced(c: Code, x: Value, rest: Value | None = None) -> tuple[Value, Value]:
    """``(q, k)`` with ``e**(x + rest) = (1 + q) * 2**k``, k an int64."""
    shifted = c.fma(x, 1 / _LN2, ROUNDER)
    k = shifted - ROUNDER
    near = c.fma(k, -LN2_HIGH, x)
    r = c.fma(k, -LN2_LOW, near if rest is None else near + rest)
    return _rest_of_one(c, r), c.bits(shifted) - ROUNDER_BITS


def _rest_of_one(c: Code, r: Value) -> Value:
    """``e**r - 1`` for ``|r| <= ln(2)/2``."""
    return c.fma(r * r, c.polynomial(r, _COEFFICIENTS), r)


def _scaled(c: Code, q: Value, k: Value) -> Value:
    """``(1 + q) * 2**k``, in two factors, neither of which is subnormal."""
    half = k >> 1
    return (q + 1.0) * _power_of_two(c, half) * _power_of_two(c, k - half)


#: powers of 2 beyond which are half of the least subnormal number, and infinity
_LEAST, _MOST = -1075.5, 1024.5


def exp(c: Code, x: Value) -> Value:
    """``e**x``, including subnormal results and infinity."""
    return _scaled(c, *_reduced(c, c.clamp(x, _LEAST * _LN2, _MOST * _LN2)))


def exp_of_sum(c: Code, x: Value, rest: Value) -> Value:
    """``e**(x + rest)`` for a rest that is small beside the last place of 1."""
    return _scaled(c, *_reduced(c, x, rest))


def exp2(c: Code, x: Value) -> Value:
    """``2**x``, whole powers exactly."""
    x = c.clamp(x, _LEAST, _MOST)
    shifted = x + ROUNDER
    r = (x - (shifted - ROUNDER)) * _LN2
    return _scaled(c, _rest_of_one(c, r), c.bits(shifted) - ROUNDER_BITS)


def exp10(c: Code, x: Value) -> Value:
    """``10**x``."""
    x = c.clamp(x, _LEAST * _LN2 / _LN10, _MOST * _LN2 / _LN10)
    shifted = c.fma(x, _LN10 / _LN2, ROUNDER)
    k = shifted - ROUNDER
    r = c.fma(k, -LG2_LOW, c.fma(k, -LG2_HIGH, x)) * _LN10
    return _scaled(c, _rest_of_one(c, r), c.bits(shifted) - ROUNDER_BITS)


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
