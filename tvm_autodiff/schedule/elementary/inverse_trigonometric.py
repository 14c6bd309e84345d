"""atan, atan2, asin and acos of float32.

An odd polynomial is used near zero. Other arguments are reduced by ``atan(a) = pi/4 + atan((a -
1)/(a + 1)) = pi/2 - atan(1/a)`` and ``asin(a) = pi/2 - 2*asin(sqrt((1 - a)/2))``.
"""

from __future__ import annotations

import math

from .code import Code, Value
from .hyperbolic import magnitude_and_sign, with_sign
from .polynomials import fit

_TAN_PI_8 = math.tan(math.pi / 8)
_ATAN = fit(
    lambda u: (math.atan(math.sqrt(u)) / math.sqrt(u) - 1.0) / u, 0.0, _TAN_PI_8**2 * 1.001, 4
)
#: what pi/2 is more than its float32
_REST = math.pi / 2 - 1.57079637050628662109375
_ASIN = fit(lambda u: (math.asin(math.sqrt(u)) / math.sqrt(u) - 1.0) / u, 0.0, 0.2501, 4)


def _odd_polynomial(c: Code, x: Value, coefficients: tuple[float, ...]) -> Value:
    """``x + x**3 * p(x**2)``."""
    square = x * x
    return c.fma(x * square, c.polynomial(square, coefficients), x)


def atan(c: Code, x: Value) -> Value:
    """The arc tangent."""
    a, sign = magnitude_and_sign(c, x)
    middle, large = a > _TAN_PI_8, a > 1.0 / _TAN_PI_8
    above = c.where(large, -1.0, c.where(middle, a - 1.0, a))
    below = c.where(large, a, c.where(middle, a + 1.0, 1.0))
    angle = _odd_polynomial(c, above / below, _ATAN)
    start = c.where(large, math.pi / 2, c.where(middle, math.pi / 4, 0.0))
    return with_sign(c, start + angle, sign)


def atan2(c: Code, y: Value, x: Value) -> Value:
    """The angle of a point, by atan of the quotient of its coordinates; C's for zeros and
    infinities.
    """
    (a, sign), (b, turned) = magnitude_and_sign(c, y), magnitude_and_sign(c, x)
    # sums do not overflow, and differences are no subnormal numbers
    most = c.where(a > b, a, b)
    scale = c.where(most > 1e19, 2.0**-40, c.where(most < 1e-19, 2.0**40, 1.0))
    a, b = a * scale, b * scale
    equal, large = a.equals(b), a > b * (1.0 / _TAN_PI_8)
    middle = a > b * _TAN_PI_8
    above = c.where(large, b * -1.0, c.where(middle, a - b, a))
    below = c.where(large, a, c.where(middle, a + b, b))
    # equal ones may be zeros, or infinities
    angle = _odd_polynomial(c, c.where(equal, 0.0, above) / c.where(equal, 1.0, below), _ATAN)
    quarter = c.where(large, math.pi / 2, c.where(middle, math.pi / 4, 0.0))
    start = c.where(equal, c.where(a > 0.0, math.pi / 4, 0.0), quarter)
    near = start + angle
    far = math.pi - (near - 2.0 * _REST)
    # -0 is left of the origin, too
    return with_sign(c, c.where(c.from_bits(turned | 0x3F800000) > 0.0, near, far), sign)


def _asin_parts(c: Code, a: Value) -> tuple[Value, Value]:
    """``(far, angle)``: asin of a where that is not far from 0, else of ``sqrt((1 - a)/2)``."""
    far = a > 0.5
    root = c.sqrt(c.fma(a, -0.5, 0.5))
    return far, _odd_polynomial(c, c.where(far, root, a), _ASIN)


def asin(c: Code, x: Value) -> Value:
    """The arc sine; NaN beyond [-1, 1]."""
    a, sign = magnitude_and_sign(c, x)
    far, angle = _asin_parts(c, a)
    value = c.where(far, c.fma(angle, -2.0, math.pi / 2), angle)
    return with_sign(c, value, sign)


def acos(c: Code, x: Value) -> Value:
    """The arc cosine; NaN beyond [-1, 1]."""
    a, sign = magnitude_and_sign(c, x)
    far, angle = _asin_parts(c, a)
    signed = with_sign(c, angle, sign)
    # pi/2 and pi are rounded up and down: what they lack is added first
    near = math.pi / 2 - (signed - _REST)
    turned = angle * 2.0
    back = math.pi - (turned - 2.0 * _REST)
    return c.where(far, c.where(x > 0.0, turned, back), near)
