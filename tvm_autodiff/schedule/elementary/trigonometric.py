"""sin, cos and tan of float32 over the whole range.

x is reduced modulo pi/2 in float64: ``x*2/pi = n + r`` needs as many bits of 2/pi below the point
as x has above it, and no bits that only add multiples of 4. With ``x = m * s``, s one of four
powers of 2**27 and m below 2**50, an integer if s is not 1, x is multiplied by ``s*2/pi`` modulo 4,
divided by s, in three parts. The first two are so short that their products with 24 bits of x are
exact (Payne and Hanek, with constants instead of a table of bits). If x is near a multiple of pi/2,
the leading bits cancel exactly.
"""

from __future__ import annotations

import math

from .code import DOUBLE, FLOAT, Code, Value
from .hyperbolic import magnitude_and_sign, with_sign
from .polynomials import fit

#: 2/pi * 2**256, the bits before the point first
TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561
_STEP = 27  # a range of arguments is 2**27 times the one below
_RANGES = 4
_TOP = 50  # arguments of the lowest range are below 2**50
_SHORT = 27, 56  # bits below the point of the first part, and of the first two

_EDGE = (math.pi / 4) ** 2 * 1.001
_SIN = fit(lambda u: (math.sin(math.sqrt(u)) / math.sqrt(u) - 1.0) / u, 0.0, _EDGE, 2)
_COS = fit(lambda u: (math.cos(math.sqrt(u)) - 1.0 + u / 2.0) / (u * u), 0.0, _EDGE, 2)
_TAN = fit(lambda u: (math.tan(math.sqrt(u)) / math.sqrt(u) - 1.0) / u, 0.0, _EDGE, 6)
_FOURS = 1.5 * 2.0**54  # adding it leaves multiples of 4
_ONES = 1.5 * 2.0**52  # and multiples of 1


def parts(number: int) -> tuple[float, float, float]:
    """``s*2/pi`` modulo 4, divided by ``s = 2**(27*number)``, as floats of 29, 29 and 53 bits."""
    rest = (TWO_OVER_PI << (_STEP * number)) % (4 << 256)
    result = []
    for bits in (*_SHORT, None):
        unit = 1 << (256 - bits) if bits is not None else 1
        piece = rest // unit * unit
        rest -= piece
        # an integer of up to 258 bits is rounded once, and the rest is a power of two
        result.append(float(piece) * 2.0 ** (-256 - _STEP * number))
    return result[0], result[1], result[2]


def _chosen(c: Code, conditions: list[Value], values: list[float]) -> Value:
    result = c.constant(DOUBLE, values[0])
    for condition, value in zip(conditions, values[1:], strict=True):
        result = c.where(condition, value, result)
    return result


def reduced(c: Code, a: Value) -> tuple[Value, Value, Value]:
    """``(r, s, n)`` with ``a = n*pi/2 + r + s``, |r| <= pi/4 but for roundings, s what r lacks as a
    float32, n an int32 modulo 4.
    """
    beyond = [a >= 2.0 ** (_TOP + _STEP * number) for number in range(_RANGES - 1)]
    high, middle, low = (
        _chosen(c, beyond, list(values))
        for values in zip(*(parts(number) for number in range(_RANGES)), strict=True)
    )
    x = c.cast(DOUBLE, a)
    first, second = x * high, x * middle
    first = first - ((first + _FOURS) - _FOURS)
    second = second - ((second + _FOURS) - _FOURS)
    third = x * low
    n = (((first + second) + third) + _ONES) - _ONES
    fraction = ((first - n) + second) + third
    angle = fraction * (math.pi / 2.0)
    r = c.cast(FLOAT, angle)
    rest = c.cast(FLOAT, angle - c.cast(DOUBLE, r))
    # as a float32 with bits below the point to spare, n shows in the low bits
    count = c.bits(c.cast(FLOAT, n) + 1.5 * 2.0**23)
    return r, rest, count


def _sin_cos(c: Code, r: Value) -> tuple[Value, Value]:
    square = r * r
    sin = c.fma(r * square, c.polynomial(square, _SIN), r)
    half = c.fma(square, -0.5, 1.0)
    cos = c.fma(square * square, c.polynomial(square, _COS), half)
    return sin, cos


def _odd(c: Code, n: Value) -> Value:
    return (n & 1).equals(1)


def sin(c: Code, x: Value) -> Value:
    """The sine."""
    a, sign = magnitude_and_sign(c, x)
    r, _, n = reduced(c, a)
    sine, cosine = _sin_cos(c, r)
    value = c.where(_odd(c, n), cosine, sine)
    return with_sign(c, value, sign ^ ((n & 2) << 30))


def cos(c: Code, x: Value) -> Value:
    """The cosine."""
    a, _ = magnitude_and_sign(c, x)
    r, _, n = reduced(c, a)
    sine, cosine = _sin_cos(c, r)
    value = c.where(_odd(c, n), sine, cosine)
    return with_sign(c, value, ((n + 1) & 2) << 30)


def tan(c: Code, x: Value) -> Value:
    """The tangent; ``-1/tan(r)`` after an odd number of quarter turns."""
    a, sign = magnitude_and_sign(c, x)
    r, rest, n = reduced(c, a)
    square = r * r
    tangent = c.fma(r * square, c.polynomial(square, _TAN), r)
    # the derivative is up to 2, and a reciprocal follows: the rounding of r would show
    tangent = c.fma(c.fma(tangent, tangent, 1.0), rest, tangent)
    odd = _odd(c, n)
    value = c.where(odd, 1.0, tangent) / c.where(odd, tangent, 1.0)
    return with_sign(c, value, sign ^ ((n & 1) << 31))
