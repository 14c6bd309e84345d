"""`scatter_add` and `segment_sum` equal numpy and JAX, to second order, for all dtypes."""

from __future__ import annotations

import importlib.util
import warnings

import ml_dtypes  # noqa: F401 - numpy learns bfloat16
import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff import scatter_add, segment_sum

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
RNG = np.random.default_rng(0)


def added(shape, indices, values):
    """numpy's sum, of places inside of the shape alone."""
    result = np.zeros(shape, values.dtype)
    inside = np.ones(indices[0].shape, bool)
    for index, extent in zip(indices, shape, strict=False):
        inside &= (index >= 0) & (index < extent)
    np.add.at(result, tuple(index[inside] for index in indices), values[inside])
    return result


def read(array, indices):
    """Elements of an array, zero outside."""
    shape = array.shape
    padded = np.pad(array, [(0, 1)] * len(indices) + [(0, 0)] * (array.ndim - len(indices)))
    places = zip(indices, shape, strict=False)
    return padded[tuple(np.where((i >= 0) & (i < n), i, -1) for i, n in places)]


#: name → (shape of the points, shape of the result, number of index tensors)
CASES = {
    "elements": ((9,), (5,), 1),
    "rows": ((9,), (5, 3), 1),
    "blocks": ((9,), (5, 2, 3), 1),
    "two indices": ((9,), (5, 4), 2),
    "two indices of rows": ((9,), (5, 4, 2), 2),
    "a matrix of points": ((3, 4), (5, 2), 1),
    "a matrix of points, three indices": ((3, 4), (5, 2, 3), 3),
    "one place": ((), (4, 3), 1),
    "one row": ((9,), (1, 3), 1),
    "no points": ((0,), (4, 3), 1),
    "no places": ((5,), (0, 3), 1),
}


def case(name, dtype="float64", index="int32"):
    points, shape, count = CASES[name]
    indices = [te.placeholder(points, index, name=f"i{n}") for n in range(count)]
    values = te.placeholder((*points, *shape[count:]), dtype, name="values")
    arrays = [RNG.integers(-2, shape[n] + 2, points).astype(index) for n in range(count)]
    data = RNG.integers(0, 4, tuple(map(int, values.shape))).astype(dtype)
    return values, indices, scatter_add(values, indices, shape), data, arrays


@pytest.mark.parametrize("name", CASES)
def test_equals_numpy(name):
    values, indices, out, data, arrays = case(name)
    want = added(CASES[name][1], [np.asarray(array) for array in arrays], data)
    got = ad.build([values, *indices], out, cache=False)(data, *arrays)
    np.testing.assert_array_equal(got, want)
    [plain] = evaluate_graph([out], [(values, data), *zip(indices, arrays, strict=True)])
    np.testing.assert_array_equal(plain, want)


@pytest.mark.parametrize("name", CASES)
def test_gradients_to_second_order(name):
    """Of ``Σ out²``: ``2·out`` at the places, and of ``Σ w·that`` in turn ``2·Σ w`` at them."""
    values, indices, out, data, arrays = case(name)
    inner = [te.reduce_axis((0, extent)) for extent in out.shape]
    point = [axis.var for axis in inner]
    squares = te.compute((), lambda: te.sum(out(*point) * out(*point), axis=inner), name="squares")
    head = te.placeholder(values.shape, "float64", name="head")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ad.DenseSumWarning)
        [first] = ad.differentiate(squares, values)
        [second] = ad.differentiate(first, values, head)
    weights = RNG.integers(-3, 4, data.shape).astype("float64")
    known = {values: data, head: weights, **dict(zip(indices, arrays, strict=True))}
    got = evaluate_graph([first, second], known, strict=True)
    places = [np.asarray(array) for array in arrays]
    for found, added_up in zip(got, (data, weights), strict=True):
        np.testing.assert_array_equal(
            found, 2 * read(added(CASES[name][1], places, added_up), places)
        )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_index_dtypes(dtype):
    ids, data = te.placeholder((6,), dtype, name="ids"), te.placeholder((6,), name="data")
    out = segment_sum(data, ids, 300)
    head = te.placeholder((300,), name="head")
    [gradient] = ad.differentiate(out, data, head)
    places = np.array([0, 1, 127, 200 % np.iinfo(dtype).max, 5, 5]).astype(dtype)
    values, weights = np.arange(6, dtype="float32"), np.arange(300, dtype="float32")
    got, slope = ad.build([data, ids, head], [out, gradient], cache=False)(values, places, weights)
    np.testing.assert_array_equal(got, added((300,), [places.astype("int64")], values))
    np.testing.assert_array_equal(slope, weights[places.astype("int64")])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_value_dtypes(dtype):
    ids, data = te.placeholder((600,), "int32", name="ids"), te.placeholder((600,), dtype, name="d")
    out = segment_sum(data, ids, 3)
    assert str(out.dtype) == dtype
    places = RNG.integers(0, 3, 600).astype("int32")
    got = ad.build([data, ids], out, cache=False)(np.ones(600, dtype), places)
    # sums of float16 and bfloat16 are float32 inside: 200 ones are no rounding error
    np.testing.assert_array_equal(got, np.bincount(places, minlength=3).astype(dtype))


@pytest.mark.parametrize(("segments", "count"), [(5, 9), (3, 0), (0, 4), (100, 1000)])
def test_symbolic_sizes(segments, count):
    n, m = te.var("n"), te.var("m")
    data, ids = te.placeholder((m, 3), name="data"), te.placeholder((m,), "int32", name="ids")
    other = te.placeholder((n, 3), name="other")
    segment_sums = segment_sum(data, ids, n)
    out = te.compute((n, 3), lambda i, j: segment_sums[i, j] * other[i, j], name="out")
    values, places = RNG.random((count, 3), "float32"), RNG.integers(-1, segments + 1, count)
    weights = RNG.random((segments, 3), "float32")
    got = ad.build([data, ids, other], out, cache=False)(values, places.astype("int32"), weights)
    np.testing.assert_allclose(got, added((segments, 3), [places], values) * weights, rtol=1e-5)


def test_the_index_may_be_the_values_and_both_indices():
    x = te.placeholder((6,), "int32", name="x")
    at = np.array([1, 2, 2, 8, 9, -1], "int32")
    got = ad.build(x, scatter_add(x, [x, x], (9, 9)), cache=False)(at)
    np.testing.assert_array_equal(got, added((9, 9), [at, at], at))


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs JAX")
def test_equals_jax():
    import jax

    data, ids = te.placeholder((8, 3), name="data"), te.placeholder((8,), "int32", name="ids")
    head = te.placeholder((4, 3), name="head")
    out = segment_sum(data, ids, 4)
    [gradient] = ad.differentiate(out, data, head)
    values, weights = RNG.random((8, 3), "float32"), RNG.random((4, 3), "float32")
    places = np.array([0, 3, 3, 9, 1, 4, 0, 3], "int32")
    want, pull = jax.vjp(lambda v: jax.ops.segment_sum(v, places, num_segments=4), values)
    got, slope = ad.build([data, ids, head], [out, gradient], cache=False)(values, places, weights)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(slope, pull(weights)[0], rtol=1e-6)


V, T = te.placeholder((4, 3), name="V"), te.placeholder((4,), "int32", name="T")
S = te.placeholder((5,), "int32", name="S")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scatter_add(np.ones(3), T, (4,)), "values must be a te.Tensor"),
        (lambda: scatter_add(V, [], (4, 3)), "indices must be"),
        (lambda: scatter_add(V, 3, (4, 3)), "indices must be"),
        (lambda: scatter_add(V, [T, 1], (4, 3)), r"indices\[1\] must be a te.Tensor"),
        (lambda: scatter_add(V, te.placeholder((4,), name="f"), (4, 3)), "f must be of an integer"),
        (lambda: scatter_add(V, [T, S], (4, 3)), r"T has \(4,\), S has \(5,\)"),
        (lambda: scatter_add(V, S, (9, 3)), "the shape of the index tensors"),
        (lambda: scatter_add(V, T, (9, 2)), r"\(4, 2\), got \(4, 3\)"),
        (lambda: scatter_add(V, T, (9,)), r"\(4,\), got \(4, 3\)"),
        (lambda: scatter_add(V, [T, T, T], (9, 2)), "3 index tensors for a result of rank 2"),
        (lambda: scatter_add(V, T, 9), "shape must be a sequence"),
        (lambda: scatter_add(V, T, (2.5, 3)), r"shape\[0\]"),
        (lambda: scatter_add(V, T, (-1, 3)), r"shape\[0\]"),
        (lambda: segment_sum(te.placeholder((4,), "bool", name="B"), T, 3), "B must be of a float"),
        (lambda: segment_sum(V, T, "3"), r"shape\[0\]"),
        (lambda: segment_sum(V, T, te.placeholder((), "int32")), r"shape\[0\]"),
        (lambda: segment_sum(V, T, T(0)), r"shape\[0\]"),
    ],
)
def test_errors_name_what_does_not_fit(call, message):
    with pytest.raises(ad.InvalidArgumentError, match=message):
        call()
