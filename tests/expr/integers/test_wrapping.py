"""Conversions from int64 to int32 that wrap: kept from TVM, which takes them for exact."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate
from tvm_autodiff.expr.integers.intervals import Intervals, range_intervals
from tvm_autodiff.expr.integers.wrapping import opaque_narrowing
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder

i, n = te.var("i"), te.var("n")
PLACES = te.placeholder((16,), "int64", name="places")
INTERVALS = Intervals(range_intervals({i: (0, 16)}))


def narrowed(wide):
    return tirx.Cast("int32", wide)


def times(value, factor):
    return value.astype("int64") * tirx.const(factor, "int64")


#: expression → whether its conversion is hidden
CASES = {
    "wraps": (narrowed(times(i, 2**33 + 5)), True),
    "wraps below": (narrowed(times(i, -(2**31))), True),
    "fits": (narrowed(times(i, 2**26)), False),
    "a size": (narrowed(times(n, 2**33)), False),
    "data": (narrowed(PLACES[i] * tirx.const(8, "int64")), False),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_hidden(name):
    expr, hidden = CASES[name]
    written = opaque_narrowing(expr, INTERVALS)
    assert any(op_name(node) == "reinterpret" for node in postorder(written)) == hidden
    values = {i: np.arange(16, dtype="int32"), n: np.int32(3)}
    arrays = [(PLACES, np.arange(16) - 3)]
    np.testing.assert_array_equal(evaluate(written, values, arrays), evaluate(expr, values, arrays))


@pytest.mark.parametrize("factor", [2**33 + 5, 2**31 + 7, -(2**31) - 5, 2_000_000_000])
def test_gradient_behind_such_a_condition(factor):
    """The gradient has the condition at ``15 - i``, whose literal is too large for int32."""
    x = te.placeholder((16,), "float64", name="x")

    def body(i):
        chosen = narrowed(times(i, factor)) < 30
        return te.if_then_else(chosen, x[i] * x[i], x[15 - i])

    y, head = te.compute((16,), body, name="y"), te.placeholder((16,), "float64", name="head")
    run = ad.build([x, head], [y, *ad.differentiate(y, [x], head)], cache=False)
    rng = np.random.default_rng(1)
    array, cotangent = rng.uniform(-1, 1, (2, 16))
    chosen = (np.arange(16) * factor).astype("int32") < 30
    assert chosen.any()
    assert not chosen.all()
    value, gradient = run(array, cotangent)
    np.testing.assert_allclose(value, np.where(chosen, array**2, array[::-1]))
    back = np.where(chosen, 0, cotangent)[::-1]
    np.testing.assert_allclose(gradient, np.where(chosen, 2 * array * cotangent, 0) + back)
