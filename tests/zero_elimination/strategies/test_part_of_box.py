"""Sums for a place that data tell: for that place, not for every element; it may lie outside."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from tvm import te

from tests.differences import whole_slopes
from tests.evaluate import evaluate_graph
from tvm_autodiff import differentiate, simplify_reductions
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import axis_range, is_compute, reduction_of, shape_of

D, N = "float64", 6
RNG = np.random.default_rng(0)
k, idx = te.placeholder((), "int32", name="k"), te.placeholder((N,), "int32", name="idx")
x = te.placeholder((N, N, N), D, name="x")
X = RNG.integers(-3, 4, (N, N, N)).astype(D)
j = te.reduce_axis((0, N), "j")
ZERO = te.const(0.0, D)


def made(shape, body):
    return te.compute(shape, body, name="y")


def summed(shape, body):
    return te.compute(shape, lambda *i: te.sum(body(*i), axis=j), name="y")


#: stages that read `x` at a place that data tell: their gradients need N**3 summed points
GRADIENTS = {
    "a column": lambda: made((N, N, N), lambda a, b, c: x[a, b, k()] * x[a, c, b]),
    "two columns": lambda: made((N, N, N), lambda a, b, c: x[a, b, k()] * x[a, c, k()]),
    "an element": lambda: made((N, N, N), lambda a, b, c: x[a, b, c] * x[a, k(), k()]),
    "a column for each row": lambda: made(
        (N, N, N), lambda a, b, c: x[a, b, idx[a]] * x[a, c, b]
    ),
    "a shifted column": lambda: made((N, N, N), lambda a, b, c: x[a, b, 4 - k()] * x[a, c, b]),
    "inside of a mask": lambda: made(
        (N, N, N),
        lambda a, b, c: te.if_then_else(
            te.all(b > k(), c > k()), x[a, b, c] - x[a, b, k()] * x[a, c, k()], x[a, b, c]
        ),
    ),
}

SUMS = {
    "a row": lambda: summed((N, N), lambda a, b: te.if_then_else(a == k(), x[a, b, j], ZERO)),
    "a row of two": lambda: summed(
        (N, N),
        lambda a, b: te.if_then_else(te.all(b == k() + 1, j < 4), x[a, b, j] * x[b, a, j], ZERO),
    ),
    "a diagonal of data": lambda: summed(
        (N, N), lambda a, b: te.if_then_else(b == idx[a], x[a, b, j], ZERO)
    ),
}


def summed_points(tensor):
    """The most points that a sum of a graph has."""
    sums = [op for op in topological([tensor]) if is_compute(op) and reduction_of(op) is not None]
    return max(prod(axis_range(a)[1] for a in (*op.axis, *op.reduce_axis)) for op in sums)


def guarded():
    """A place that is read where another index of the element allows it."""
    read = lambda a, b, c: x[a, b, idx[a - 1]] * x[a, c, b]  # noqa: E731
    return made((N, N, N), lambda a, b, c: te.if_then_else(a > 0, read(a, b, c), ZERO))


def data(place):
    return {k: np.array(place, "int32"), idx: np.full(N, place, "int32") + np.arange(N) % 2, x: X}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_sum_for_the_place_alone(name):
    y = GRADIENTS[name]()
    head = te.placeholder(y.shape, D, name="head")
    weights = RNG.integers(-3, 4, (N, N, N)).astype(D)
    [dx] = differentiate(y, [x], head)
    assert summed_points(dx) <= N**3
    arrays = data(2)
    [got] = evaluate_graph([dx], {**arrays, head: weights}, strict=True)
    np.testing.assert_allclose(got, whole_slopes(y, [x], arrays, weights)[0], atol=1e-12)


def test_a_place_is_read_where_its_guard_allows_it():
    y = guarded()
    head = te.placeholder(y.shape, D, name="head")
    [dx] = differentiate(y, [x], head)
    weights, arrays = RNG.integers(-3, 4, (N, N, N)).astype(D), data(2)
    [got] = evaluate_graph([dx], {**arrays, head: weights}, strict=True)
    np.testing.assert_allclose(got, whole_slopes(y, [x], arrays, weights)[0], atol=1e-12)


@pytest.mark.parametrize("place", [-7, -1, 0, N - 1, N, N + 9])
@pytest.mark.parametrize("name", SUMS)
def test_sums_for_a_place_that_may_lie_outside(name, place):
    y = SUMS[name]()
    [simple] = simplify_reductions(y)
    got, want = evaluate_graph([simple, y], data(place), strict=True)
    np.testing.assert_array_equal(got, want)


def test_places_without_an_element_are_not_read():
    """A diagonal of 12 has n places, whatever the condition on data says of the others."""
    n, m = te.var("n"), 5
    c, v = te.placeholder((n,), "int32", name="c"), te.placeholder((8,), D, name="v")
    k = te.reduce_axis((0, 8), "k")

    def body(i, b):
        inner = te.if_then_else(te.all(c[i] >= 0, c[i] < 4), v[k], ZERO)
        return te.sum(te.if_then_else(b.equal(i), inner, ZERO), axis=k)

    y = te.compute((n, 12), body, name="y")
    [solved] = simplify_reductions([y])
    given = {c: np.zeros(m, "int32"), v: RNG.standard_normal(8)}
    [wanted] = evaluate_graph([y], given, {n: m})
    [got] = evaluate_graph([solved], given, {n: m}, strict=True)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    shapes = [shape_of(op.output(0)) for op in topological([solved]) if reduction_of(op)]
    assert shapes == [(12,)]
