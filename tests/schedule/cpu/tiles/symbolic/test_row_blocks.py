"""Register tiles over an axis of symbolic extent: blocks of rows, and the rest of them.

Values are small whole numbers, so every order of summation gives the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.machines import avx512
from tests.schedule import cases
from tvm_autodiff.schedule.cost import LARGE_SIZE, SYMBOLIC_SIZE
from tvm_autodiff.schedule.cpu.contraction import contraction
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

SIZES = (0, 1, 2, 3, 5, 7, 8, 11, 12, 13, 23, 29, 64)


def whole(rng, *shape, dtype="float32"):
    return rng.integers(-3, 4, shape).astype(dtype)


def product(form, dtype="float32", index="int32"):
    """The case of a product, and what numpy computes."""
    n = te.var("n", index)
    case = cases.matmul(n, 64, 48, form, dtype)
    shapes = lambda n: [(n, 48), (64, 48) if form[1] == "t" else (48, 64)]  # noqa: E731
    return case, shapes, lambda a, b: a @ (b.T if form[1] == "t" else b)


def with_epilogue():
    n = te.var("n")
    [a, b], c = cases.matmul(n, 64, 48)
    bias, scale = te.placeholder((64,), name="bias"), te.placeholder((n, 64), name="scale")
    y = te.compute((n, 64), lambda i, j: te.max(c[i, j] + bias[j], 0.0) * scale[i, j], name="y")
    want = lambda a, b, bias, scale: np.maximum(a @ b + bias, 0) * scale  # noqa: E731
    return ([a, b, bias, scale], y), lambda n: [(n, 48), (48, 64), (64,), (n, 64)], want


def inside_a_batch():
    n = te.var("n")
    a, b, k = te.placeholder((3, n, 48), name="a"), te.placeholder((3, 48, 32), name="b"), axis()
    y = te.compute((3, n, 32), lambda g, i, j: te.sum(a[g, i, k] * b[g, k, j], axis=k), name="y")
    return ([a, b], y), lambda n: [(3, n, 48), (3, 48, 32)], lambda a, b: a @ b


def summed_over_the_size():
    n = te.var("n")
    a, b = te.placeholder((2, n, n), name="a"), te.placeholder((2, n, 32), name="b")
    k = te.reduce_axis((0, n), "k")
    y = te.compute((2, n, 32), lambda g, i, j: te.sum(a[g, i, k] * b[g, k, j], axis=k), name="y")
    return ([a, b], y), lambda n: [(2, n, n), (2, n, 32)], lambda a, b: a @ b


def squared_distances():
    n = te.var("n")
    a, b, k = te.placeholder((n, 48), name="a"), te.placeholder((48, 64), name="b"), axis()

    def body(i, j):
        return te.sum((a[i, k] - b[k, j]) * (a[i, k] - b[k, j]), axis=k)

    want = lambda a, b: ((a[:, :, None] - b[None]) ** 2).sum(1)  # noqa: E731
    return ([a, b], te.compute((n, 64), body, name="y")), lambda n: [(n, 48), (48, 64)], want


def rows_a_page_apart():
    n = te.var("n")
    case = cases.matmul(n, 32, 1024)
    return case, lambda n: [(n, 1024), (1024, 32)], lambda a, b: a @ b


def strided_convolution():
    """Neither rows nor vectors are one after the other in memory."""
    n = te.var("n")
    x, w = te.placeholder((2, 8, 2 * n + 3, 67), name="x"), te.placeholder((12, 8, 3, 3), name="w")
    c, u, v = axis(8), axis(3), axis(3)

    def body(b, f, i, j):
        return te.sum(x[b, c, 2 * i + u, 2 * j + v] * w[f, c, u, v], axis=[c, u, v])

    def want(x, w):
        rows = (x.shape[2] - 3) // 2
        found = np.zeros((2, 12, rows, 32), "float32")
        for u, v in np.ndindex(3, 3):
            part = x[:, :, u : u + 2 * rows : 2, v : v + 64 : 2]
            found += np.einsum("bcij,fc->bfij", part, w[:, :, u, v])
        return found

    y = te.compute((2, 12, n, 32), body, name="y")
    return ([x, w], y), lambda n: [(2, 8, 2 * n + 3, 67), (12, 8, 3, 3)], want


def axis(extent=48):
    return te.reduce_axis((0, extent), "k")


CASES = {
    "product": lambda: product("nn"),
    "transposed": lambda: product("nt"),
    "float64": lambda: product("nn", "float64"),
    "int64 size": lambda: product("nn", index="int64"),
    "epilogue": with_epilogue,
    "inside a batch": inside_a_batch,
    "summed over the size": summed_over_the_size,
    "squared distances": squared_distances,
    "rows a page apart": rows_a_page_apart,
    "strided convolution": strided_convolution,
}


def script(output, threads, size=SYMBOLIC_SIZE):
    """The last function of the contraction rule on a machine with vectors of 64 bytes."""
    [kernel] = cut(normal_form([output]))[0]
    launches = contraction(kernel, replace(avx512(threads), symbolic_size=size))
    assert launches, launches.reason
    return launches[-1].func.script()


#: those of which other loops are estimated to be as fast
OTHERWISE = ("transposed", "squared distances")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", [name for name in CASES if name not in OTHERWISE])
def test_rows_are_computed_in_blocks(name, threads):
    (_, output), _, _ = CASES[name]()
    text = script(output, threads)
    assert "block" in text
    assert "row1" in text  # the last row of an odd size


@pytest.mark.parametrize(("size", "outer"), [(SYMBOLIC_SIZE, "for j"), (LARGE_SIZE, "for block")])
def test_the_loop_through_more_memory_is_outside(size, outer):
    """Of 48 rows of 96 columns, and as many rows as a call may have."""
    n = te.var("n")
    _, output = cases.matmul(n, 96, 48)
    text = script(output, 1, size)
    assert min(text.index("for block"), text.index("for j")) == text.index(outer)


def test_rows_a_size_apart_are_not_in_one_tile():
    """Tiles of four batches would have the same estimate as those of four rows."""
    n = te.var("n")
    x, w, k = te.placeholder((24, n, 32), name="x"), te.placeholder((32, 48), name="w"), axis(32)
    body = lambda t, i, j: te.sum(x[t, i, k] * w[k, j], axis=k)  # noqa: E731
    assert "block" in script(te.compute((24, n, 48), body, name="y"), 1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_every_size_has_all_rows(name, threads):
    (inputs, output), shapes, want = CASES[name]()
    function = ad.build(inputs, output, num_threads=threads, cache=False)
    rng = np.random.default_rng(0)
    for size in SIZES:
        dtypes = [str(tensor.dtype) for tensor in inputs]
        pairs = zip(shapes(size), dtypes, strict=True)
        arrays = [whole(rng, *shape, dtype=dtype) for shape, dtype in pairs]
        np.testing.assert_array_equal(function(*arrays), want(*arrays), err_msg=f"n = {size}")


def test_the_gradient_of_a_layer():
    n = te.var("n")
    x, w = te.placeholder((n, 40), name="x"), te.placeholder((40, 48), name="w")
    half = te.const(0.5, "float32")  # no sum of whole numbers is where relu has no derivative
    y = topi.nn.relu(topi.matmul(x, w) + half)
    head = te.placeholder((n, 48), name="head")
    outputs = [y, *ad.differentiate(y, [x, w], head)]
    function = ad.build([x, w, head], outputs, cache=False)
    assert function.notice is None
    rng = np.random.default_rng(1)
    for size in SIZES:
        a, b, h = whole(rng, size, 40), whole(rng, 40, 48), whole(rng, size, 48)
        layer = a @ b + 0.5
        masked = h * (layer > 0)
        for got, want in zip(
            function(a, b, h), [np.maximum(layer, 0), masked @ b.T, a.T @ masked], strict=True
        ):
            np.testing.assert_array_equal(got, want)


#: what is summed, and the same by numpy
OTHERWISE_READ = {
    "as a value": (lambda x, i, k, n: x[i, k] * i.astype("float32"), lambda i, n: (i, i)),
    "from the end": (lambda x, i, k, n: x[n - 1 - i, k], lambda i, n: (n - 1 - i, 1)),
    "wrapped": (lambda x, i, k, n: x[tirx.floormod(i, 3), k], lambda i, n: (i % 3, 1)),
    "one further on": (lambda x, i, k, n: x[i + 1, k], lambda i, n: (i + 1, 1)),
}


@pytest.mark.parametrize("name", OTHERWISE_READ)
def test_places_of_rows_that_are_used_otherwise(name):
    read, places = OTHERWISE_READ[name]
    n = te.var("n")
    x, b, k = te.placeholder((n + 3, 48), name="x"), te.placeholder((48, 64), name="b"), axis()
    body = lambda i, j: te.sum(read(x, i, k, n) * b[k, j], axis=k)  # noqa: E731
    function = ad.build([x, b], te.compute((n, 64), body, name="y"), num_threads=1)
    rng = np.random.default_rng(3)
    for size in (1, 6, 29):
        rows, factors = places(np.arange(size), size)
        a, c = whole(rng, size + 3, 48), whole(rng, 48, 64)
        want = (a[rows] @ c) * np.reshape(factors, (-1, 1))
        np.testing.assert_array_equal(function(a, c), want)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 5, 16, 33])
def test_operands_over_a_symbolic_axis_are_packed(size):
    """A convolution reads its padded input by panels, and so do its gradients."""
    n = te.var("n")
    x, w = te.placeholder((n, 8, 9, 9), name="x"), te.placeholder((16, 8, 3, 3), name="w")
    y = topi.nn.conv2d_nchw(x, w, 1, 1, 1)
    head = te.placeholder((n, 16, 9, 9), name="head")
    gradients = ad.differentiate(y, [x, w], head)
    function = ad.build([x, w, head], [y, *gradients], num_threads=2)
    assert {launch.rule for launch in function._manifest.launches} <= {"windows", "contraction"}
    rng = np.random.default_rng(2)
    a, b, h = whole(rng, size, 8, 9, 9), whole(rng, 16, 8, 3, 3), whole(rng, size, 16, 9, 9)
    padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want, da, db = np.zeros_like(h), np.zeros_like(padded), np.zeros_like(b)
    for p in range(3):
        for q in range(3):
            part = padded[:, :, p : p + 9, q : q + 9]
            want += np.einsum("nchw,oc->nohw", part, b[:, :, p, q])
            da[:, :, p : p + 9, q : q + 9] += np.einsum("nohw,oc->nchw", h, b[:, :, p, q])
            db[:, :, p, q] = np.einsum("nohw,nchw->oc", h, part)
    for have, should in zip(function(a, b, h), [want, da[:, :, 1:-1, 1:-1], db], strict=True):
        np.testing.assert_array_equal(have, should)
