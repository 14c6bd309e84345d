"""erf of float32.

``erf(x) = x + x*p(x**2)`` near zero. Elsewhere it is ``1 - e**-q(|x|)`` with a polynomial q for the
logarithm of the complement, whose error shrinks with the complement.
"""

from __future__ import annotations

import math

from .code import Code, Value
from .exponential import E, power_of_two, reduced
from .hyperbolic import magnitude_and_sign, with_sign
from .polynomials import fit

_EDGE = 0.95
_ONE_FROM = 4.0  # erf(3.92) rounds to 1
_NEAR = fit(lambda u: math.erf(math.sqrt(u)) / math.sqrt(u) - 1.0, 0.0, _EDGE**2, 5)
_FAR = fit(lambda a: math.log(math.erfc(a)) / a, _EDGE, _ONE_FROM, 8)


def erf(c: Code, x: Value) -> Value:
    """The error function."""
    a, sign = magnitude_and_sign(c, x)
    a = c.clamp(a, 0.0, _ONE_FROM)
    square = a * a
    near = c.fma(a, c.polynomial(square, _NEAR), a)
    q, k = reduced(c, a * c.polynomial(a, _FAR), E)
    s = power_of_two(c, k)
    far = 1.0 - c.fma(s, q, s)
    return with_sign(c, c.where(a < _EDGE, near, far), sign)
