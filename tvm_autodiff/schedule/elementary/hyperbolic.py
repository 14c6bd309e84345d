"""tanh, sinh and cosh of float32, and the inverses of these.

Near zero they need ``e**x - 1`` without cancellation. With ``e**x = (1 + q) * 2**k`` that is
``2**k*q + (2**k - 1)``, whose second part is exact. Odd functions are computed from ``|x|`` and get
the sign of x at the end, so that -0 gives -0. The inverses are logarithms of ``1 + t`` with t
computed without cancellation.
"""

from __future__ import annotations

import math

from .code import Code, Value
from .exponential import E, power_of_two, reduced, scaled
from .logarithm import log, log1p
from .polynomials import fit

_SINH = fit(lambda u: (math.sinh(math.sqrt(u)) / math.sqrt(u) - 1.0) / u, 0.0, 1.0, 3)


def magnitude_and_sign(c: Code, x: Value) -> tuple[Value, Value]:
    """``|x|`` and the sign bit of x, as the bits of -0 or +0."""
    bits = c.bits(x)
    return c.from_bits(bits & 0x7FFFFFFF), bits & -0x80000000


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
_LARGE = 2.0**14  #: from here on asinh(x) and acosh(x) round to log(2x)


def asinh(c: Code, x: Value) -> Value:
    """``log(1 + t)`` with ``t = |x| + x**2/(1 + sqrt(1 + x**2))``."""
    a, sign = magnitude_and_sign(c, x)
    # a comparison with NaN is false, so that NaN stays
    small = c.where(a > _LARGE, 1.0, a)
    square = small * small
    near = log1p(c, small + square / (c.sqrt(square + 1.0) + 1.0))
    return with_sign(c, c.where(a > _LARGE, log(c, a) + _LN2, near), sign)


def acosh(c: Code, x: Value) -> Value:
    """``log(1 + t + sqrt(2t + t**2))`` with ``t = x - 1``, which is exact near 1."""
    t = c.where(x > _LARGE, 1.0, x - 1.0)
    near = log1p(c, t + c.sqrt(t * t + t * 2.0))
    return c.where(x > _LARGE, log(c, x) + _LN2, c.where(x < 1.0, math.nan, near))


def atanh(c: Code, x: Value) -> Value:
    """``log(1 + 2|x|/(1 - |x|))/2``."""
    a, sign = magnitude_and_sign(c, x)
    return with_sign(c, log1p(c, a * 2.0 / (c.constant(a.kind, 1.0) - a)) * 0.5, sign)
