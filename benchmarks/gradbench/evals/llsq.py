"""llsq: half the sum of squares of what a polynomial leaves of a sign function, and its gradient.

The points are ``t[i] = -1 + 2·i/(n-1)``, the values ``sign(t[i])``. Powers of a point are products
of its powers by 1, 2, 4, ...: ``t^j = Π t^(2^b)`` over the bits b of j.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm import te

import tvm_autodiff as ad

from ..evaluation import Eval, Function, Problem
from ..fields import InputError, array, integer


class Sizes(NamedTuple):
    """Points, and coefficients of the polynomial."""

    n: int
    m: int


def read(data: Any) -> Problem:
    """The coefficients x, and the number of points."""
    x = array(data, "x", (None,))
    if not len(x):
        raise InputError("'x' is empty: a polynomial has at least one coefficient")
    return Problem(Sizes(integer(data, "n", 2), len(x)), [x])


def objective(sizes: Sizes, x: Any) -> Any:
    """``½ Σ_i (s[i] - Σ_j x[j]·t[i]^j)²``."""
    n, m = sizes
    j, i = te.reduce_axis((0, m), "j"), te.reduce_axis((0, n), "i")
    point = te.compute((n,), lambda i: i.astype("float64") * 2.0 / (n - 1.0) - 1.0, name="point")
    squares = [point]
    while 1 << len(squares) < m:
        squares.append(_square(squares[-1], f"power{1 << len(squares)}"))

    def power(i: Any, j: Any) -> Any:
        result = te.const(1.0, "float64")
        for bit, square in enumerate(squares):
            result = result * te.if_then_else(j // (1 << bit) % 2 == 1, square[i], 1.0)
        return result

    powers = te.compute((n, m), power, name="powers")
    polynomial = te.compute((n,), lambda i: te.sum(x[j] * powers[i, j], axis=j), name="polynomial")
    sign = lambda t: te.if_then_else(t > 0.0, 1.0, te.if_then_else(t < 0.0, -1.0, 0.0))  # noqa: E731
    rest = te.compute((n,), lambda i: sign(point[i]) - polynomial[i], name="rest")
    return te.compute((), lambda: te.sum(0.5 * rest[i] * rest[i], axis=i), name="objective")


def _square(tensor: Any, name: str) -> Any:
    return te.compute(tensor.shape, lambda i: tensor[i] * tensor[i], name=name)


def primal(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The value."""
    x = te.placeholder((sizes.m,), "float64", name="x")
    return [x], [objective(sizes, x)]


def gradient(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The gradient with respect to the coefficients."""
    x = te.placeholder((sizes.m,), "float64", name="x")
    return [x], list(ad.differentiate(objective(sizes, x), [x]))


EVAL = Eval(
    read,
    {
        "primal": Function(primal, lambda sizes, results: float(results[0])),
        "gradient": Function(gradient, lambda sizes, results: results[0].tolist()),
    },
)
