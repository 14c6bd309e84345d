"""Windows and residue classes: the loops written out give what numpy gives."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import te, tirx, topi

from tests.schedule import cases
from tests.schedule.test_rules import arrays_for, check, rules_of
from tvm_autodiff import build, differentiate, lower
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.schedule.cpu.windows import windows
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.machine import Machine, as_target
from tvm_autodiff.schedule.rewrites.normal_form import normal_form


def pool(n, c, h, w, window, stride, edge, kind="max"):
    X = cases.placeholder("X", n, c, h, w)
    return [X], topi.nn.pool2d(X, window, stride, [1, 1], edge * 2, kind, count_include_pad=False)


def gradient(case):
    inputs, output = case
    head = cases.placeholder("head", *output.shape)
    [result] = differentiate(output, inputs, head)
    return [tensor for tensor in (*inputs, head) if reads(result, tensor)], result


def reads(result, tensor):
    return any(hash(op) == hash(tensor.op) for op in topological([result]))


def pool_gradient(*arguments):
    return gradient(pool(*arguments))


def upsampled(n, m, factor):
    A = cases.placeholder("A", n, m)
    return [A], te.compute(
        (n * factor, m * factor - 1), lambda i, j: A[i // factor, j // factor] * 2.0, name="U"
    )


def interleaved(n, m):
    A, B = cases.placeholder("A", n, (m + 1) // 2), cases.placeholder("B", n, m // 2 + 1)
    return [A, B], te.compute(
        (n, m),
        lambda i, j: te.if_then_else(j % 2 == 0, A[i, j // 2], B[i, j // 2] - A[i, j // 2]),
        name="I",
    )


def shuffled(n):
    """Two moduli on one axis, and a remainder as a value."""
    A = cases.placeholder("A", n)
    return [A], te.compute(
        (n,), lambda i: A[i // 2 + i // 3 % 2] + (i % 3).astype("float32"), name="S"
    )


def winner(n, m, window):
    X = cases.placeholder("X", n, m * window)
    k = cases.axis(window)

    def better(x, y):
        first = tirx.any(x[1] > y[1], tirx.all(x[1] == y[1], x[0] <= y[0]))
        return tirx.Select(first, x[0], y[0]), tirx.Select(first, x[1], y[1])

    argmax = te.comm_reducer(
        better, lambda t0, t1: (tirx.const(-1, t0), te.min_value(t1)), name="argmax"
    )
    place, _ = te.compute(
        (n, m), lambda i, j: argmax((k.var, X[i, j * window + k.var]), axis=k), name="W"
    )
    return [X], place


def window_sums(n, m, dtype="float32"):
    X = cases.placeholder("X", n, m + 2, dtype=dtype)
    k = cases.axis(3)
    return [X], te.compute((n, m), lambda i, j: te.sum(X[i, j + k], axis=k), name="W")


def column_sums(n, m):
    X = cases.placeholder("X", n + 2, m)
    k = cases.axis(3)
    return [X], te.compute((n, m), lambda i, j: te.sum(X[i + k, j], axis=k), name="W")


def window_epilogue(n, m):
    [X], W = window_sums(n, m)
    return [X], te.compute((n, m), lambda i, j: W[i, j] * W[i, j] - X[i, j], name="E")


def depthwise(n, c, h, stride=1, dilation=1):
    X, F = cases.placeholder("X", n, c, h, h), cases.placeholder("F", c, 1, 3, 3)
    return [X, F], topi.nn.depthwise_conv2d_nchw(X, F, stride, dilation, dilation)


def clamped(n, m, reach):
    """A flux between neighbours, of the next element inside at the borders."""
    X = cases.placeholder("X", n, m)

    def at(i, j):
        return X[te.min(te.max(i, 0), n - 1), te.min(te.max(j, 0), m - 1)]

    def flux(i, j):
        near = at(i, j - reach) + at(i, j + reach) + at(i - reach, j) + at(i + reach, j)
        return (near - X[i, j] * 4.0) * X[i, j]

    return [X], te.compute((n, m), flux, name="F")


def resampled(n, up=3, down=2, taps=4):
    """Every `down`-th of `up` times as many samples, between which a filter interpolates."""
    x, h = cases.placeholder("x", n), cases.placeholder("h", up * taps)
    k = te.reduce_axis((0, taps), name="k")
    count = ((n - taps) * up) // down

    def body(m):
        return te.sum(h[down * m % up + up * k] * x[down * m // up + taps - 1 - k], axis=k)

    return [x, h], te.compute((count,), body, name="y")


def wavelet(n, m):
    """Sums and differences of pairs, wrapped around, in the two halves of a row."""
    X, H = cases.placeholder("X", n, m), cases.placeholder("H", 4)
    k = cases.axis(4)

    def body(i, j):
        tap = te.if_then_else(j < m // 2, H[k], H[3 - k.var])
        return te.sum(X[i, (j % (m // 2) * 2 + k.var) % m] * tap, axis=k)

    return [X, H], te.compute((n, m), body, name="W")


def wavelet_gradient(n, m):
    """With respect to the signal alone."""
    [X, H], W = wavelet(n, m)
    head = cases.placeholder("head", n, m)
    [dX] = differentiate(W, [X], head)
    return [H, head], dX


def advected(n, m):
    """The velocity by which two components move are these: of its gradient, a part chooses."""
    U = cases.placeholder("U", 2, n, m)

    def body(d, i, j):
        down = U[d, te.min(i + 1, n - 1), j] - U[d, te.max(i - 1, 0), j]
        right = U[d, i, (j + 1) % m] - U[d, i, (j + m - 1) % m]
        return U[d, i, j] - 0.125 * (U[0, i, j] * down + U[1, i, j] * right)

    return gradient(([U], te.compute((2, n, m), body, name="u")))


CASES = {
    "advected by itself": advected(9, 37),
    "resampled by 3/2": resampled(70),
    "resampled by 2/3": resampled(70, 2, 3),
    "resampled by 5/4": resampled(61, 5, 4),
    **{f"wavelet of {m}": wavelet(5, m) for m in (8, 128)},
    "gradient of a wavelet": wavelet_gradient(3, 128),
    **{f"clamped {n}x{m} by {r}": clamped(n, m, r) for n, m, r in ((1, 3, 1), (9, 50, 3))},
    "gradient of a clamped flux": gradient(clamped(11, 40, 1)),
    **{
        f"pool {kind} of {h}x{w}, {k} by {s}, edge {p}": pool(
            2, 3, h, w, [k, k], [s, s], [p, p], kind
        )
        for kind in ("max", "avg")
        for h, w, k, s, p in (
            (12, 12, 2, 2, 0),
            (13, 17, 3, 2, 1),
            (7, 50, 3, 1, 1),
            (5, 5, 2, 3, 0),
        )
    },
    **{
        f"gradient of pool {kind} of {h}x{w}, {k} by {s}, edge {p}": pool_gradient(
            2, 3, h, w, [k, k], [s, s], [p, p], kind
        )
        for kind in ("max", "avg")
        for h, w, k, s, p in (
            (12, 12, 2, 2, 0),
            (13, 17, 3, 2, 1),
            (16, 56, 3, 2, 1),
            (7, 50, 3, 1, 1),
            (11, 13, 2, 3, 0),
            (1, 1, 3, 2, 1),
            (2, 3, 2, 2, 0),
        )
    },
    "pool of a large image": pool(1, 1, 301, 407, [3, 3], [2, 2], [1, 1]),
    "gradient of pool of many images": pool_gradient(9, 8, 14, 14, [3, 3], [2, 2], [1, 1]),
    "oblong windows": pool_gradient(2, 2, 12, 15, [2, 3], [3, 2], [0, 1]),
    **{f"upsampled by {f}": upsampled(7, 13, f) for f in (2, 3, 4)},
    **{f"interleaved {m}": interleaved(5, m) for m in (1, 2, 3, 16, 31, 64, 257)},
    **{f"shuffled {n}": shuffled(n) for n in (1, 5, 6, 7, 37, 600)},
    **{f"winner of {k}": winner(5, m, k) for k, m in ((1, 7), (2, 31), (3, 16), (4, 1))},
    **{f"sums of {n}x{m}": window_sums(n, m) for n, m in ((1, 1), (3, 17), (130, 257))},
    "sums of columns": column_sums(13, 37),
    "sums of int32": window_sums(3, 19, "int32"),
    "sums of float64": window_sums(3, 19, "float64"),
    "sums with an epilogue": window_epilogue(13, 29),
    "depthwise": depthwise(2, 5, 13),
    "depthwise, stride 2": depthwise(2, 5, 13, stride=2),
    "depthwise, dilation 2": depthwise(2, 5, 13, dilation=2),
}


@pytest.mark.parametrize("name", CASES)
def test_windows(name):
    check(CASES[name], tolerance=1e-6 if "avg" in name else 0.0)


@pytest.mark.parametrize(("columns", "lanes"), [(2, 1), (3, 1), (4, 4), (7, 4), (12, 8), (28, 16)])
def test_short_rows_are_vectors(columns, lanes):
    """A row that is shorter than a vector register is written in runs of what it has."""
    inputs, output = pool(2, 3, 6, 2 * columns, [2, 2], [2, 2], [0, 0])
    machine = Machine(as_target(None), 64)
    [kernel] = separate(normal_form([output]))[0]
    [launch] = windows(kernel, machine)
    text = str(launch.func)
    assert [n for n in (4, 8, 16) if f"T.vectorized({n})" in text] == [lanes][lanes == 1 :]
    check((inputs, output))


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize(
    "case",
    [lambda n: window_sums(n, 21), lambda n: column_sums(21, n), lambda n: interleaved(n, 9)],
    ids=["sums", "sums along n", "interleaved"],
)
def test_symbolic(case, n):
    inputs, output = case(te.var("n"))
    fixed_inputs, fixed = case(n)
    arrays = arrays_for(fixed_inputs, {})
    want = build(fixed_inputs, fixed)(*arrays)
    np.testing.assert_array_equal(build(inputs, output)(*arrays), want)


RULES = [
    (pool(2, 3, 12, 12, [2, 2], [2, 2], [0, 0]), ["windows"]),
    (gradient(pool(2, 3, 12, 12, [2, 2], [2, 2], [0, 0], "avg")), ["windows"]),
    (pool_gradient(2, 3, 12, 12, [2, 2], [2, 2], [0, 0]), ["windows", "windows"]),
    (interleaved(5, 31), ["windows"]),
    (winner(5, 31, 3), ["windows"]),
    (window_sums(3, 17), ["windows"]),
    (clamped(30, 40, 1), ["windows"]),
    (resampled(300), ["windows"]),
    (resampled(300, 2, 3), ["windows"]),
    (advected(9, 37), ["windows"]),
    (wavelet(5, 128), ["windows"]),
    (wavelet_gradient(3, 128), ["windows"]),
    (cases.rows(70, 300), ["rows"]),
    (cases.matmul(64, 64, 4), ["contraction"]),
    (cases.reshaped(6, 35), ["elementwise"]),
]


@pytest.mark.parametrize(("case", "rules"), RULES)
def test_which_rule_applies(case, rules):
    assert rules_of(case[1]) == rules


def test_single_rows_wake_no_threads():
    """Neither loop of the first row, a border, is for threads; inner rows share one loop."""
    _, output = clamped(300, 400, 1)
    machine = Machine(as_target(None), 64, threads=2)
    [kernel] = separate(normal_form([output]))[0]
    [launch] = windows(kernel, machine)
    shared = re.findall(r"for i_?\d* in T.parallel\((\d+), (\d+)\)", str(launch.func))
    assert shared == [("1", "298"), ("298", "300")]
    assert str(launch.func).count("T.parallel") == len(shared)


@pytest.mark.parametrize("n", [0, 1, 40])
def test_sizes_that_are_no_dimension(n):
    size = te.var("n")
    x, k = te.placeholder((2 * size + 3,), name="x"), cases.axis(3)
    y = te.compute((2 * size + 1,), lambda i: te.max(x[i + k], axis=k), name="y")
    array = np.random.default_rng(0).random(2 * n + 3, "float32")
    want = np.max([array[i : i + 2 * n + 1] for i in range(3)], axis=0)
    run = build([x], y, cache=False)
    np.testing.assert_array_equal(run(array), want)
    assert [row.rule for row in run.profile(array).kernels] == ["windows"]


@pytest.mark.parametrize("n", [1, 2, 3, 40])
@pytest.mark.parametrize(("width", "rule"), [(3, "windows"), (80, "elementwise")])
def test_short_rows_between_borders(width, rule, n):
    """A symbolic number of rows is cut where the first and the last ones differ."""
    size = te.var("n")
    x = te.placeholder((size, width), name="x")

    def body(i, c):
        after = te.if_then_else(i + 2 <= size, x[i + 1, c], 0.0)
        return x[i, c] * 2.0 + after + te.if_then_else(i >= 1, x[i - 1, c] * 3.0, 0.0)

    run = build([x], te.compute((size, width), body, name="y"), cache=False)
    array = np.random.default_rng(0).integers(-5, 6, (n, width)).astype("float32")
    padded = np.pad(array, ((1, 1), (0, 0)))
    np.testing.assert_array_equal(run(array), array * 2 + padded[2:] + padded[:-2] * 3)
    expected = rule if n > 1 else "elementwise"  # one row has a program of its own
    assert [row.rule for row in run.profile(array).kernels] == [expected]


def test_remainders_are_not_computed():
    """The inner loop of an interleaving holds neither a division nor a branch."""
    inputs, output = interleaved(8, 64)
    text = lower(inputs, output).script()
    assert not [sign for sign in ("//", "%", "if_then_else") if sign in text]


def test_constants_of_a_border_are_written_once():
    """Where no read is left, what the terms of an argmin are compared with is a constant tree."""
    x = te.placeholder((5,), "float64", name="x")
    axes = [te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 2), "l")]

    def term(i, k, m):
        place = 3 * i + k - m + 2
        return te.sigmoid(te.if_then_else(te.all(place >= 0, place < 5), x[place], 0.0))

    y = te.compute((4,), lambda i: te.min(term(i, *axes), axis=axes), name="y")
    [dx] = differentiate(y, [x])
    kernels = [k for k in separate(normal_form([y, dx]))[0] if len(k.outputs) == 2]
    launches = [windows(kernel, Machine(as_target(None), 1)) for kernel in kernels]
    assert launches
    assert all(len(str(launch.func)) < 20_000 for [launch] in launches)
