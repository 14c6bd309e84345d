"""Gradients of reductions: every reducer with a rule of its own, and user-made ones.

`where=` and `init=`, several axes, minima other than zero, ties and zeros among them. Values at
ties, where no finite difference exists, are given as arrays.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.gradient_case import Case, derivatives


def f(value):
    return tirx.const(value, "float64")


def axis(extent, name="k", low=0):
    return te.reduce_axis((low, extent), name)


def rows(reducer, source=lambda x, i, k: x[i, k], low=0, high=None, **keywords):
    """out[i] = reducer over k of source(x, i, k)."""

    def make(x, *others):
        k = axis(x.shape[1] if high is None else high, low=low)
        more = {name: value(k, *others) for name, value in keywords.items()}
        return te.compute(
            (x.shape[0],), lambda i: reducer(source(x, i, k), axis=k, **more), name="out"
        )

    return make


def rows_from(reducer, start):
    """out[i] = reducer over k of x[i, k], begun with start(s, i)."""

    def make(x, s):
        k = axis(x.shape[1])
        return te.compute(
            (x.shape[0],),
            lambda i: reducer(x[i, k], axis=k, init=start(s, i)),
            name="out",
        )

    return make


def reducer(function, identity, name="reducer"):
    return te.comm_reducer(function, identity, name=name)


product = reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), "product")
two_sums = reducer(
    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lambda t0, t1: (tirx.const(0, t0), tirx.const(0, t1)),
    "two_sums",
)
argmax = reducer(
    lambda a, b: (
        tirx.Select(a[1] >= b[1], a[0], b[0]),
        tirx.Select(a[1] >= b[1], a[1], b[1]),
    ),
    lambda t0, t1: (tirx.const(-1, t0), te.min_value(t1)),
    "argmax",
)
argmin = reducer(
    lambda a, b: (
        tirx.Select(a[1] <= b[1], a[0], b[0]),
        tirx.Select(a[1] <= b[1], a[1], b[1]),
    ),
    lambda t0, t1: (tirx.const(-1, t0), te.max_value(t1)),
    "argmin",
)
# the value that goes with the largest key: both components are floats
best_by_key = reducer(
    lambda a, b: (
        tirx.Select(a[0] >= b[0], a[0], b[0]),
        tirx.Select(a[0] >= b[0], a[1], b[1]),
    ),
    lambda t0, t1: (te.min_value(t0), tirx.const(0, t1)),
    "best_by_key",
)
log_add = reducer(
    lambda a, b: te.log(te.exp(a) + te.exp(b)), lambda t: tirx.const(-700, t), "log_add"
)
norm = reducer(lambda a, b: te.sqrt(a * a + b * b), lambda t: tirx.const(0, t), "norm")
# probability of "or": associative and commutative, with identity 0
either = reducer(lambda a, b: a + b - a * b, lambda t: tirx.const(0, t), "either")
largest_magnitude = reducer(
    lambda a, b: tirx.Select(te.abs(a) >= te.abs(b), a, b),
    lambda t: tirx.const(0, t),
    "largest_magnitude",
)
# (maximum, sum of exp relative to it): softmax in one pass
running = reducer(
    lambda a, b: (
        tirx.Max(a[0], b[0]),
        a[1] * te.exp(a[0] - tirx.Max(a[0], b[0])) + b[1] * te.exp(b[0] - tirx.Max(a[0], b[0])),
    ),
    lambda t0, t1: (tirx.const(-700, t0), tirx.const(0, t1)),
    "running",
)
# product of complex numbers
complex_product = reducer(
    lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
    lambda t0, t1: (tirx.const(1, t0), tirx.const(0, t1)),
    "complex_product",
)
# composition of affine maps x -> a*x + b: associative, does not commute
affine = reducer(
    lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]),
    lambda t0, t1: (tirx.const(1, t0), tirx.const(0, t1)),
    "affine",
)


def component(which, tuple_reducer, *sources):
    """One component, or the product of all (`which` is None), of a tuple reduction over rows."""

    def make(x):
        k = axis(x.shape[1])
        outputs = te.compute(
            (x.shape[0],),
            lambda i: tuple_reducer(tuple(source(x, i, k) for source in sources), axis=k),
            name="pair",
        )
        if which is not None:
            return outputs[which]
        first, second = outputs
        return te.compute((x.shape[0],), lambda i: first[i] * second[i] + second[i], name="both")

    return make


value, square = lambda x, i, k: x[i, k], lambda x, i, k: x[i, k] * x[i, k]
index = lambda x, i, k: k  # noqa: E731
sine = lambda x, i, k: te.sin(x[i, k])  # noqa: E731


def two_axes(reduce):
    def make(x):
        k, m = axis(x.shape[1]), axis(x.shape[2], "m")
        return te.compute((x.shape[0],), lambda i: reduce(x[i, k, m], axis=[k, m]), name="out")

    return make


def to_scalar(reduce, source=lambda x, k: x[k]):
    def make(x):
        k = axis(x.shape[0])
        return te.compute((), lambda: reduce(source(x, k), axis=k), name="out")

    return make


def windows(reduce):
    """out[i] = reducer over a window of 3 around 2*i."""

    def make(x):
        k = axis(3)
        return te.compute(
            ((x.shape[0] - 3) // 2 + 1,), lambda i: reduce(x[2 * i + k], axis=k), name="out"
        )

    return make


def matmul_by(reduce, combine):
    """out[i, j] = reducer over k of combine(x[i, k], y[k, j])."""

    def make(x, y):
        k = axis(x.shape[1])
        return te.compute(
            (x.shape[0], y.shape[1]),
            lambda i, j: reduce(combine(x[i, k], y[k, j]), axis=k),
            name="out",
        )

    return make


X = [(3, 4)]
SIGNED = (-1.5, 1.5)
ONE_ZERO = np.array([[0.5, 0.0, 2.0], [1.5, -1.0, 0.5]])
MANY_ZEROS = np.array([[0.0, 0.0, 2.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])

CASES = [
    Case("sum", X, rows(te.sum), 2),
    Case("sum-of-squares", X, rows(te.sum, square), 2),
    Case("sum-to-scalar", [(5,)], to_scalar(te.sum, lambda x, k: te.exp(x[k])), 2),
    Case("sum-two-axes", [(2, 3, 2)], two_axes(te.sum), 2),
    Case("sum-matmul", [(3, 4), (4, 2)], matmul_by(te.sum, lambda a, b: a * b), 2),
    Case("sum-windows", [(8,)], windows(te.sum)),
    Case("sum-where", X, rows(te.sum, square, where=lambda k: k > 1), 2),
    Case("sum-where-axis", X, lambda x: _triangle(te.sum)(x)),
    Case("sum-where-data", X, lambda x: _where_positive(te.sum)(x), domain=SIGNED),
    Case("sum-init-constant", X, lambda x: _begun(te.sum, 2.5)(x)),
    Case("sum-init-load", [(3, 4), (3,)], rows_from(te.sum, lambda s, i: s[i]), 2),
    Case("sum-low", X, rows(te.sum, square, low=1, high=4), 2),
    Case("sum-low-shifted", X, rows(te.sum, lambda x, i, k: x[i, k - 2], low=2, high=6)),
    Case("max", X, rows(te.max)),
    Case("max-of-products", X, rows(te.max, square, low=0), domain=SIGNED),
    Case("max-order-2", X, rows(te.max, square), 2, domain=SIGNED),
    Case("max-two-axes", [(2, 3, 2)], two_axes(te.max)),
    Case("max-to-scalar", [(5,)], to_scalar(te.max)),
    Case("max-windows", [(8,)], windows(te.max)),
    Case("max-where", X, rows(te.max, where=lambda k: k < 2)),
    Case("max-low", X, rows(te.max, low=1, high=4)),
    Case("max-init-load", [(3, 4), (3,)], rows_from(te.max, lambda s, i: s[i])),
    Case("max-plus-matmul", [(3, 4), (4, 2)], matmul_by(te.max, lambda a, b: a + b)),
    Case("min", X, rows(te.min)),
    Case("min-two-axes", [(2, 3, 2)], two_axes(te.min)),
    Case("min-windows", [(8,)], windows(te.min)),
    Case("min-where", X, rows(te.min, where=lambda k: k != 2)),
    Case("min-init-constant", X, lambda x: _begun(te.min, 0.5)(x)),
    Case("product", X, rows(product), 2, domain=SIGNED),
    Case("product-of-sines", X, rows(product, sine), 2),
    Case("product-one-zero", [ONE_ZERO], rows(product), 2),
    Case("product-zeros", [MANY_ZEROS], rows(product), 2),
    Case("product-zeros-of-source", [ONE_ZERO], rows(product, square), 2),
    Case("product-two-axes", [(2, 3, 2)], two_axes(product), 2),
    Case("product-to-scalar", [(4,)], to_scalar(product), 2),
    Case("product-where", X, rows(product, where=lambda k: k > 0), 2),
    Case("product-low", X, rows(product, low=1, high=4), 2),
    Case("product-init-load", [(3, 4), (3,)], rows_from(product, lambda s, i: s[i]), 2),
    Case("product-windows", [(8,)], windows(product)),
    Case("argmax-value", X, component(1, argmax, index, value)),
    Case("argmax-value-of-squares", X, component(1, argmax, index, square), 2, domain=SIGNED),
    Case("argmin-value", X, component(1, argmin, index, value)),
    Case("best-key", X, component(0, best_by_key, value, sine)),
    Case("best-payload", X, component(1, best_by_key, value, sine)),
    Case("best-both", X, component(None, best_by_key, value, sine), 2),
    Case("sum-and-squares-first", X, component(0, two_sums, value, square), 2),
    Case("sum-and-squares-second", X, component(1, two_sums, value, square), 2),
    Case("sum-and-squares-both", X, component(None, two_sums, value, square), 2),
    Case("log-add", X, rows(log_add)),
    Case("norm", X, rows(norm)),
    Case("either", X, rows(either), 2),
    Case("either-where", X, rows(either, where=lambda k: k < 3)),
    Case("either-two-axes", [(2, 2, 2)], two_axes(either)),
    Case("largest-magnitude", X, rows(largest_magnitude), domain=SIGNED),
    Case("running-max", X, component(0, running, value, lambda x, i, k: f(1))),
    Case("running-sum", X, component(1, running, value, lambda x, i, k: f(1))),
    Case("running-both", X, component(None, running, value, lambda x, i, k: f(1))),
    Case("complex-product-real", X, component(0, complex_product, value, sine)),
    Case("complex-product-both", X, component(None, complex_product, value, sine), 2),
    Case("affine-maps", X, component(1, affine, value, sine)),
    Case("affine-maps-both", X, component(None, affine, value, sine)),
]


def _triangle(reduce):
    def make(x):
        k = axis(x.shape[1])
        return te.compute(
            (x.shape[0],), lambda i: reduce(x[i, k] * x[i, k], axis=k, where=k <= i), name="out"
        )

    return make


def _where_positive(reduce):
    def make(x):
        k = axis(x.shape[1])
        return te.compute(
            (x.shape[0],),
            lambda i: reduce(x[i, k] * x[i, k], axis=k, where=x[i, k] > 0.0),
            name="out",
        )

    return make


def _begun(reduce, start):
    def make(x):
        k = axis(x.shape[1])
        return te.compute(
            (x.shape[0],), lambda i: reduce(x[i, k], axis=k, init=f(start)), name="out"
        )

    return make


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reducer(case):
    case.check()


TIES = np.array([[2.0, 2.0, 1.0], [1.0, 3.0, 3.0], [4.0, 4.0, 4.0]])
FIRST = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])

AT_TIES = [
    ("max", rows(te.max), TIES, FIRST),
    ("min", rows(te.min), -TIES, FIRST),
    ("max-of-squares", rows(te.max, square), TIES, 2 * TIES * FIRST),
    ("max-where", rows(te.max, where=lambda k: k > 0), TIES, [[0, 1, 0], [0, 1, 0], [0, 1, 0]]),
    ("max-low", rows(te.max, low=1, high=3), TIES, [[0, 1, 0], [0, 1, 0], [0, 1, 0]]),
    ("argmax", component(1, argmax, index, value), TIES, FIRST),
    ("argmin", component(1, argmin, index, value), -TIES, FIRST),
    # overlapping windows [0:3], [2:5]: each gives its whole weight to its own first winner
    ("max-windows", windows(te.max), np.ones(5), [1, 0, 1, 0, 0]),
    ("max-two-axes", two_axes(te.max), np.ones((1, 2, 2)), [[[1, 0], [0, 0]]]),
    # the identity of te.max is finite: no step changes what is less
    ("max-of-minus-infinity", rows(te.max), np.full((1, 2), -np.inf), [[0, 0]]),
]


@pytest.mark.parametrize(("name", "make", "at", "expected"), AT_TIES, ids=lambda v: str(v)[:20])
def test_first_of_equal_elements_wins(name, make, at, expected):
    x = te.placeholder(at.shape, "float64", name="x")
    [got] = derivatives(make(x), [x], [at])
    np.testing.assert_array_equal(got, expected)


INITS_WIN = [
    ("max", te.max, [5.0, 5.0], [[1.0, 2.0], [9.0, 2.0]], [[0, 0], [1, 0]], [1, 0]),
    ("min", te.min, [0.0, 5.0], [[1.0, 2.0], [9.0, 2.0]], [[0, 0], [0, 1]], [1, 0]),
]


@pytest.mark.parametrize(
    ("name", "reduce", "start", "at", "by_x", "by_start"), INITS_WIN, ids=lambda v: str(v)[:10]
)
def test_init_that_wins_takes_the_weight(name, reduce, start, at, by_x, by_start):
    x, s = te.placeholder((2, 2), "float64", "x"), te.placeholder((2,), "float64", "s")
    out = rows_from(reduce, lambda s, i: s[i])(x, s)
    got = derivatives(out, [x, s], [np.array(at), np.array(start)])
    np.testing.assert_array_equal(got[0], by_x)
    np.testing.assert_array_equal(got[1], by_start)


def test_argmax_index_has_no_derivative():
    x = te.placeholder((3, 4), "float64", name="x")
    where, best = te.compute((3,), lambda i: argmax((k := axis(4), x[i, k]), axis=k), name="pair")
    out = te.compute((3,), lambda i: best[i] * where[i].astype("float64"), name="out")
    at = np.random.default_rng(0).uniform(size=(3, 4))
    [got] = derivatives(out, [x], [at])
    expected = np.zeros((3, 4))
    expected[np.arange(3), at.argmax(1)] = at.argmax(1)
    np.testing.assert_array_equal(got, expected)
