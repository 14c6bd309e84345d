"""lse: the logarithm of a sum of exponentials, and its gradient."""

from __future__ import annotations

from typing import Any

from tvm import te

import tvm_autodiff as ad

from ..evaluation import Eval, Function, Problem
from ..fields import InputError, array


def read(data: Any) -> Problem:
    """The vector x, which must not be empty."""
    x = array(data, "x", (None,))
    if not len(x):
        raise InputError("'x' is empty: the logarithm of an empty sum is not finite")
    return Problem(len(x), [x])


def log_sum_exp(x: Any) -> Any:
    """``a + log Σ exp(x[i] - a)`` with the maximum a of x."""
    i, j = te.reduce_axis((0, x.shape[0]), "i"), te.reduce_axis((0, x.shape[0]), "j")
    largest = te.compute((), lambda: te.max(x[i], axis=i), name="largest")
    total = te.compute((), lambda: te.sum(te.exp(x[j] - largest()), axis=j), name="total")
    return te.compute((), lambda: largest() + te.log(total()), name="log_sum_exp")


def primal(size: int) -> tuple[list[Any], list[Any]]:
    """The value."""
    x = te.placeholder((size,), "float64", name="x")
    return [x], [log_sum_exp(x)]


def gradient(size: int) -> tuple[list[Any], list[Any]]:
    """The gradient with respect to x."""
    x = te.placeholder((size,), "float64", name="x")
    return [x], list(ad.differentiate(log_sum_exp(x), [x]))


EVAL = Eval(
    read,
    {
        "primal": Function(primal, lambda size, results: float(results[0])),
        "gradient": Function(gradient, lambda size, results: results[0].tolist()),
    },
)
