"""exp of float64.

As in `exponential`, with wider parts: ``e**x = 2**k * e**r`` with k the integer nearest to
``x*log2(e)``. ``e**r = 1 + (r + r**2 * p(r))`` keeps the leading terms out of the polynomial, whose
coefficients are rounded; what it is fitted to is computed in decimals, since the difference
``e**r - 1 - r`` cancels.
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
_HIGH = math.floor(_LN2 * 2**40) / 2**40  # 40 bits: times 1,076 it stays exact


def _rest(r: float) -> float:
    """``(e**r - 1 - r)/r**2``."""
    with localcontext() as context:
        context.prec = DIGITS
        exact = Decimal(r)
        return float((exact.exp() - 1 - exact) / (exact * exact)) if r else 0.5


def _low() -> float:
    """What the part of ln 2 that is exact in products leaves."""
    with localcontext() as context:
        context.prec = DIGITS
        return float(Decimal(2).ln() - Decimal(_HIGH))


_LOW = _low()
_COEFFICIENTS = fit(_rest, -_LN2 / 2 * 1.002, _LN2 / 2 * 1.002, 9)


def exp(c: Code, x: Value) -> Value:
    """``e**x``, through to subnormal numbers and infinity."""
    # beyond: half of the least subnormal number, and infinity
    x = c.clamp(x, -1075.5 * _LN2, 1024.5 * _LN2)
    shifted = c.fma(x, 1 / _LN2, ROUNDER)
    k = shifted - ROUNDER
    r = c.fma(k, -_LOW, c.fma(k, -_HIGH, x))
    value = c.fma(r * r, c.polynomial(r, _COEFFICIENTS), r) + 1.0
    power = c.bits(shifted) - ROUNDER_BITS
    half = power >> 1  # in two factors, neither of which is subnormal
    return value * _power_of_two(c, half) * _power_of_two(c, power - half)


def _power_of_two(c: Code, k: Value) -> Value:
    """``2**k`` for -1023 < k < 1024."""
    return c.from_bits((k + 1023) << 52)
