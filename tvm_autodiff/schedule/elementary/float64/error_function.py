"""erf of float64.

``erf(x) = x + x*p(x**2)`` near zero. Elsewhere it is ``1 - e**(-x**2) * g`` with ``g = e**(x**2) *
erfc(x)``, a polynomial in ``(x - c)/(x + 3)``, of which g is a flat function.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ..code import Code, Value
from ..polynomials import fit
from .exponential import SIGN, exp

_EDGE = 1.0
_ONE_FROM = 6.0  # erf(5.92) rounds to 1
_POLE = 3.0
#: the middle of the arguments, as the quotient sees them
_CENTRE = (2.0 * _EDGE * _ONE_FROM + _POLE * (_EDGE + _ONE_FROM)) / (
    _EDGE + _ONE_FROM + 2.0 * _POLE
)


def _near(u: float) -> float:
    """``erf(sqrt(u))/sqrt(u) - 1``, by its series."""
    scale = 2.0 / math.sqrt(math.pi)
    terms = ((-u) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(1, 30))
    return math.fsum([scale - 1.0, *(scale * term for term in terms)])


def _far(t: float) -> float:
    """g, with the rounding of the square made good."""
    a = (_CENTRE + _POLE * t) / (1.0 - t)
    square = a * a
    lost = float(Fraction(a) ** 2 - Fraction(square))
    return math.exp(square) * (1.0 + lost) * math.erfc(a)


def _quotient(a: float) -> float:
    return (a - _CENTRE) / (a + _POLE)


_NEAR = fit(_near, 0.0, 1.002 * _EDGE**2, 12)
_FAR = fit(_far, _quotient(0.999 * _EDGE), _quotient(_ONE_FROM), 12)


def erf(c: Code, x: Value) -> Value:
    """The error function."""
    bits = c.bits(x)
    a = c.clamp(c.from_bits(bits & ~SIGN), 0.0, _ONE_FROM)
    square = a * a
    near = c.fma(a, c.polynomial(square, _NEAR), a)
    g = c.polynomial((a - _CENTRE) / (a + _POLE), _FAR)
    far = 1.0 - exp(c, square * -1.0) * g
    return c.from_bits(c.bits(c.where(a < _EDGE, near, far)) | (bits & SIGN))
