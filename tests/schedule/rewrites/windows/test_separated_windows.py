"""Windows that are reduced along one axis after the other: which are, and equal values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import axis_range, is_compute, reduced_axes, shape_of
from tvm_autodiff.schedule.rewrites.windows.separated_windows import with_separated_windows

H, W, K = 20, 17, 7
F = "float64"
x, y = te.placeholder((H, W), F, name="x"), te.placeholder((H, W), F, name="y")
u, v = te.placeholder((K,), F, name="u"), te.placeholder((K,), F, name="v")
both = te.placeholder((K, K), F, name="both")
deep = te.placeholder((2, 18, 19, 20), F, name="deep")
where = te.placeholder((H,), "int32", name="where")
ite, C = te.if_then_else, te.const


def window(body, shape=(H - K + 1, W - K + 1), reducer=te.sum, extents=(K, K)):
    axes = [te.reduce_axis((0, n), f"r{place}") for place, n in enumerate(extents)]
    return te.compute(shape, lambda *i: reducer(body(*i, *axes), axis=axes), name="s")


def padded(i, k, outside):
    inside = te.all(i >= 0, i < H, k >= 0, k < W)
    return ite(inside, x[i, k], C(outside, F))


#: name → (stage, extents that each stage reduces over)
CASES = {
    "a box": (lambda: window(lambda i, k, a, b: x[i + a, k + b]), [[K], [K]]),
    "a maximum": (lambda: window(lambda i, k, a, b: x[i + a, k + b], reducer=te.max), [[K], [K]]),
    "a minimum of differences": (
        lambda: window(lambda i, k, a, b: x[i + a, k + b] - y[i + a, k + b], reducer=te.min),
        [[K], [K]],
    ),
    "exchanged axes": (
        lambda: window(lambda i, k, a, b: x[k + a, i + b], (W - K + 1, H - K + 1)),
        [[K], [K]],
    ),
    "weights by axis": (
        lambda: window(lambda i, k, a, b: u[a] * x[i + a, k + b] * v[b]),
        [[K], [K]],
    ),
    "weights of both": (lambda: window(lambda i, k, a, b: both[a, b] * x[i + a, k + b]), [[K, K]]),
    "a function of what is read": (
        lambda: window(lambda i, k, a, b: te.exp(x[i + a, k + b]) * x[i + a, k + b]),
        [[K], [K]],
    ),
    "padded": (
        lambda: window(lambda i, k, a, b: padded(i + a - 3, k + b - 3, 0.0), (H, W)),
        [[K], [K]],
    ),
    "a padded maximum": (
        lambda: window(
            lambda i, k, a, b: padded(i + a - 3, k + b - 3, float(np.finfo(F).min)),
            (H, W),
            te.max,
        ),
        [[K], [K]],
    ),
    "padded by another number": (
        lambda: window(lambda i, k, a, b: padded(i + a - 3, k + b - 3, 1.0), (H, W)),
        [[K, K]],
    ),
    "guarded inside of a function": (
        lambda: window(lambda i, k, a, b: te.exp(padded(i + a - 3, k + b - 3, 0.0)), (H, W)),
        [[K, K]],
    ),
    "clamped and wrapped": (
        lambda: window(
            lambda i, k, a, b: x[te.max(te.min(i + a - 3, H - 1), 0), (k + b - 3 + W) % W],
            (H, W),
        ),
        [[K], [K]],
    ),
    "a condition on a result": (
        lambda: window(lambda i, k, a, b: ite(i + k < 9, x[i + a, k + b], C(0, F))),
        [[K], [K]],
    ),
    "a diagonal condition": (
        lambda: window(lambda i, k, a, b: ite(a <= b, x[i + a, k + b], C(0, F))),
        [[K, K]],
    ),
    "an infinite factor under the condition of the other axis": (
        lambda: window(
            lambda i, k, a, b: ite(k + b < 3, x[i + a, k + b] * te.exp(u[a] * 1e4), C(0, F))
        ),
        [[K], [K]],
    ),
    "both axes in one dimension": (
        lambda: window(lambda i, k, a, b: x[i, k + a + b], (H, W - 2 * K + 2)),
        [[K, K]],
    ),
    "rows by data": (
        lambda: window(lambda i, k, a, b: x[where[i + a], k + b], (H - K + 1, W - K + 1)),
        [[K], [K]],
    ),
    "strides beyond the window": (
        lambda: window(lambda i, k, a, b: x[i * 7 + a, k * 7 + b], (2, 2)),
        [[K, K]],
    ),
    "three axes": (
        lambda: window(
            lambda n, i, j, k, a, b, c: deep[n, i + a, j + b, k + c],
            (2, 12, 13, 14),
            extents=(K, K, K),
        ),
        [[7], [7], [7]],
    ),
    "two axes along each dimension": (
        lambda: window(
            lambda i, k, a, p, b, q: u[a * 2 + p] * x[i + a * 2 + p, k + b * 2 + q] * both[b, q],
            (H - 5, W - 5),
            extents=(3, 2, 3, 2),
        ),
        [[3, 2], [3, 2]],
    ),
    "a maximum over one axis along a dimension, and two along the other": (
        lambda: window(
            lambda i, a, k, p, b, q: x[i + a + p * 2, k + b * 2 + q],
            (H - 5, 2, W - 6),
            te.max,
            extents=(3, 3, 2),
        ),
        [[3, 2], [3]],
    ),
    "by the weights of one axis": (
        lambda: window(
            lambda i, a, n, k, b: deep[n, i, k + b, 0] * x[i + a, k + b] * both[k % 3, b],
            (12, 8),
            extents=(2, 11, K),
        ),
        [[2, 11, K]],
    ),
    "what two axes of the result move": (
        lambda: window(
            lambda i, a, n, k, b: deep[n, i, k, 0] * deep[n, i + a, k + b, 1] * both[k % 3, b],
            (12, 7),
            extents=(2, 11, K),
        ),
        [[K], [2, 11]],
    ),
    "a factor in bounds by the condition on the first axis": (
        lambda: window(
            lambda i, k, a, b, u, v: ite(
                te.all(u + a <= i, i <= u + a + 12, v + b <= k, k <= v + b + 9),
                (y[i - a + 3, k - b + 3] - y[i, k]) * both[a, b] * x[i - u - a, k - v - b],
                C(0, F),
            ),
            (H, W),
            extents=(5, 5, 5, 5),
        ),
        [[5], [5, 5, 5]],
    ),
    "a factor with a branch of its own under that condition": (
        lambda: window(
            lambda i, k, a, u, b: ite(
                te.all(u + a <= i, i <= u + a + 13),
                ite(k < 9, y[i - a + 3, k], C(2, F)) * x[i - u - a, k + b],
                C(0, F),
            ),
            (H, W - K + 1),
            extents=(4, 4, K),
        ),
        [[K], [4, 4]],
    ),
    "few points": (lambda: window(lambda i, k, a, b: x[i + a, k + b], (2, 2)), [[K, K]]),
    "small": (
        lambda: window(lambda i, k, a, b: x[i + a, k + b], (H - 2, W - 2), extents=(3, 3)),
        [[3, 3]],
    ),
}


def arrays():
    rng = np.random.default_rng(0)
    given = {t: rng.standard_normal(shape_of(t)) for t in (x, y, u, v, both, deep)}
    return {**given, where: rng.integers(0, H, H).astype("int32")}


@pytest.mark.parametrize("name", CASES)
def test_what_is_separated(name):
    make, extents = CASES[name]
    stage = make()
    [found] = with_separated_windows([stage])
    reduced = [
        [axis_range(axis)[1] for axis in reduced_axes(op)]
        for op in Graph([found]).ops
        if is_compute(op)
    ]
    assert reduced == extents
    given = arrays()
    [wanted], [got] = evaluate_graph([stage], given), evaluate_graph([found], given)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_what_is_between_lies_as_what_is_read():
    [found] = with_separated_windows(
        [window(lambda k, i, a, b: x[i + a, k + b], (W - K + 1, H - K + 1))]
    )
    [first, _] = [op for op in Graph([found]).ops if is_compute(op)]
    assert shape_of(first.output(0)) in ((H, W - K + 1), (H - K + 1, W))


def argmax(place, first=True):
    """The greatest value and its place; the first one of equal values, or the last that is met."""

    def better(left, right):
        later = te.all(left[0] == right[0], left[1] <= right[1])
        keeps = te.any(left[0] > right[0], later) if first else left[0] > right[0]
        return tuple(tirx.Select(keeps, a, b) for a, b in zip(left, right, strict=True))

    lowest = (te.min_value(F), te.const(-1, "int32"))
    reducer = te.comm_reducer(better, lambda *_: lowest, name="argmax")
    a, b = te.reduce_axis((0, K), "a"), te.reduce_axis((0, K), "b")
    shape = (H - K + 1, W - K + 1)
    return te.compute(
        shape, lambda i, k: reducer((x[i + a, k + b], place(i, a, b)), axis=[a, b]), name="s"
    )


#: name → (pair, whether it is separated)
PAIRS = {
    "places in order": (lambda: argmax(lambda i, a, b: a * K + b), True),
    "of the whole tensor": (lambda: argmax(lambda i, a, b: (i + a) * W + b), True),
    "the last of equal values": (lambda: argmax(lambda i, a, b: a * K + b, False), False),
    "places below zero": (lambda: argmax(lambda i, a, b: a * K + b - 30), False),
    "a product of places": (lambda: argmax(lambda i, a, b: a * b), False),
}


@pytest.mark.parametrize("name", PAIRS)
def test_places_of_extremes(name):
    make, separated = PAIRS[name]
    pair = make()
    found = with_separated_windows(pair)
    assert (len([op for op in Graph(found).ops if is_compute(op)]) == 2) is separated
    given = {**arrays(), x: np.random.default_rng(2).integers(0, 3, (H, W)).astype(F)}
    for got, wanted in zip(evaluate_graph(found, given), evaluate_graph(pair, given), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_reads_that_do_not_follow_take_longer():
    """Few points of few results: in vectors the first axis takes less, though it makes more."""
    part = lambda i, a: i * 3 + i // 2 + a  # noqa: E731
    [found] = with_separated_windows(
        [window(lambda i, k, a, b: x[part(i, a), part(k, b)], (5, 4), extents=(6, 6))]
    )
    small = te.placeholder((200, H, W), F, name="small")
    [taken] = with_separated_windows(
        [
            window(
                lambda n, i, k, a, b: small[n, part(i, a), part(k, b)], (200, 5, 4), extents=(6, 6)
            )
        ]
    )
    counts = [len([op for op in Graph([t]).ops if is_compute(op)]) for t in (found, taken)]
    assert counts == [1, 2]


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 24])
def test_a_run_of_memory_is_not_taken_apart(columns):
    """The sum of short rows is one of neighbours, which columns of few results are not."""
    points = te.placeholder((4096, columns), F, name="points")
    total = window(lambda i, k: points[i, k] * points[i, k], (), extents=(4096, columns))
    [found] = with_separated_windows([total])
    assert found.same_as(total)


@pytest.mark.parametrize("name", ["padded", "clamped and wrapped", "weights by axis"])
def test_built_values_and_gradients(name):
    stage = CASES[name][0]()
    head = te.placeholder(shape_of(stage), F, name="head")
    [dx] = ad.differentiate(stage, [x], head)
    given = {**arrays(), head: np.random.default_rng(1).standard_normal(shape_of(stage))}
    inputs = [x, u, v, head]
    got = ad.build(inputs, [stage, dx], cache=False)(*(given[t] for t in inputs))
    for a, b in zip(got, evaluate_graph([stage, dx], given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


n, m = te.var("n"), te.var("m")
large = te.placeholder((n, m), F, name="large")
LEAST = float(np.finfo(F).min)


def inside(i, k, outside=0.0):
    kept = te.all(i >= 0, i < n, k >= 0, k < m)
    return ite(kept, large[i, k], C(outside, F))


#: name → a stage of symbolic sizes; whether it is separated
SYMBOLIC = {
    "a box": (lambda: window(lambda i, k, a, b: large[i + a, k + b], (n - 6, m - 6)), True),
    "a longer tensor": (
        lambda: window(lambda i, k, a, b: large[i + a, k + b], (n - 9, m - 8)),
        True,
    ),
    "padded": (
        lambda: window(lambda i, k, a, b: inside(i + a - 3, k + b - 3), (n, m)),
        True,
    ),
    "a padded maximum": (
        lambda: window(
            lambda i, k, a, b: inside(i + a - 3, k + b - 3, LEAST), (n, m), reducer=te.max
        ),
        True,
    ),
    "a gradient": (lambda: window(lambda i, k, a, b: inside(i - a, k - b), (n + 6, m + 6)), True),
    "strided": (
        lambda: window(lambda i, k, a, b: inside(2 * i + a, 2 * k + b), (n // 2, m // 2)),
        False,
    ),
    "over another size": (lambda: window(lambda i, k, a, b: inside(i + a, k + b), (m, n)), False),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name):
    make, separated = SYMBOLIC[name]
    stage = make()
    [found] = with_separated_windows([stage])
    assert (len([op for op in Graph([found]).ops if is_compute(op)]) == 2) is separated
    for sizes in ({n: 9, m: 21}, {n: 10, m: 8}, {n: 16, m: 17}):
        given = {large: np.random.default_rng(0).standard_normal((sizes[n], sizes[m]))}
        values = (evaluate_graph([one], given, sizes)[0] for one in (found, stage))
        np.testing.assert_allclose(*values, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(7, 7), (8, 30), (41, 40)])
def test_built_symbolic_sizes(shape):
    stage, head = SYMBOLIC["padded"][0](), te.placeholder((n, m), F, name="head")
    [dx] = ad.differentiate(stage, [large], head)
    run = ad.build([large, head], [stage, dx], cache=False)
    a, g = np.random.default_rng(0).standard_normal((2, *shape))
    for got, of in zip(run(a, g), (a, g), strict=True):
        sums = np.pad(of, 3)
        want = sum(sums[p : p + shape[0], q : q + shape[1]] for p in range(K) for q in range(K))
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)
