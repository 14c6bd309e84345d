"""Sizes that are symbols: of inputs, of what lies between, in expressions, zero among them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.schedule.guard_pages import at_a_guard, shape_of
from tvm_autodiff.errors import CallError, LoweringError

M = 5  #: what the second symbol is at each call

#: extent of an intermediate over n and m, and the values of n that it is called with
EXTENTS = {
    "n-1": (lambda n, m: n - 1, (1, 2, 7)),
    "n+1": (lambda n, m: n + 1, (0, 1, 7)),
    "n//2": (lambda n, m: n // 2, (0, 1, 7)),
    "4*n": (lambda n, m: 4 * n, (0, 1, 7)),
    "n+m": (lambda n, m: n + m, (0, 1, 7)),
    "n*m": (lambda n, m: n * m, (0, 1, 7)),
    "m": (lambda n, m: m, (0, 1, 7)),
    "max": (lambda n, m: te.max(n, m) if hasattr(n, "ty") else max(n, m), (0, 7)),
    "2*n+m-1": (lambda n, m: 2 * n + m - 1, (0, 3)),
}


def program(extent, dtypes):
    """``s[k] = exp(x[k]) or k,  y[i] = Σ_k s[k]*x[i]`` with s of some extent."""
    n, m = te.var("n", dtypes[0]), te.var("m", dtypes[1])
    x, b = te.placeholder((n,), name="x"), te.placeholder((m,), name="b")
    size = extent(n, m)
    k = te.reduce_axis((0, size), "k")
    s = te.compute(
        (size,),
        lambda i: te.if_then_else(i < n, te.exp(x[i]), i.astype("float32")),
        name="s",
    )
    y = te.compute((n,), lambda i: te.sum(s[k] * x[i], axis=k), name="y")
    return x, b, y, te.compute((m,), lambda i: b[i] * 2.0, name="z")


def numpy_program(size, x):
    places = np.arange(size)
    padded = np.concatenate([np.exp(x), np.zeros(max(0, size - len(x)))])[:size]
    s = np.where(places < len(x), padded, places)
    return s.sum() * x


#: dtypes of n and m: all extents with one pair, and with one of the others in turns
NARROW, *OTHERS = ("int32", "int32"), ("int64", "int64"), ("int32", "int64")
SIZED = [
    (name, dtypes)
    for number, name in enumerate(EXTENTS)
    for dtypes in (NARROW, OTHERS[number % len(OTHERS)])
]


@pytest.mark.parametrize(("name", "dtypes"), SIZED, ids=str)
def test_intermediate_of_another_extent(name, dtypes):
    extent, values = EXTENTS[name]
    x, b, y, z = program(extent, dtypes)
    run = ad.build([x, b], [y, z], cache=False)
    for n in values:
        array = np.linspace(0.1, 0.9, n).astype("float32")
        got, doubled = run(array, np.ones(M, "float32"))
        np.testing.assert_allclose(got, numpy_program(extent(n, M), array), rtol=1e-5)
        np.testing.assert_array_equal(doubled, np.full(M, 2))


@pytest.mark.parametrize("name", ["n+1", "n+m", "4*n"])
def test_gradient(name):
    extent, values = EXTENTS[name]
    x, b, y, _ = program(extent, ("int32", "int32"))
    head = te.placeholder(y.shape, name="head")
    [dx] = ad.differentiate(y, [x], head)
    run = ad.build([x, b, head], [dx], cache=False)
    for n in values:
        array = np.linspace(0.1, 0.9, n).astype("float64")
        weights = np.linspace(1.0, 2.0, n)
        [got] = run(array.astype("float32"), np.ones(M, "float32"), weights.astype("float32"))
        eps = 1e-6
        for place in range(n):
            step = np.eye(n)[place] * eps
            ahead, behind = (numpy_program(extent(n, M), array + s) for s in (step, -step))
            want = ((ahead - behind) / (2 * eps)) @ weights
            np.testing.assert_allclose(got[place], want, rtol=1e-3)


def test_several_kernels_of_a_chain():
    n, m = te.var("n"), te.var("m")
    x, b = te.placeholder((n, 40), name="x"), te.placeholder((m,), name="b")
    y = topi.nn.softmax(topi.nn.pad(x, (0, 0), (m, 0)))
    z = te.compute((m,), lambda i: b[i] + y[i, 0], name="z")
    run = ad.build([x, b], [y, z], cache=False)
    for rows, count in ((3, 2), (0, 4), (2, 3)):
        array = np.random.default_rng(0).random((rows, 40)).astype("float32")
        whole = np.exp(np.concatenate([array, np.zeros((count, 40))]))
        want = whole / whole.sum(1, keepdims=True)
        got, first = run(array, np.ones(count, "float32"))
        np.testing.assert_allclose(got, want, rtol=1e-5)
        np.testing.assert_allclose(first, 1 + want[:count, 0], rtol=1e-5)


#: a dimension over p that is the only one to tell p
TOLD = {
    "p+3": (lambda p: p + 3, (0, 1, 5)),
    "2*p": (lambda p: 2 * p, (0, 1, 5)),
    "3*p+1": (lambda p: 3 * p + 1, (0, 1, 4)),
    "7-p": (lambda p: 7 - p, (0, 2, 7)),
}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", TOLD)
def test_size_that_an_expression_tells(name, dtype):
    dim, values = TOLD[name]
    p = te.var("p", dtype)
    x = te.placeholder((dim(p),), name="x")
    k = te.reduce_axis((0, dim(p)), "k")
    total = te.compute((1,), lambda i: te.sum(x[k], axis=k), name="total")
    y = te.compute((p,), lambda i: total[0] + i.astype("float32") * p.astype("float32"), name="y")
    run = ad.build([x], [total, y], cache=False)
    for size in values:
        array = np.arange(dim(size), dtype="float32")
        whole, got = run(array)
        np.testing.assert_allclose(whole, [array.sum()])
        np.testing.assert_allclose(got, array.sum() + np.arange(size) * size)


def test_size_that_does_not_solve():
    p = te.var("p")
    x = te.placeholder((2 * p,), name="x")
    run = ad.build([x], [te.compute((p,), lambda i: x[2 * i], name="y")], cache=False)
    with pytest.raises(CallError, match=r"2 \* p"):
        run(np.ones(7, "float32"))
    square = te.placeholder((p * p,), name="square")
    with pytest.raises(LoweringError, match="square uses the variable p"):
        ad.build([square], [te.compute((p * p,), lambda i: square[i] * 2.0)], cache=False)


@pytest.mark.parametrize("form", ["output", "temporary"])
def test_negative_size(form):
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    s = te.compute((n - 2,), lambda i: te.exp(x[i] + x[i + 2]), name="s")
    k = te.reduce_axis((0, n - 2), "k")
    y = te.compute((n,), lambda i: te.max(s[k] * x[i] * tirx.const(2.0, "float32"), axis=k))
    run = ad.build([x], [s if form == "output" else y], cache=False)
    with pytest.raises(CallError, match=r"n - 2.* = -\d+ .*for n = 1"):
        run(np.ones(1, "float32"))
    assert run(np.ones(2, "float32"))[0].shape == ((0,) if form == "output" else (2,))


@pytest.mark.parametrize("less", [1, 2, 3, 5])
def test_sums_of_a_negative_number_of_terms(less):
    """Results one by one are several sums, whose rest is a remainder of the number of terms."""
    n = te.var("n")
    x, k = te.placeholder((n + 3, 2), "float64", name="x"), te.reduce_axis((0, n - less), "k")
    y = te.compute((), lambda: te.sum(x[k + 3, 1] * 2.0, axis=k), name="y")
    run = ad.build([x], y, cache=False)
    for size in (0, 1, 2, 4, 7, 30):
        given = np.random.default_rng(size).standard_normal((size + 3, 2))
        terms = given[3 : 3 + max(size - less, 0), 1]
        np.testing.assert_allclose(run(given), (terms * 2.0).sum(), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_temporaries_of_two_sizes_have_those_of_the_call():
    """The kernels for calls with n of 1 would have ``2 - m`` elements."""
    n, m = te.var("n"), te.var("m")
    x, w = te.placeholder((n,), name="x"), te.placeholder((m,), name="w")
    k, i = te.reduce_axis((0, m), "k"), te.reduce_axis((0, n - m + 1), "i")
    y = te.compute((n - m + 1,), lambda i: te.sum(x[i + k] * w[k], axis=k), name="y")
    total = te.compute((), lambda: te.sum(y[i] * y[i], axis=i), name="total")
    run = ad.build([x, w], [total, *ad.differentiate(total, [x, w])], cache=False)
    rng = np.random.default_rng(0)
    for size, taps in ((10, 3), (100, 1), (70, 70), (3, 4), (1, 1), (1, 2)):
        values, weights = (rng.standard_normal(one).astype("float32") for one in (size, taps))
        windows = [values[at : at + taps] for at in range(size - taps + 1)]
        rows = np.reshape(windows, (len(windows), taps))
        sums = rows @ weights
        got, dx, dw = run(values, weights)
        wanted = np.convolve(2 * sums, weights) if len(windows) else np.zeros(size)
        np.testing.assert_allclose(got, sums @ sums, rtol=1e-5)
        np.testing.assert_allclose(dx, wanted, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(dw, rows.T @ (2 * sums), rtol=1e-4, atol=1e-4)
    with pytest.raises(CallError, match=r"= -8 bytes for n = 10, m = 13"):
        run(np.ones(10, "float32"), np.ones(13, "float32"))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", EXTENTS)
def test_scatter_of_intermediates(name, dtype):
    """A loop nest that is written directly, over sizes that no dimension of its arguments is."""
    extent, values = EXTENTS[name]
    n, m = te.var("n", dtype), te.var("m", dtype)
    x, places = te.placeholder((n,), name="x"), te.placeholder((m,), "int32", name="places")
    size = extent(n, m)
    where = te.compute((size,), lambda i: places[i % m] + (i % 2).astype("int32"), name="where")
    added = te.compute(
        (size,), lambda i: te.if_then_else(i < n, x[i], i.astype("float32")), name="added"
    )
    total = ad.scatter_add(added, where, (size + 2,))
    k = te.reduce_axis((0, size + 2), "k")
    first = te.compute((m,), lambda i: te.sum(total[k] * (k + i), axis=k), name="first")
    run = ad.build([x, places], first, cache=False)
    assert run.notice is None
    for value in values:
        array, at = np.arange(1, value + 1, dtype="float32"), np.array([3, 0, 1, 9, 3], "int32")
        count = extent(value, M)
        wanted, i = np.zeros(count + 2), np.arange(count)
        update = np.concatenate([array, np.arange(value, max(value, count))])[:count]
        place = at[i % M] + i % 2
        np.add.at(wanted, place[place < count + 2], update[place < count + 2])
        weights = np.arange(count + 2) + np.arange(M)[:, None]
        np.testing.assert_allclose(run(array, at), weights @ wanted, rtol=1e-5)


def test_statements_over_a_size_of_no_argument():
    """A body that is too large for TVM, in a stage whose arguments tell only a multiple of n."""
    n = te.var("n")
    x = te.placeholder((n,), "float64", name="x")
    y = te.compute((2 * n + 41,), lambda i: x[i % n] * 2.0, name="y")

    def body(i):
        index = i
        for t in range(9):
            index = tirx.Select(index < n + t, index + 1, index - 1)
        return y[te.max(te.min(index, 40), 0)]

    z = te.compute((2 * n + 1,), body, name="z")
    k = te.reduce_axis((0, 2 * n + 1), "k")
    total = te.compute((), lambda: te.sum(z[k] * y[k], axis=k), name="total")
    run = ad.build([x], total, cache=False)
    for size in (1, 3, 20):
        array = np.linspace(1.0, 2.0, size)
        i = np.arange(2 * size + 41)
        copied, index = array[i % size] * 2, i[: 2 * size + 1]
        for t in range(9):
            index = np.where(index < size + t, index + 1, index - 1)
        wanted = copied[np.clip(index, 0, 40)] @ copied[: 2 * size + 1]
        np.testing.assert_allclose(run(array), wanted, rtol=1e-12)


#: reducers with what they give for no element
REDUCERS = {"sum": (te.sum, np.sum, 0.0), "max": (te.max, np.max, np.finfo("float64").min)}


@pytest.mark.parametrize("less", [1, 2, 3, 40])
@pytest.mark.parametrize("shape", [(), (4,), (4, 3)], ids=str)
@pytest.mark.parametrize("reducer", REDUCERS)
def test_a_range_of_negative_length_is_empty(reducer, shape, less):
    """``y = ⊕_{k < n - less} x[k]`` for n up to beyond a round of vectors."""
    of, in_numpy, identity = REDUCERS[reducer]
    n = te.var("n")
    x, k = te.placeholder((n,), "float64", name="x"), te.reduce_axis((0, n - less), "k")
    scale = te.placeholder((4,), "float64", name="scale")
    y = te.compute(shape, lambda *at: of(x[k] * scale[at[0] if at else 1], axis=k), name="y")
    run = ad.build([x, scale], y, cache=False)
    for size in (0, 1, 2, 5, 39, 75):
        array, factors = np.linspace(-1, 2, size), np.array([1.0, -2.0, 3.0, 0.5])
        rows = array[: max(size - less, 0)] * factors[:, None]
        want = in_numpy(rows, axis=1) if rows.size else np.full(4, identity)
        want = want.reshape(4, *[1] * (len(shape) - 1)) if shape else want[1]
        got = run(array, factors)
        np.testing.assert_allclose(got, np.broadcast_to(want, shape), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 4, 200])
def test_extents_that_are_converted_are_shared_between_threads(size):
    """``n + n`` in int64 is a conversion of a sum, which is no number."""
    n, h = te.var("n"), te.var("h")
    x, k = te.placeholder((n, h), name="x"), te.reduce_axis((0, h), "k")
    c, m = te.placeholder((3,), name="c"), te.reduce_axis((0, 5), "m")

    def body(i):
        read = te.if_then_else(i < n, x[i, k] * c[(i + m) % 3], c[m % 3])
        return te.max(read, axis=[m, k])

    y = te.compute((n + n,), body, name="y")
    array = np.random.default_rng(0).standard_normal((size, 7)).astype("float32")
    scale = np.array([0.5, -1.0, 2.0], "float32")
    got = ad.build([x, c], y, num_threads=2, cache=False)(array, scale)
    low = np.array([max((row * s).max() for s in scale) for row in array], "float32")
    np.testing.assert_allclose(got, np.concatenate([low, np.full(size, 2.0)]), rtol=1e-6)


def test_operands_at_a_size_of_int64_and_a_literal_axis_are_packed():
    """A window's weights: the literal axis is int32, the sum of both int64."""
    n = te.var("n", "int64")
    x, h = te.placeholder((n,), "float64", name="x"), te.placeholder((n - 89,), "float64", name="h")
    i = te.reduce_axis((0, n - 89), "i")
    y = te.compute((90,), lambda k: te.sum(h[i] * te.tanh(x[i + k]), axis=i), name="y")
    run = ad.build([x, h], y, cache=False)
    for size in (89, 90, 107, 300):
        array, weights = np.linspace(-1, 2, size), np.linspace(2, 1, size - 89)
        want = [weights @ np.tanh(array[k : k + size - 89]) for k in range(90)]
        np.testing.assert_allclose(run(array, weights), want, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 7, 64, 301])
def test_borders_that_are_mirrored(size):
    """The sum for the far border has ``4 - n`` elements at most: none where n is large, and the
    operands that are copied for it have none, too.
    """
    n, taps = te.var("n"), 5
    x, w = te.placeholder((3, n), name="x"), te.placeholder((taps,), name="w")

    def mirrored(t):
        t = te.if_then_else(t < 0, -t, t)
        return te.if_then_else(t >= n, 2 * (n - 1) - t, t)

    k = te.reduce_axis((0, taps), "k")
    y = te.compute((3, n), lambda r, t: te.sum(w[k] * x[r, mirrored(t + k - 2)], axis=k), "y")
    head = te.placeholder((3, n), name="head")
    [dx] = ad.differentiate(y, [x], head)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(taps).astype("float32")
    heads = rng.standard_normal((3, size)).astype("float32")
    places = np.abs(np.arange(size)[:, None] + np.arange(taps) - 2)
    places = np.where(places >= size, 2 * (size - 1) - places, places)
    want = np.zeros((3, size), "float32")
    np.add.at(want, (slice(None), places), heads[:, :, None] * weights)
    got = ad.build([x, w, head], dx, cache=False)(np.zeros_like(want), weights, heads)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def zero_beyond(x, i, n):
    return tirx.if_then_else(tirx.all(i >= 0, i < n), x[i], 0.0)


def clamped(x, i, n):
    return x[te.max(te.min(i, n - 1), 0)]


def reflected(x, i, n):
    return x[te.max(te.min(te.max(i, -i), 2 * n - 2 - te.max(i, -i)), 0)]


def stencil(border, dtype="int32"):
    n = te.var("n", dtype)
    x, head = te.placeholder((n,), name="x"), te.placeholder((n,), name="head")
    read = lambda i: border(x, i, n)  # noqa: E731
    y = te.compute((n,), lambda i: read(i - 2) * read(i + 1) + te.exp(x[i]), name="y")
    return [x, head], y, head


def window(padding):
    n = te.var("n")
    x, w = te.placeholder((3, n), name="x"), te.placeholder((3, 5), name="w")
    head, k = te.placeholder((3, n + 2 * padding - 4), name="head"), te.reduce_axis((0, 5), "k")
    at = lambda c, i: tirx.if_then_else(tirx.all(i >= 0, i < n), x[c, i], 0.0)  # noqa: E731
    y = te.compute(
        head.shape, lambda c, t: te.sum(at(c, t + k - padding) * w[c, k], axis=k), name="y"
    )
    return [x, w, head], y, head


BORDERS = {
    "zero beyond": stencil(zero_beyond),
    "clamped": stencil(clamped),
    "reflected": stencil(reflected),
    "64-bit sizes": stencil(clamped, "int64"),
    "a window without padding": window(0),
    "a padded window": window(2),
    "a widely padded window": window(6),
}


@pytest.mark.parametrize("name", BORDERS)
def test_borders(name):
    """Sizes below the borders, between them and a vector, and beyond; at guard pages."""
    inputs, y, head = BORDERS[name]
    outputs = [y, *ad.differentiate(y, inputs[:-1], head)]
    run = ad.build(inputs, outputs, cache=False)
    size, rng = inputs[0].shape[-1], np.random.default_rng(0)
    for n in (4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 19, 20, 24, 25, 100):
        arrays = [
            rng.normal(size=shape_of(tensor, {size: n})).astype("float32") for tensor in inputs
        ]
        wanted = evaluate_graph(outputs, list(zip(inputs, arrays, strict=True)), {size: n})
        for end in ("end", "begin"):
            out = [
                at_a_guard(np.full(shape_of(tensor, {size: n}), 77, "float32"), end)
                for tensor in outputs
            ]
            found = run(*(at_a_guard(array, end) for array in arrays), out=out)
            for got, want in zip(found, wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32"])
def test_rows_of_a_symbolic_number_by_narrow_data(dtype):
    """Sums and products of looked up rows: their places are compared with a size of int32."""
    n, m = te.var("n"), te.var("m")
    x, at = te.placeholder((n, 16), name="x"), te.placeholder((m,), dtype, name="at")
    w, k = te.placeholder((16, 8), name="w"), te.reduce_axis((0, 16), "k")
    inside = lambda i: at[i].astype("int64") < n.astype("int64")  # noqa: E731
    row = lambda i, k: te.if_then_else(inside(i), x[at[i], k], 0.0)  # noqa: E731
    sums = te.compute((m,), lambda i: te.sum(row(i, k), axis=k), name="sums")
    product = te.compute((m, 8), lambda i, j: te.sum(x[at[i], k] * w[k, j], axis=k), name="product")
    run = ad.build([x, at, w], [sums, product], cache=False)
    rng = np.random.default_rng(0)
    table, weights = (rng.integers(-3, 4, shape).astype("float32") for shape in ((9, 16), (16, 8)))
    for count in (0, 1, 20):
        places = rng.integers(0, 9, count).astype(dtype)
        got = run(table, places, weights)
        np.testing.assert_array_equal(got[0], table[places].sum(axis=1))
        np.testing.assert_array_equal(got[1], table[places] @ weights)
