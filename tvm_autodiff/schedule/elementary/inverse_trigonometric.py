"""atan, atan2, asin and acos of float32 and float64.

An odd polynomial is used near zero. Other arguments are reduced by ``atan(a) = pi/4 + atan((a -
1)/(a + 1)) = pi/2 - atan(1/a)`` and ``asin(a) = pi/2 - 2*asin(sqrt((1 - a)/2))``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .code import DOUBLE, FLOAT, Code, Value
from .hyperbolic import magnitude_and_sign, with_sign
from .polynomials import fit
from .quarter_turns import HALF_PI_LOW

_TAN_PI_8 = math.tan(math.pi / 8)
_TERMS = 40


def _arc_tangent(u: float) -> float:
    """``(atan(sqrt(u))/sqrt(u) - 1)/u``, by its series."""
    return math.fsum((-1) ** n * u ** (n - 1) / (2 * n + 1) for n in range(1, _TERMS))


def _arc_sine(u: float) -> float:
    """``(asin(sqrt(u))/sqrt(u) - 1)/u``, by its series."""
    terms = ((math.comb(2 * n, n) / 4**n, u ** (n - 1) / (2 * n + 1)) for n in range(1, _TERMS))
    return math.fsum(factor * power for factor, power in terms)


@dataclass(frozen=True)
class _Width:
    """The polynomials of a kind of floats, what pi/2 is more than such a number, and where squares
    stay in range.
    """

    atan: tuple[float, ...]
    asin: tuple[float, ...]
    rest: float
    large: float
    scale: float


def _width(degrees: tuple[int, int], rest: float, large: float, scale: float) -> _Width:
    atan = fit(_arc_tangent, 0.0, _TAN_PI_8**2 * 1.001, degrees[0])
    return _Width(atan, fit(_arc_sine, 0.0, 0.2501, degrees[1]), rest, large, scale)


_WIDTHS = {
    FLOAT: _width((4, 4), math.pi / 2 - 1.57079637050628662109375, 1e19, 2.0**40),
    DOUBLE: _width((11, 13), HALF_PI_LOW, 1e150, 2.0**400),
}


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
    angle = _odd_polynomial(c, above / below, _WIDTHS[x.kind].atan)
    quarter = c.where(middle, math.pi / 4, c.constant(x.kind, 0.0))
    return with_sign(c, c.where(large, math.pi / 2, quarter) + angle, sign)


def atan2(c: Code, y: Value, x: Value) -> Value:
    """The angle of a point, by atan of the quotient of its coordinates; C's for zeros and
    infinities.
    """
    width = _WIDTHS[x.kind]
    (a, sign), (b, turned) = magnitude_and_sign(c, y), magnitude_and_sign(c, x)
    # sums do not overflow, and differences are no subnormal numbers
    most = c.where(a > b, a, b)
    one = c.constant(x.kind, 1.0)
    up = c.where(most < 1.0 / width.large, width.scale, one)
    scale = c.where(most > width.large, 1.0 / width.scale, up)
    a, b = a * scale, b * scale
    equal, large = a.equals(b), a > b * (1.0 / _TAN_PI_8)
    middle = a > b * _TAN_PI_8
    above = c.where(large, b * -1.0, c.where(middle, a - b, a))
    below = c.where(large, a, c.where(middle, a + b, b))
    # equal ones may be zeros, or infinities
    tangent = c.where(equal, 0.0, above) / c.where(equal, 1.0, below)
    angle = _odd_polynomial(c, tangent, width.atan)
    zero = c.constant(x.kind, 0.0)
    quarter = c.where(large, math.pi / 2, c.where(middle, math.pi / 4, zero))
    start = c.where(equal, c.where(a > 0.0, math.pi / 4, zero), quarter)
    near = start + angle
    far = math.pi - (near - 2.0 * width.rest)
    # -0 is left of the origin, too
    return with_sign(c, c.where(with_sign(c, one, turned) > 0.0, near, far), sign)


def _asin_parts(c: Code, a: Value) -> tuple[Value, Value]:
    """``(far, angle)``: asin of a where that is not far from 0, else of ``sqrt((1 - a)/2)``."""
    far = a > 0.5
    root = c.sqrt(c.fma(a, -0.5, 0.5))
    return far, _odd_polynomial(c, c.where(far, root, a), _WIDTHS[a.kind].asin)


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
    rest = _WIDTHS[x.kind].rest
    near = math.pi / 2 - (signed - rest)
    turned = angle * 2.0
    back = math.pi - (turned - 2.0 * rest)
    return c.where(far, c.where(x > 0.0, turned, back), near)
