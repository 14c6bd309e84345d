"""NaN in the data: what passes it on, and what does not (docs/how-to/verify_gradients.md)."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad

NAN = float("nan")

#: body, and its value and gradient at NaN
AT_NAN = {
    "sum": (lambda x: x + 1, NAN, 1.0),
    "function": (lambda x: te.exp(x), NAN, NAN),
    "choice": (lambda x: te.if_then_else(x > 0, te.log(x), 0.0), 0.0, 0.0),
    "negated choice": (lambda x: te.if_then_else(tirx.Not(x > 0), x * 2, 0.0), NAN, 2.0),
    "maximum, NaN first": (lambda x: te.max(x, tirx.const(0, "float64")), 0.0, 0.0),
    "maximum, NaN last": (lambda x: te.max(tirx.const(0, "float64"), x), NAN, 0.0),
    "minimum, NaN first": (lambda x: te.min(x, tirx.const(0, "float64")), 0.0, 0.0),
    "product with zero": (lambda x: x * 0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("exact_math", [False, True])
@pytest.mark.parametrize("name", AT_NAN)
def test_at_nan(name, exact_math):
    body, value, gradient = AT_NAN[name]
    X = te.placeholder((9,), "float64", "X")
    Y = te.compute((9,), lambda i: body(X[i]), name="Y")
    head = te.placeholder((9,), "float64", "head")
    step = ad.build([X, head], [Y, *ad.vjp([Y], [X], [head])], exact_math=exact_math)
    results = step(np.full(9, NAN), np.ones(9))
    for result, expected in zip(results, (value, gradient), strict=True):
        np.testing.assert_array_equal(result, np.full(9, expected))


@pytest.mark.parametrize("place", [0, 4, 8])
def test_a_maximum_is_an_element(place):
    data = np.arange(9.0)
    data[place] = NAN
    X, k = te.placeholder((9,), "float64", "X"), te.reduce_axis((0, 9), "k")
    [top] = ad.build(X, [te.compute((1,), lambda i: te.max(X[k], axis=k), name="top")])(data)
    assert top[0] in data or np.isnan(top[0])
