"""Absolute values of integers are maxima; other choices stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tvm_autodiff.codegen.passes.absolute_values import with_maxima
from tvm_autodiff.expr.rewrite import map_loads

x = te.placeholder((9,), name="x")
ZERO = tirx.const(0, "float32")

#: name → (an element, how many maxima and choices there are in it)
CASES = {
    "a distance": (lambda i: te.if_then_else(te.abs(i - 4) < 2, x[i], ZERO), 1, 0),
    "nested": (lambda i: te.if_then_else(te.abs(te.abs(i - 4) - 2) < 2, x[i], ZERO), 3, 0),
    "an index": (lambda i: x[te.abs(i - 4)], 1, 0),
    "another choice": (lambda i: x[tirx.Select(i - 4 > 0, i - 4, 4 - i)], 0, 1),
    "a narrow number": (
        lambda i: te.if_then_else(te.abs(i.astype("int8") - tirx.const(4, "int8")) < 2, x[i], ZERO),
        0,
        1,
    ),
    "floats": (lambda i: te.abs(x[i]), 0, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_choices(name):
    body, maxima, choices = CASES[name]
    y = te.compute((9,), body, name="y")  # TVM would write the choices in another way
    X, Y = (tirx.decl_buffer((9,), "float32", name) for name in "XY")
    i = y.op.axis[0].var
    element = map_loads(y.op.body[0], lambda _, indices: X[indices[0]])
    loop = tirx.For(i, 0, 9, tirx.ForKind.SERIAL, tirx.BufferStore(Y, element, [i]))
    text = with_maxima(tirx.PrimFunc([X, Y], loop)).script()
    assert (text.count("T.max("), text.count("T.Select(")) == (maxima, choices)


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    y = te.compute((9,), CASES[name][0], name="y")
    values = np.arange(9, dtype="float32") - 3
    i = np.arange(9)
    expected = {
        "a distance": np.where(abs(i - 4) < 2, values, 0),
        "nested": np.where(abs(abs(i - 4) - 2) < 2, values, 0),
        "an index": values[abs(i - 4)],
        "another choice": values[abs(i - 4)],
        "a narrow number": np.where(abs(i - 4) < 2, values, 0),
        "floats": abs(values),
    }
    np.testing.assert_array_equal(ad.build(x, y, cache=False)(values), expected[name])
