"""sin, cos and tan of arguments that are few quarter turns, for float32 and float64.

``r = x - n*pi/2`` with pi/2 in five parts (Cody and Waite): the products of n and the first four
are exact, and so is each difference in which leading bits cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .code import DOUBLE, FLOAT, Code, Value
from .polynomials import fit
from .trigonometric import TWO_OVER_PI

_PARTS = 5
_EDGE = (math.pi / 4) ** 2 * 1.001
_HALF_PI = (1 << 510) // TWO_OVER_PI  #: pi/2 * 2**254
#: what pi/2 is more than its float64
HALF_PI_LOW = float(_HALF_PI - int(math.ldexp(math.pi / 2, 254))) * 2.0**-254


def _parts(bits: int) -> tuple[float, ...]:
    """pi/2 as a sum of numbers of so many bits, and what is left."""
    rest, result = _HALF_PI, list[float]()
    for _ in range(_PARTS - 1):
        unit = 1 << (rest.bit_length() - bits)
        piece = rest // unit * unit
        rest -= piece
        result.append(float(piece) * 2.0**-254)
    return (*result, float(rest) * 2.0**-254)


def _sine(u: float) -> float:
    """``(sin(sqrt(u))/sqrt(u) - 1)/u``, by its series."""
    return math.fsum((-1) ** n * u ** (n - 1) / math.factorial(2 * n + 1) for n in range(1, 12))


def _cosine(u: float) -> float:
    """``(cos(sqrt(u)) - 1 + u/2)/u**2``, by its series."""
    return math.fsum((-1) ** n * u ** (n - 2) / math.factorial(2 * n) for n in range(2, 13))


@dataclass(frozen=True)
class _Width:
    """The numbers of a kind of floats: the bits of an exact factor of n, the degree of polynomials,
    the sign bit, and what leaves no bits below the point when it is added.
    """

    bits: int
    degree: int
    sign: int
    rounder: float


_WIDTHS = {
    FLOAT: _Width(12, 2, -(1 << 31), 1.5 * 2.0**23),
    DOUBLE: _Width(31, 6, -(1 << 63), 1.5 * 2.0**52),
}
#: below which ``2*x/pi`` has so few bits that its products with the parts are exact
LIMITS = {FLOAT: 2.0**12, DOUBLE: 2.0**22}
_TURNS = {kind: _parts(width.bits) for kind, width in _WIDTHS.items()}
_POLYNOMIALS = {
    kind: (fit(_sine, 0.0, _EDGE, width.degree), fit(_cosine, 0.0, _EDGE, width.degree))
    for kind, width in _WIDTHS.items()
}


def _sin_cos(c: Code, x: Value) -> tuple[Value, Value, Value]:
    """The sine and the cosine of r, and n in the low bits of an integer."""
    rounder = _WIDTHS[x.kind].rounder
    shifted = c.fma(x, 2.0 / math.pi, rounder)
    n, r = shifted - rounder, x
    for part in _TURNS[x.kind]:
        r = c.fma(n, -part, r)
    sine, cosine = _POLYNOMIALS[x.kind]
    square = r * r
    sin = c.fma(r * square, c.polynomial(square, sine), r)
    half = c.fma(square, -0.5, 1.0)
    return sin, c.fma(square * square, c.polynomial(square, cosine), half), c.bits(shifted)


def _turned(c: Code, even: Value, odd: Value, n: Value, half: Value) -> Value:
    """What n quarter turns choose, negative in the second half of a turn."""
    bits = (~_WIDTHS[even.kind].sign).bit_length() - 1  # from 2 to the sign bit
    chosen = c.where((n & 1).equals(0), even, odd)
    return c.from_bits(c.bits(chosen) ^ ((half & 2) << bits))


def sin(c: Code, x: Value) -> Value:
    """The sine, computed from ``|x|`` so that -0 gives -0."""
    bits, sign = c.bits(x), _WIDTHS[x.kind].sign
    sine, cosine, n = _sin_cos(c, c.from_bits(bits & ~sign))
    return c.from_bits(c.bits(_turned(c, sine, cosine, n, n)) ^ (bits & sign))


def cos(c: Code, x: Value) -> Value:
    """The cosine."""
    sine, cosine, n = _sin_cos(c, x)
    return _turned(c, cosine, sine, n, n + 1)


def tan(c: Code, x: Value) -> Value:
    """The tangent; ``-cos(r)/sin(r)`` after an odd number of quarter turns."""
    bits, sign = c.bits(x), _WIDTHS[x.kind].sign
    sine, cosine, n = _sin_cos(c, c.from_bits(bits & ~sign))
    even = (n & 1).equals(0)
    value = c.where(even, sine, cosine * -1.0) / c.where(even, cosine, sine)
    return c.from_bits(c.bits(value) ^ (bits & sign))
