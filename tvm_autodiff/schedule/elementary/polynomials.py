"""Fits polynomials to functions on an interval.

Interpolation at the Chebyshev nodes is within a small factor of the best polynomial of that degree.
It is done in float64, where its error is far below the float32 rounding of the results. The leading
terms of a function are split off first, and the remainder is divided by its power of x, so that the
error is relative: ``sin(x) = x + x**3 * p(x**2)``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial


def fit(
    function: Callable[[float], float], low: float, high: float, degree: int
) -> tuple[float, ...]:
    """Coefficients of the interpolating polynomial.

    Parameters
    ----------
    function
        A function on the open interval. Zero should not be a node if the function is 0/0 there.
    low, high
        The interval.
    degree
        The degree of the polynomial.

    Examples
    --------
    >>> [round(c, 12) + 0.0 for c in fit(lambda x: 3.0 * x * x - 1.0, 0.0, 2.0, 2)]
    [-1.0, 0.0, 3.0]
    """
    nodes = np.vectorize(function, otypes=[float])
    series = Chebyshev.interpolate(nodes, degree, domain=[low, high])
    return tuple(float(c) for c in series.convert(kind=Polynomial).coef)
