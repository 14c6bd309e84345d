"""Windows whose position is data: what their sums and gradients cost, and that they are right.

The gradient of ``y[b, k] = x[start[b] + k]`` adds each element of a window once; no element of x
looks for windows that contain it. Bounds on data from both sides are such windows as well.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tvm import te, tirx, topi

from tests.differences import whole_slopes
from tests.evaluate import evaluate_graph
from tvm_autodiff import (
    DenseSumWarning,
    build,
    differentiate,
    estimate_cost,
    simplify_reductions,
)
from tvm_autodiff.expr.build import affirmed
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.expr.simplify import simplify

D = "float64"
T, B, K, C = 60, 6, 5, 3  # samples, windows, their width, channels
RNG = np.random.default_rng(0)


def integers(name, *shape, low=0, high=T - K + 1):
    return te.placeholder(shape, "int32", name=name), RNG.integers(low, high, shape, "int32")


def floats(name, *shape):
    return te.placeholder(shape, D, name=name), RNG.integers(-3, 4, shape).astype(D)


start, START_ = integers("start", B)
anywhere, ANYWHERE_ = integers("anywhere", B, low=-2 * K, high=T + K)  # partly outside
label, LABEL_ = integers("label", T, low=-2, high=B + 2)
corner, CORNER_ = integers("corner", B, 2, low=0, high=20 - K + 1)
rows, ROWS_ = te.placeholder((B + 1,), "int32", name="rows"), np.array([0, 4, 4, 9, 30, 31, T])
x, X_ = floats("x", T)
xc, XC_ = floats("xc", T, C)
image, IMAGE_ = floats("image", 20, 20)
w, W_ = floats("w", K)
v, V_ = floats("v", B, K)
u, U_ = floats("u", B)
DATA = {
    start: START_, anywhere: ANYWHERE_, label: LABEL_, corner: CORNER_,
    rows: ROWS_.astype("int32"), x: X_, xc: XC_, image: IMAGE_, w: W_, v: V_, u: U_,
}  # fmt: skip
ZERO = te.const(0.0, D)


def windows(body, *shape):
    return te.compute((B, *shape), body, name="y")


def summed(shape, extent, body):
    k = te.reduce_axis((0, extent), "k")
    return te.compute(shape, lambda *i: te.sum(body(*i, k), axis=k), name="y")


def when(condition, value):
    return te.if_then_else(condition, value, ZERO)


def inside(place, end=T):
    return te.all(place >= 0, place < end)


def pasted(t, b):
    """The sum of windows at positions that are data, as a mask on the samples."""
    place = t - anywhere[b]
    return when(inside(place, K), v[b, te.max(te.min(place, K - 1), 0)])


def one_hot():
    return topi.one_hot(label, te.const(1.0, D), ZERO, B, -1, D)


#: name → (the program, by what it is differentiated)
CASES = {
    "windows": (lambda: windows(lambda b, k: x[start[b] + k], K), [x]),
    "squares": (lambda: windows(lambda b, k: x[start[b] + k] * x[start[b] + k], K), [x]),
    "backwards": (lambda: windows(lambda b, k: x[start[b] + K - 1 - k], K), [x]),
    "two taps": (lambda: windows(lambda b, k: x[start[b] + k], 2), [x]),
    "with channels": (lambda: windows(lambda b, k, c: xc[start[b] + k, c], K, C), [xc]),
    "channels in front": (lambda: windows(lambda b, c, k: xc[start[b] + k, c], C, K), [xc]),
    "guarded": (
        lambda: windows(
            lambda b, k: when(inside(anywhere[b] + k), x[te.max(anywhere[b] + k, 0)]), K
        ),
        [x],
    ),
    "patches": (
        lambda: windows(lambda b, i, j: image[corner[b, 0] + i, corner[b, 1] + j], K, K),
        [image],
    ),
    "filtered": (lambda: summed((B,), K, lambda b, k: x[start[b] + k] * w[k]), [x, w]),
    "pasted": (lambda: summed((T,), B, pasted), [v]),
    "within": (
        lambda: summed(
            (T,), B, lambda t, b: when(te.all(anywhere[b] <= t, t < anywhere[b] + K), u[b])
        ),
        [u],
    ),
    "a distance": (
        lambda: summed((T,), B, lambda t, b: when(te.abs(anywhere[b] - t) < 3, u[b])),
        [u],
    ),
    "a quotient": (
        lambda: summed(
            (B,), T, lambda b, t: when(te.all(label[t] >= 2 * b, label[t] <= 2 * b + 1), x[t])
        ),
        [x],
    ),
    "one-hot rows": (
        lambda: (lambda o: summed((T,), B, lambda t, b: o[t, b] * u[b]))(one_hot()),
        [u],
    ),
    "one-hot columns": (
        lambda: (lambda o: summed((B, C), T, lambda b, c, t: o[t, b] * xc[t, c]))(one_hot()),
        [xc],
    ),
}


def iterations(tensors):
    return estimate_cost(tensors).iterations


@pytest.mark.parametrize("name", CASES)
def test_gradient(name):
    make, wanted = CASES[name]
    y = make()
    weights = RNG.integers(-3, 4, tuple(map(int, y.shape))).astype(D)
    head = te.placeholder(y.shape, D, name="head")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adjoints = list(differentiate(y, wanted, head))
    data = {**DATA, head: weights}
    found = evaluate_graph(adjoints, data, strict=True)
    want = whole_slopes(y, wanted, DATA, weights)
    for got, slope in zip(found, want, strict=True):
        np.testing.assert_array_equal(got, slope)
    # a position, a value and an addition for each element of the windows
    points = np.prod([*map(int, y.shape)]) * (K if name == "filtered" else 1)
    dense = points * max(DATA[tensor].size for tensor in wanted)
    assert iterations(adjoints) < dense / 4
    inputs = [*DATA, head]
    compiled = build(inputs, adjoints, cache=False)(*(data[t] for t in inputs))
    results = compiled if isinstance(compiled, list) else [compiled]
    for got, slope in zip(results, want, strict=True):
        np.testing.assert_array_equal(got, slope)


@pytest.mark.parametrize("name", [n for n in CASES if n in ("pasted", "within", "a distance")])
def test_masks_of_windows_are_scattered(name):
    y = CASES[name][0]()
    [simple] = simplify_reductions(y)
    np.testing.assert_array_equal(*evaluate_graph([simple, y], dict(DATA), strict=True))
    assert iterations(simple) < iterations(y) / 1.5
    inputs = [t for t in DATA if any(t.op.same_as(read.op) for read in y.op.input_tensors)]
    got = build(inputs, y, cache=False)(*(DATA[t] for t in inputs))
    np.testing.assert_array_equal(got, evaluate_graph([y], dict(DATA))[0])


def test_wide_windows_stay_sums():
    """More than a quarter of what is summed anyway costs less to test than to look up."""
    y = summed((T,), B, lambda t, b: when(inside(t - anywhere[b], T // 2), u[b]))
    assert simplify_reductions(y)[0].same_as(y)


#: name → (the program, whether most of its gradient's sum is zeros that are told)
TOLD = {
    "either": (
        lambda: summed(
            (B,), T, lambda b, t: when(te.any(label[t] == b, label[t] == b + 2), x[t])
        ),
        True,
    ),
    "compared as floats": (
        lambda: summed((B,), T, lambda b, t: when(label[t].astype(D) == b.astype(D), x[t])),
        True,
    ),
    "rows between pointers": (
        lambda: summed((B,), T, lambda b, t: when(te.all(t >= rows[b], t < rows[b + 1]), x[t])),
        True,
    ),
    "one bound": (lambda: summed((B,), T, lambda b, t: when(label[t] <= b, x[t])), False),
    "data alone": (lambda: summed((B,), T, lambda b, t: when(label[t] == 3, x[t])), False),
    "its own index": (lambda: summed((B,), T, lambda b, t: when(label[t] == b, x[t])), False),
}


@pytest.mark.parametrize("name", TOLD)
def test_sums_over_zeros_are_told(name):
    make, told = TOLD[name]
    y = make()
    head = te.placeholder(y.shape, D, name="head")
    weights = RNG.integers(-3, 4, tuple(map(int, y.shape))).astype(D)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        adjoints = list(differentiate(y, [x], head))
    assert [one.category for one in found] == [DenseSumWarning] * told
    got = evaluate_graph(adjoints, {**DATA, head: weights}, strict=True)
    np.testing.assert_array_equal(got[0], whole_slopes(y, [x], DATA, weights)[0])


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        (lambda a, b: te.abs(a - b) < 3, ["a - b < 3", "-3 < a - b"]),
        (lambda a, b: te.abs(a) <= b, ["a <= b", "-b <= a"]),
        (lambda a, b: b > te.abs(a), ["a < b", "-b < a"]),
        (lambda a, b: tirx.Select(a - b >= 0, a - b, b - a) < 3, ["a - b < 3", "-3 < a - b"]),
        (
            lambda a, b: tirx.Select(a - b >= 0, a - b, a + b) < 3,
            ["select(0 <= a - b, a - b, a + b) < 3"],
        ),
        (lambda a, b: te.max(a - b, b - a) <= 8, ["a - b <= 8", "b - a <= 8"]),
        (lambda a, b: a + 1 < te.min(b, 9), ["a + 1 < b", "a < 8"]),
        (lambda a, b: (a - b) * (a - b) <= 8, ["a - b <= 2", "-2 <= a - b"]),
        (lambda a, b: (a - b) * (a - b) < 9, ["a - b <= 2", "-2 <= a - b"]),
        (lambda a, b: a * a <= 0, ["a <= 0", "0 <= a"]),
        (lambda a, b: a * a < 0, ["a*a < 0"]),
        (lambda a, b: a * b < 9, ["a*b < 9"]),
        (lambda a, b: tirx.Not(te.any(a < b, a > 4)), ["b <= a", "a <= 4"]),
        (lambda a, b: te.sqrt(a + 0.5) < 3, ["sqrt(float32(a) + 0.5) < 3.0"]),
    ],
)
def test_conditions_as_bounds(condition, parts):
    a, b = te.var("a"), te.var("b")
    assert [text(simplify(part)) for part in affirmed(condition(a, b))] == parts


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sizes_of_narrow_numbers_are_no_bounds(dtype):
    """Of an int8, -128 has no size, and 16*16 is 0."""
    a = te.var("a", dtype)
    for condition in (te.abs(a) < tirx.const(3, dtype), a * a < tirx.const(9, dtype)):
        assert len(affirmed(condition)) == 1
