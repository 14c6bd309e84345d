"""tanh, sinh and cosh of float32, and the inverses of these, also of float64.

Near zero they need ``e**x - 1`` without cancellation. With ``e**x = (1 + q) * 2**k`` that is
``2**k*q + (2**k - 1)``, whose second part is exact. Odd functions are computed from ``|x|`` and get
the sign of x at the end, so that -0 gives -0. The inverses are logarithms of ``1 + t`` with t
computed without cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from . import logarithm
from .code import DOUBLE, FLOAT, Code, Value
from .exponential import E, power_of_two, reduced, scaled
from .float64 import logarithm as logarithm_float64
from .polynomials import fit

_SINH = fit(lambda u: (math.sinh(math.sqrt(u)) / math.sqrt(u) - 1.0) / u, 0.0, 1.0, 3)


#: the bits of -0
_SIGNS = {FLOAT: -(1 << 31), DOUBLE: -(1 << 63)}


def magnitude_and_sign(c: Code, x: Value) -> tuple[Value, Value]:
    """``|x|`` and the sign bit of x, as the bits of -0 or +0."""
    bits, sign = c.bits(x), _SIGNS[x.kind]
    return c.from_bits(bits & ~sign), bits & sign


def with_sign(c: Code, x: Value, sign: Value) -> Value:
    """x with its sign bit flipped if `sign` is that of -0."""
    return c.from_bits(c.bits(x) ^ sign)


def tanh(c: Code, x: Value) -> Value:
    """``-t/(t + 2)`` with ``t = e**(-2|x|) - 1``."""
    a, sign = magnitude_and_sign(c, x)
    a = c.clamp(a, 0.0, 20.0)  # tanh(9.1) is 1 already
    q, k = reduced(c, a * -2.0, E)
    s = power_of_two(c, k)
    t = c.fma(s, q, s - 1.0)
    return c.from_bits((c.bits(t / (t + 2.0)) & 0x7FFFFFFF) | sign)


def _half_exp(c: Code, a: Value) -> Value:
    """``e**a / 2``, which overflows where sinh and cosh do."""
    a = c.clamp(a, 0.0, 90.0)
    q, k = reduced(c, a, E)
    return scaled(c, q + 1.0, k - 1)


def sinh(c: Code, x: Value) -> Value:
    """``h - 1/(4h)`` with ``h = e**|x|/2``; below 1 an odd polynomial."""
    a, sign = magnitude_and_sign(c, x)
    h = _half_exp(c, a)
    square = a * a
    small = c.fma(a * square, c.polynomial(square, _SINH), a)
    return with_sign(c, c.where(a < 1.0, small, h - 0.25 / h), sign)


def cosh(c: Code, x: Value) -> Value:
    """``h + 1/(4h)`` with ``h = e**|x|/2``."""
    a, _ = magnitude_and_sign(c, x)
    h = _half_exp(c, a)
    return h + 0.25 / h


_LN2 = math.log(2.0)


@dataclass(frozen=True)
class Logarithms:
    """The logarithms of a kind of floats, and from where asinh(x) and acosh(x) round to log(2x)."""

    log: Callable[[Code, Value], Value]
    log1p: Callable[[Code, Value], Value]
    large: float


_LOGARITHMS = {
    FLOAT: Logarithms(logarithm.log, logarithm.log1p, 2.0**14),
    DOUBLE: Logarithms(logarithm_float64.log, logarithm_float64.log1p, 2.0**28),
}


def asinh(c: Code, x: Value) -> Value:
    """``log(1 + t)`` with ``t = |x| + x**2/(1 + sqrt(1 + x**2))``."""
    of = _LOGARITHMS[x.kind]
    a, sign = magnitude_and_sign(c, x)
    # a comparison with NaN is false, so that NaN stays
    small = c.where(a > of.large, 1.0, a)
    square = small * small
    near = of.log1p(c, small + square / (c.sqrt(square + 1.0) + 1.0))
    return with_sign(c, c.where(a > of.large, of.log(c, a) + _LN2, near), sign)


def acosh(c: Code, x: Value) -> Value:
    """``log(1 + t + sqrt(2t + t**2))`` with ``t = x - 1``, which is exact near 1."""
    of = _LOGARITHMS[x.kind]
    t = c.where(x > of.large, 1.0, x - 1.0)
    near = of.log1p(c, t + c.sqrt(t * t + t * 2.0))
    return c.where(x > of.large, of.log(c, x) + _LN2, c.where(x < 1.0, math.nan, near))


def atanh(c: Code, x: Value) -> Value:
    """``log(1 + 2|x|/(1 - |x|))/2``."""
    a, sign = magnitude_and_sign(c, x)
    inside = _LOGARITHMS[x.kind].log1p(c, a * 2.0 / (c.constant(a.kind, 1.0) - a))
    return with_sign(c, inside * 0.5, sign)
