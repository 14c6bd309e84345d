"""Register tiles whose vectors run along an axis of symbolic extent: panels, and what they leave.

Values are small whole numbers, so every order of summation gives the same.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.machines import avx512
from tests.schedule.cases import placeholder
from tvm_autodiff.schedule.cpu.contraction import contraction
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

SIZES = (0, 1, 3, 7, 16, 17, 31, 64, 65, 100, 130)


def axis(extent, name="k"):
    return te.reduce_axis((0, extent), name)


def rows_of_a_matrix(dtype="float32", index="int32"):
    """Its second operand is contiguous along the vectors."""
    n = te.var("n", index)
    a, b, k = placeholder("a", 20, 48, dtype=dtype), placeholder("b", 48, n, dtype=dtype), axis(48)
    y = te.compute((20, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="y")
    return [a, b], y, lambda n: [(20, 48), (48, n)], lambda a, b: a @ b


def scores():
    """Rows and vectors follow the same size, and keys are contiguous along the sum."""
    n = te.var("n")
    q, k, d = placeholder("q", 3, n, 32), placeholder("k", 3, n, 32), axis(32)
    y = te.compute((3, n, n), lambda h, i, j: te.sum(q[h, i, d] * k[h, j, d], axis=d), name="y")
    return [q, k], y, lambda n: [(3, n, 32)] * 2, lambda q, k: q @ k.swapaxes(1, 2)


def with_epilogue():
    n = te.var("n")
    a, b, k = placeholder("a", n, 32), placeholder("b", n, 32), axis(32)
    mask, bias = placeholder("mask", n, n), placeholder("bias", n)
    s = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="s")
    y = te.compute((n, n), lambda i, j: te.max(s[i, j] + bias[j], 0.0) * mask[i, j], name="y")
    want = lambda a, b, mask, bias: np.maximum(a @ b.T + bias, 0) * mask  # noqa: E731
    return [a, b, mask, bias], y, lambda n: [(n, 32), (n, 32), (n, n), (n,)], want


def squared_distances():
    n = te.var("n")
    a, b, k = placeholder("a", n, 16), placeholder("b", n, 16), axis(16)
    apart = lambda i, j: a[i, k] - b[j, k]  # noqa: E731
    y = te.compute((n, n), lambda i, j: te.sum(apart(i, j) * apart(i, j), axis=k), name="y")
    return [a, b], y, lambda n: [(n, 16)] * 2, lambda a, b: ((a[:, None] - b) ** 2).sum(2)


def window():
    """A convolution over time: reads are some steps further on."""
    n = te.var("n")
    x, w = placeholder("x", 2, 8, n + 4), placeholder("w", 16, 8, 5)
    c, r = axis(8, "c"), axis(5, "r")
    y = te.compute(
        (2, 16, n), lambda b, f, t: te.sum(x[b, c, t + r] * w[f, c, r], axis=[c, r]), name="y"
    )

    def want(x, w):
        steps = x.shape[2] - 4
        parts = [np.einsum("bct,fc->bft", x[:, :, r : r + steps], w[:, :, r]) for r in range(5)]
        return np.sum(parts, axis=0)

    return [x, w], y, lambda n: [(2, 8, n + 4), (16, 8, 5)], want


def guarded_window():
    """The gradient of a convolution over time: zeros lie around what it reads."""
    n = te.var("n")
    h, w = placeholder("h", 2, 16, n), placeholder("w", 16, 8, 5)
    f, r = axis(16, "f"), axis(5, "r")

    def body(b, c, t):
        inside = te.all(t - r >= 0, t - r < n)
        return te.sum(te.if_then_else(inside, h[b, f, t - r] * w[f, c, r], 0.0), axis=[f, r])

    def want(h, w):
        found = np.zeros((2, 8, h.shape[2]), "float32")
        for r in range(min(5, h.shape[2])):
            found[:, :, r:] += np.einsum("bft,fc->bct", h[:, :, : h.shape[2] - r], w[:, :, r])
        return found

    y = te.compute((2, 8, n), body, name="y")
    return [h, w], y, lambda n: [(2, 16, n), (16, 8, 5)], want


def of_differences(place, condition=None):
    """A product with a matrix whose elements are those of a vector of twice the size."""
    n = te.var("n")
    x, t, j = placeholder("x", 20, n), placeholder("t", 2 * n), axis(n, "j")

    def body(b, i):
        value = x[b, j] * t[place(i, j, n)]
        if condition is not None:
            value = te.if_then_else(condition(i, j), value, 0.0)
        return te.sum(value, axis=j)

    def want(x, t):
        size = x.shape[1]
        i, j = np.arange(size)[:, None], np.arange(size)
        matrix = t[place(i, j, size) if size else i * j]
        if condition is not None:
            matrix = np.where(condition(i, j), matrix, 0)
        return x @ matrix.T

    return [x, t], te.compute((20, n), body, name="y"), lambda n: [(20, n), (2 * n,)], want


def derivative_by_differences():
    """Over the differences of two axes, of what has zeros around it."""
    n = te.var("n")
    x, h, b, j = placeholder("x", 4, n), placeholder("h", 4, n), axis(4, "b"), axis(n, "j")

    def body(d):
        inside = te.all(d + j >= n, d + j < 2 * n)
        return te.sum(te.if_then_else(inside, h[b, d + j - n] * x[b, j], 0.0), axis=[b, j])

    def want(x, h):
        size = x.shape[1]
        found = np.zeros(2 * size, "float32")
        for i, j in np.ndindex(size, size):
            found[i - j + size] += h[:, i] @ x[:, j]
        return found

    return [x, h], te.compute((2 * n,), body, name="y"), lambda n: [(4, n)] * 2, want


CASES = {
    "rows of a matrix": rows_of_a_matrix,
    "float64": lambda: rows_of_a_matrix("float64"),
    "int64 size": lambda: rows_of_a_matrix(index="int64"),
    "scores": scores,
    "epilogue": with_epilogue,
    "squared distances": squared_distances,
    "window": window,
    "guarded window": guarded_window,
    "differences": lambda: of_differences(lambda i, j, n: i - j + n - 1),
    "negative differences": lambda: of_differences(lambda i, j, n: j - i + n - 1),
    "wrapped differences": lambda: of_differences(lambda i, j, n: (i - j + n) % n),
    "sums": lambda: of_differences(lambda i, j, n: i + j),
    "causal": lambda: of_differences(lambda i, j, n: (i - j) % (2 * n), lambda i, j: j <= i),
    "derivative by differences": derivative_by_differences,
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_vectors_run_along_the_size(name, threads):
    _, output, _, _ = CASES[name]()
    [kernel] = cut(normal_form([output]))[0]
    launches = contraction(kernel, avx512(threads))
    assert launches, launches.reason
    text = launches[-1].func.script()
    assert "piece" in text
    assert "column" in text


@pytest.mark.parametrize("name", CASES)
def test_every_size_has_all_columns(name):
    inputs, output, shapes, want = CASES[name]()
    function = ad.build(inputs, output, num_threads=2, cache=False)
    rng = np.random.default_rng(0)
    for size in SIZES:
        pairs = zip(shapes(size), inputs, strict=True)
        arrays = [rng.integers(-3, 4, s).astype(str(tensor.dtype)) for s, tensor in pairs]
        np.testing.assert_array_equal(function(*arrays), want(*arrays), err_msg=f"n = {size}")


INDICES = {
    "further on": lambda t, r, n: t + r,
    "at a distance": lambda t, r, n: t + 2 * r + 1,
    "backwards": lambda t, r, n: t + 4 - r,
    "every second": lambda t, r, n: 2 * t + r,
    "from the end": lambda t, r, n: n - 1 - t + r,
    "wrapped": lambda t, r, n: (t + r) % 3,
}


@pytest.mark.parametrize("name", INDICES)
def test_reads_at_other_places_than_the_panel(name):
    n, filters = te.var("n"), 24
    x, w, r = placeholder("x", 2 * n + 9), placeholder("w", filters, 5), axis(5, "r")
    body = lambda f, t: te.sum(x[INDICES[name](t, r, n)] * w[f, r], axis=r)  # noqa: E731
    function = ad.build([x, w], te.compute((filters, n), body, name="y"), num_threads=1)
    rng = np.random.default_rng(0)
    for size in (1, 7, 70):
        a, b = (rng.integers(-3, 4, s).astype("float32") for s in [(2 * size + 9,), (filters, 5)])
        t, k = np.arange(size), np.arange(5)
        want = np.einsum("tr,fr->ft", a[INDICES[name](t[:, None], k, size)], b)
        np.testing.assert_array_equal(function(a, b), want)


@pytest.mark.parametrize("steps", [1, 5, 16, 33, 100])
@pytest.mark.parametrize("turned", [False, True])
def test_windows_as_long_as_a_size(steps, turned):
    """``y[t] = Σ_{r<p} x[t + r]*w[r]``: a copy of a panel ends with the last window in it."""
    n, p = te.var("n"), te.var("p")
    x, w, r = placeholder("x", n + p), placeholder("w", p), axis(p, "r")
    weight = (lambda r: w[p - 1 - r]) if turned else (lambda r: w[r])
    y = te.compute((n + 1,), lambda t: te.sum(x[t + r] * weight(r), axis=r), name="y")
    like = placeholder("like", n)
    [kernel] = cut(normal_form([y]))[0]
    assert "column" in contraction(kernel, avx512(1))[-1].func.script()
    function = ad.build([x, w, like], y, cache=False)
    rng = np.random.default_rng(0)
    for size in SIZES:
        a, b = (rng.integers(-3, 4, s).astype("float32") for s in (size + steps, steps))
        want = np.convolve(a, b if turned else b[::-1], "valid")
        np.testing.assert_array_equal(function(a, b, np.zeros(size, "float32")), want)


#: name → a filter of 5x3 over an image of which both sizes are symbolic: indices, and the condition
FILTERS = {
    "valid": (lambda i, j, p, q: (i + p, j + q), None),
    "same": (
        lambda i, j, p, q: (i + p - 2, j + q - 1),
        lambda a, b, h, w: te.all(a >= 0, a < h, b >= 0, b < w),
    ),
    "its gradient": (
        lambda i, j, p, q: (i - p, j - q),
        lambda a, b, h, w: te.all(a >= 0, a < h, b >= 0, b < w),
    ),
    "strided": (lambda i, j, p, q: (2 * i + p, 2 * j + q), None),
    "turned": (lambda i, j, p, q: (j + q, i + p), None),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", FILTERS)
def test_rows_and_vectors_follow_two_sizes(name, channels):
    place, condition = FILTERS[name]
    h, w = te.var("h"), te.var("w")
    extra = 0 if condition else 5
    x = placeholder("x", channels, 2 * h + extra, 2 * w + extra)
    k = placeholder("k", 4, channels, 5, 3)
    c, p, q = axis(channels, "c"), axis(5, "p"), axis(3, "q")
    like = placeholder("like", h, w)

    def body(f, i, j):
        a, b = place(i, j, p, q)
        value = x[c, a, b] * k[f, c, p, q]
        if condition is not None:
            value = te.if_then_else(condition(a, b, 2 * h, 2 * w), value, 0.0)
        return te.sum(value, axis=[c, p, q])

    turned = name == "turned"
    y = te.compute((4, w, h) if turned else (4, h, w), body, name="y")
    [kernel] = cut(normal_form([y]))[0]
    assert "column" in contraction(kernel, avx512(1))[-1].func.script()
    function = ad.build([x, k, like], y, cache=False)
    rng = np.random.default_rng(0)
    for height, width in ((0, 3), (1, 1), (2, 40), (9, 17), (33, 5), (31, 70)):
        rows, columns = 2 * height + extra, 2 * width + extra
        a = rng.integers(-3, 4, (channels, rows, columns)).astype("float32")
        filters = rng.integers(-3, 4, (4, channels, 5, 3)).astype("float32")
        got = function(a, filters, np.zeros((height, width), "float32"))
        padded = np.pad(a, ((0, 0), (5, 5), (5, 5)))
        i, j = np.indices((width, height) if turned else (height, width))
        want = np.zeros_like(got)
        for one, two in np.ndindex(5, 3):
            values = padded[(slice(None), *(np.add(at, 5) for at in place(i, j, one, two)))]
            want += np.einsum("cij,fc->fij", values, filters[:, :, one, two])
        np.testing.assert_array_equal(got, want, err_msg=f"{height}x{width}")
