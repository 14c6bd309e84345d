"""No NaN and no infinity leaks from a branch that is not taken.

Values and gradients at the very points where the branch not taken, or its derivative, is not
finite. Central differences do not exist there, so the expected gradients are written down.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.gradient_case import derivatives, evaluate


def f(value):
    return tirx.const(value, "float64")


def guarded(condition, value, otherwise=lambda x: f(0)):
    return lambda x: te.if_then_else(condition(x), value(x), otherwise(x))


def selected(condition, value, otherwise=lambda x: f(0)):
    return lambda x: tirx.Select(condition(x), value(x), otherwise(x))


positive, nonzero = (lambda x: x > f(0)), (lambda x: tirx.NE(x, f(0)))
below_one = lambda x: x < f(1)  # noqa: E731

#: name, function of an element, points, derivative there
CASES = [
    ("sqrt", guarded(positive, te.sqrt), [0, -1, 4], [0, 0, 0.25]),
    ("sqrt-select", selected(positive, te.sqrt), [0, -1, 4], [0, 0, 0.25]),
    ("log", guarded(positive, te.log), [0, -2, 2], [0, 0, 0.5]),
    ("log-select", selected(positive, te.log), [0, -2, 2], [0, 0, 0.5]),
    ("reciprocal", guarded(nonzero, lambda x: f(1) / x), [0, 2], [0, -0.25]),
    ("reciprocal-select", selected(nonzero, lambda x: f(1) / x), [0, 2], [0, -0.25]),
    ("rsqrt", guarded(positive, te.rsqrt), [0, 4], [0, -0.0625]),
    ("power-half", guarded(positive, lambda x: te.power(x, f(0.5))), [0, 4], [0, 0.25]),
    ("power-minus-two", guarded(nonzero, lambda x: te.power(x, f(-2))), [0, 2], [0, -0.25]),
    ("asin", guarded(below_one, te.asin, lambda x: x * x), [1, 0, 3], [2, 1, 6]),
    ("atanh", guarded(below_one, te.atanh, lambda x: x * x), [1, 0, 3], [2, 1, 6]),
    (
        "log-of-exp",
        guarded(lambda x: x < f(30), lambda x: te.log(f(1) + te.exp(x)), lambda x: x),
        [0, 1000],
        [0.5, 1],
    ),
    ("x-log-x", guarded(positive, lambda x: x * te.log(x)), [0, 1], [0, 1]),
    (
        "sine-over-x",
        guarded(nonzero, lambda x: te.sin(x) / x, lambda x: f(1)),
        [0, np.pi],
        [0, -1 / np.pi],
    ),
    (
        "nested",
        guarded(positive, guarded(lambda x: x > f(1), lambda x: te.sqrt(x - f(1)), te.sqrt)),
        [-1, 0, 0.25, 5],
        [0, 0, 1, 0.25],
    ),
    # the derivative is infinite at the point itself: no branch protects it, and none is invented
    ("sqrt-unguarded", te.sqrt, [0, 4], [np.inf, 0.25]),
    ("power-zero-base", lambda x: te.power(x, f(2)), [0, -3], [0, -6]),
    ("power-cube-negative", lambda x: te.power(x, f(3)), [0, -2], [0, 12]),
    ("power-of-zero-exponent", lambda x: te.power(x, f(0)), [0, -2, 3], [0, 0, 0]),
    ("relu-by-max", lambda x: tirx.Max(x, f(0)), [-1, 2], [0, 1]),
    ("norm-at-zero", lambda x: tirx.Select(nonzero(x), te.abs(x), f(0)), [0, -2], [0, -1]),
]


@pytest.mark.parametrize(("name", "function", "at", "expected"), CASES, ids=[c[0] for c in CASES])
def test_derivative(name, function, at, expected):
    at = np.array(at, "float64")
    x = te.placeholder(at.shape, "float64", name="x")
    out = te.compute(at.shape, lambda i: function(x(i)), name="out")
    [got] = derivatives(out, [x], [at])
    np.testing.assert_allclose(got, expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "function", "at", "expected"), CASES[:5], ids=[c[0] for c in CASES[:5]]
)
def test_second_derivative_is_finite(name, function, at, expected):
    at = np.array(at, "float64")
    x = te.placeholder(at.shape, "float64", name="x")
    out = te.compute(at.shape, lambda i: function(x(i)), name="out")
    h = te.placeholder(at.shape, "float64", name="h")
    [first] = ad.differentiate(out, [x], h)
    [second] = ad.differentiate(first, [x], te.placeholder(at.shape, "float64", name="g"))
    head = [t for t in second.op.input_tensors if t.op.name == "g"]
    ones = np.ones(at.shape)
    pairs = [(x, at), (h, ones), *((t, ones) for t in head)]
    [got] = evaluate([second], pairs)
    assert np.isfinite(got).all()


def test_guard_outside_of_the_tensor():
    """Reads that a guard keeps inside are never evaluated outside, in the gradient either."""
    x = te.placeholder((4,), "float64", name="x")
    out = te.compute(
        (6,), lambda i: te.if_then_else(te.all(i >= 1, i < 5), te.log(x[i - 1]), f(0)), name="out"
    )
    at = np.array([1.0, 2.0, 4.0, 8.0])
    [got] = derivatives(out, [x], [at])
    np.testing.assert_allclose(got, 1 / at)


def test_masked_sum_over_bad_elements():
    """Σ_k where(mask): log(0) under the mask adds neither NaN to the value nor to the gradient."""
    x = te.placeholder((4,), "float64", name="x")
    k = te.reduce_axis((0, 4), "k")
    out = te.compute((), lambda: te.sum(te.log(x[k]), axis=k, where=x[k] > f(0)), name="out")
    at = np.array([0.0, 1.0, -1.0, 2.0])
    [got] = derivatives(out, [x], [at])
    np.testing.assert_allclose(got, [0, 1, 0, 0.5])
    [value] = evaluate([out], [(x, at)])
    np.testing.assert_allclose(value, np.log(2))
