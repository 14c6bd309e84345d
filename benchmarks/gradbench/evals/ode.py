"""ode: a chain of equations solved by Runge and Kutta's method, and the gradient of its last one.

``y[0]' = x[0]``, ``y[i]' = x[i]·y[i-1]``, from zeros at time 0 to time 2. The four slopes of a step
are stages of a scan over the steps, whose reverse mode keeps the states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm import te

import tvm_autodiff as ad

from ..evaluation import Eval, Function, Problem
from ..fields import InputError, array, integer

END = 2.0  #: time after all steps


class Sizes(NamedTuple):
    """Equations, steps."""

    n: int
    s: int


def read(data: Any) -> Problem:
    """The coefficients x, which must not be empty, and how many steps are taken."""
    x = array(data, "x", (None,))
    if not len(x):
        raise InputError("'x' is empty: there is no last equation to differentiate")
    return Problem(Sizes(len(x), integer(data, "s", 1)), [x])


def slope(x: Any, y: Any, name: str) -> Any:
    """The right side of the equations."""
    one = te.const(1.0, "float64")
    return te.compute(x.shape, lambda i: x[i] * te.if_then_else(i > 0, y[i - 1], one), name=name)


def solution(sizes: Sizes, x: Any) -> Any:
    """The state after all steps."""
    h = END / sizes.s
    start = te.compute(x.shape, lambda i: te.const(0.0, "float64"), name="start")

    def moved(y: Any, by: float, k: Any, name: str) -> Any:
        return te.compute(y.shape, lambda i: y[i] + by * k[i], name=name)

    def step(y: Any, _: None) -> tuple[Any, None]:
        k1 = slope(x, y, "k1")
        k2 = slope(x, moved(y, h / 2, k1, "y2"), "k2")
        k3 = slope(x, moved(y, h / 2, k2, "y3"), "k3")
        k4 = slope(x, moved(y, h, k3, "y4"), "k4")
        new = te.compute(
            y.shape,
            lambda i: y[i] + h / 6 * (k1[i] + 2.0 * (k2[i] + k3[i]) + k4[i]),
            name="y",
        )
        return new, None

    return ad.scan(step, start, length=sizes.s)[0]


def primal(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The state after all steps."""
    x = te.placeholder((sizes.n,), "float64", name="x")
    return [x], [solution(sizes, x)]


def gradient(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The gradient of the last equation's value by all coefficients."""
    x = te.placeholder((sizes.n,), "float64", name="x")
    y = solution(sizes, x)
    last = te.compute((), lambda: y[sizes.n - 1], name="last")
    return [x], list(ad.differentiate(last, [x]))


def _write(sizes: Sizes, results: Any) -> list[float]:
    return results[0].tolist()


EVAL = Eval(read, {"primal": Function(primal, _write), "gradient": Function(gradient, _write)})
