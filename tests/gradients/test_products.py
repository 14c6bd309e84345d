"""Products: factors of every magnitude, zeros, and derivatives of derivatives after rewriting.

The expected values are exact rational products, rounded once.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.float_errors import flushed

PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
ROWS = {
    "float32": [
        *([1e-30, 1e-30, 1e30, 1], [1e-30, 1e-30, 1e30, 1e30], [1e30, 1e30, 1e-30, 1e-30]),
        *([0, 1e-30, 1e-30, 1e38], [0, 0, 1e30, 1e30], [1e-45, 1e38, 1e7, 1], [0, 0, 0, 1]),
        *([3e38, 3e38, 1e-38, 1e-38], [-1e-45, -1e-45, 1e38, -1e38], [1e-20, 1e-20, 1e-20, 1]),
        *([-1, 2, -3, 4], [2**-32, 2**32, 2**-96, 2**96], [2**127, 2**-126, 2**127, 2**-126]),
    ],
    "float64": [
        *([1e-200, 1e-200, 1e200, 1e200], [1e300, 1e300, 1e-300, 1e-300], [5e-324, 1e308, 1e15, 1]),
        *([1e-310, 0, 1e308, 2], [1e-300, 1e-300, 1e-300, 1e300], [-1, 2, -3, 4]),
    ],
    "float16": [[1e-4, 1e-4, 1e4, 1e4], [6e-8, 6e4, 6e4, 1], [0, 6e-8, 6e4, 2], [-1, 2, -3, 4]],
    "bfloat16": [
        [-1, 2, -3, 4],
        [1e-30, 1e-30, 1e30, 1e30],
        [1e-40, 1e38, 1e3, 1],
        [0, 1e-38, 1e38, 2],
    ],
}


def numpy_of(dtype):
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def products_of_others(row):
    """At each place the product of the others, in exact arithmetic."""
    exact = [Fraction(float(value)) for value in row]
    return [prod(exact[:k] + exact[k + 1 :], start=Fraction(1)) for k in range(len(exact))]


def assert_rounded(got, want, kind, least):
    """Each number is within a few units of an exact one, infinite or zero where that is too."""
    info = ml_dtypes.finfo(kind)
    largest, least = Fraction(float(info.max)), Fraction(float(least))
    for number, exact in zip(got, want, strict=True):
        if np.isinf(number):
            assert (exact if number > 0 else -exact) > largest * (1 - 8 * Fraction(float(info.eps)))
        else:
            error = abs(Fraction(float(number)) - exact)
            assert error <= 8 * Fraction(float(info.eps)) * abs(exact) + least


@pytest.mark.parametrize("dtype", ROWS)
@pytest.mark.parametrize("way", ["evaluated", "compiled", "compiled exactly"])
def test_no_product_leaves_the_range_of_its_result(dtype, way):
    kind = numpy_of(dtype)
    info = ml_dtypes.finfo(kind)
    values = np.array(ROWS[dtype]).astype(kind)
    x = te.placeholder(values.shape, dtype, name="x")
    k = te.reduce_axis((0, 4), "k")
    y = te.compute(values.shape[:1], lambda i: PRODUCT(x[i, k], axis=k), name="y")
    head = te.compute(y.shape, lambda i: tirx.const(1, dtype), name="head")
    [dx] = ad.differentiate(y, [x], head)
    if way == "evaluated":
        [got] = evaluate_graph([dx], [(x, values)])
    else:
        [got] = ad.build([x], [dx], cache=False, exact_math=way == "compiled exactly")(values)
    # float16 is computed in float32, in which all of its numbers are normal
    flushes = way == "compiled" and dtype != "float16"
    least = info.smallest_normal if flushes else info.smallest_subnormal
    for row, found in zip(flushed(values) if flushes else values, got, strict=True):
        assert_rounded(found, products_of_others(row), kind, least)


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_long_products_of_magnitudes_that_cancel(length):
    rng = np.random.default_rng(length)
    values = 10.0 ** rng.permutation(np.repeat([-30.0, 30.0], length)).astype("float32")
    values = (values * rng.uniform(0.5, 2, 2 * length)).astype("float32").reshape(1, -1)
    x = te.placeholder(values.shape, "float32", name="x")
    k = te.reduce_axis((0, 2 * length), "k")
    y = te.compute((1,), lambda i: PRODUCT(x[i, k], axis=k), name="y")
    [dx] = ad.differentiate(y, [x], te.compute((1,), lambda i: tirx.const(1.0), name="head"))
    [got] = evaluate_graph([dx], [(x, values)])
    want = [float(number) for number in products_of_others(values[0])]
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.array(want).astype("float32")
    np.testing.assert_allclose(got[0], rounded, rtol=1e-6 * 2 * length)


#: rewriting → what it makes of the first derivative
REWRITINGS = {
    "none": lambda tensor: tensor,
    "inline_tensors": lambda tensor: ad.inline_tensors(tensor)[0],
    "remove_unused_dims": lambda tensor: ad.remove_unused_dims(tensor)[0],
    "merge_equal_stages": lambda tensor: ad.merge_equal_stages(tensor)[0],
    "simplify_reductions": lambda tensor: ad.simplify_reductions(tensor)[0],
    "lift_nonzeroness_condition": ad.lift_nonzeroness_condition,
    "all": lambda tensor: ad.simplify_reductions(
        ad.merge_equal_stages(ad.inline_tensors(ad.remove_unused_dims(tensor)))
    )[0],
}
SOURCES = {
    "read": (lambda x, i, k: x[i, k], lambda x: x),
    "stage": (None, lambda x: x * 3.0 + 1.0),
    "expression": (lambda x, i, k: x[i, k] * 3.0 + 1.0, lambda x: x * 3.0 + 1.0),
    "one for all": (lambda x, i, k: x[i, 0] * 1.0, lambda x: np.repeat(x[:, :1], 4, axis=1)),
}


@pytest.mark.parametrize("rewriting", REWRITINGS)
@pytest.mark.parametrize("source", SOURCES)
def test_second_derivatives_at_zeros_survive_rewriting(rewriting, source):
    make, factors = SOURCES[source]
    values = np.array([[0, 0, 2, 3], [0, 1, 2, 3], [0, 0, 0, 3], [4, 1, 2, 3], [-1 / 3] * 4])
    x = te.placeholder(values.shape, "float64", name="x")
    if make is None:
        t = te.compute(x.shape, lambda i, k: x[i, k] * 3.0 + 1.0, name="t")
        make = lambda x, i, k: t[i, k]  # noqa: E731
    k = te.reduce_axis((0, 4), "k")
    y = te.compute((5,), lambda i: PRODUCT(make(x, i, k), axis=k), name="y")
    head = te.placeholder((5,), "float64", name="head")
    [dx] = ad.differentiate(y, [x], head)
    first = REWRITINGS[rewriting](dx)
    weights = np.random.default_rng(0).uniform(-1, 1, (2, *values.shape))
    second = te.placeholder(x.shape, "float64", name="second")
    [ddx] = ad.differentiate(first, [x], second)
    heads = np.array([1.0, -2.0, 3.0, 0.5, 2.0])
    pairs = [(x, values), (head, heads), (second, weights[0])]
    got = evaluate_graph([first, ddx], pairs)

    def total(point, direction, step=1e-20):
        """The derivative along a direction by one complex step."""
        return (factors(point + 1j * step * direction).prod(axis=1).imag / step) * heads

    slopes, curvatures = np.zeros(values.shape), np.zeros(values.shape)
    for place in np.ndindex(*values.shape):
        unit = np.zeros(values.shape)
        unit[place] = 1.0
        slopes[place] = total(values, unit).sum()
        ends = [total(values + sign * 1e-4 * unit, weights[0]).sum() for sign in (1, -1)]
        curvatures[place] = (ends[0] - ends[1]) / 2e-4
    np.testing.assert_allclose(got[0], slopes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got[1], curvatures, rtol=1e-6, atol=1e-6)


def test_a_product_of_others_is_not_put_into_its_reader():
    x = te.placeholder((3, 4), "float64", name="x")
    k = te.reduce_axis((0, 4), "k")
    y = te.compute((3,), lambda i: PRODUCT(x[i, k], axis=k), name="y")
    [dx] = ad.differentiate(y, [x], te.placeholder((3,), "float64", name="head"))
    [others] = [tensor for tensor in dx.op.input_tensors if tensor.op.name == "y_others"]
    with pytest.raises(ad.InvalidArgumentError, match="y_others carries a custom rule"):
        ad.inline_tensors(dx, others)


def test_an_initial_value_is_a_tensor_or_stays_one():
    x = te.placeholder((3, 4), "float64", name="x")
    begin = te.compute((3,), lambda i: x[i, 0] * 2.0, name="begin")
    copy = te.compute((3,), lambda i: x[i, 0], name="copy")
    k = te.reduce_axis((0, 4), "k")
    values = np.arange(12.0).reshape(3, 4)

    def begun(start):
        return te.compute((3,), lambda i: te.sum(x[i, k], axis=k, init=start[i]), name="y")

    for start, factor in ((begin, 2.0), (copy, 1.0)):
        y = begun(start)
        [got] = evaluate_graph(ad.inline_tensors(y), [(x, values)])
        np.testing.assert_array_equal(got, values.sum(axis=1) + factor * values[:, 0])
    with pytest.raises(ad.InvalidArgumentError, match="begin is the initial value"):
        ad.inline_tensors(begun(begin), begin)
