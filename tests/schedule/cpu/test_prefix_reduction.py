"""Reductions up to a place: answers of an evaluation in numpy, and which kernels are taken."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.schedule import cases
from tests.schedule.test_rules import arrays_for, check, expected, rules_of
from tvm_autodiff import build, differentiate
from tvm_autodiff.schedule.nest.reductions.prefix_reductions import prefix_reduction_of

CONDITIONS = {
    "k <= i": lambda k, i: k <= i,
    "k < i": lambda k, i: k < i,
    "k >= i": lambda k, i: k >= i,
    "k > i": lambda k, i: k > i,
    "i >= k": lambda k, i: i >= k,
    "k < i + 1": lambda k, i: k < i + 1,
    "k - i <= -1": lambda k, i: k - i <= -1,
    "i - k + 1 <= 1": lambda k, i: i - k + 1 <= 1,
}


def running(shape, axis, condition="k <= i", reducer=te.sum, dtype="float32", value=None):
    """``R[.., i, ..] = ⊕_k if condition(k, i) then value(X[.., k, ..])``."""
    X, k = cases.placeholder("X", *shape, dtype=dtype), cases.axis(shape[axis])
    identity = {te.sum: 0.0, te.max: te.min_value(dtype), te.min: te.max_value(dtype)}[reducer]

    def body(*i):
        taken = X(*i[:axis], k, *i[axis + 1 :])
        taken = taken if value is None else value(taken, k, i)
        holds = CONDITIONS[condition](k, i[axis])
        return reducer(te.if_then_else(holds, taken, identity), axis=k)

    return [X], te.compute(shape, body, name="R")


def epilogue(case):
    inputs, R = case
    return inputs, te.compute(R.shape, lambda *i: R(*i) * 2.0 + 1.0, name="E")


RUNNING = {
    **{name: running((6, 40), 1, name) for name in CONDITIONS},
    **{f"rows, {name}": running((40, 24), 0, name) for name in CONDITIONS},
    "a vector": running((500,), 0),
    "one row": running((1, 37), 1),
    "many rows": running((64, 300), 1),
    "rows of a prime": running((67, 131), 1, "k >= i"),
    "columns": running((300, 100), 0),
    "columns of a prime": running((131, 67), 0, "k > i"),
    "in the middle": running((5, 60, 50), 1),
    "in the middle, odd": running((3, 41, 7), 1, "k < i"),
    "in front": running((30, 20, 40), 0, "k >= i"),
    "maxima": running((50, 40), 1, reducer=te.max),
    "minima of columns": running((40, 50), 0, "k >= i", reducer=te.min),
    "float64": running((9, 40), 1, dtype="float64"),
    "float16": running((9, 40), 1, dtype="float16"),
    "squares": running((9, 40), 1, value=lambda x, k, i: x * x),
    "another condition": running(
        (50, 40), 1, value=lambda x, k, i: te.if_then_else(k % 3 == 0, x, 0.0)
    ),
    "an epilogue": epilogue(running((50, 40), 1)),
}


@pytest.mark.parametrize("name", RUNNING)
def test_running(name):
    """``out[i] = ⊕_k if k <= i then f(k)  →  out[i] = out[i - 1] ⊕ f(i)``."""
    check(RUNNING[name])
    assert "prefix_reduction" in rules_of(RUNNING[name][1])


def place_of_extreme(shape, axis, condition, reducer):
    """The gradient of a running extreme: each element of it comes from one place."""
    [X], R = running(shape, axis, condition, reducer)
    head = cases.placeholder("head", *shape)
    return [X, head], differentiate(R, [X], head)[0]


PLACES = {
    f"{kind} of {shape} along {axis}, {name}": (shape, axis, name, reducer)
    for kind, reducer in (("max", te.max), ("min", te.min))
    for shape, axis in (((16, 40), 1), ((37, 20), 0), ((500,), 0), ((3, 18, 7), 1))
    for name in ("k <= i", "k < i", "k >= i", "k > i")
    if kind == "max" or (shape, axis) == ((16, 40), 1)
}


@pytest.mark.parametrize("name", PLACES)
def test_places_of_running_extremes(name):
    """``argmax_k (if k <= i then f(k) else c, k)`` takes one step for each element."""
    inputs, gradient = place_of_extreme(*PLACES[name])
    check((inputs, gradient), threads=(None,))
    assert "prefix_reduction" in rules_of(gradient)


@pytest.mark.parametrize("condition", ["k <= i", "k > i"])
def test_places_of_infinite_extremes(condition):
    """Where an element that does not count is larger, no element is the source."""
    inputs, gradient = place_of_extreme((4, 20), 1, condition, te.max)
    x, head = arrays_for(inputs, {})
    x[:2], x[2, ::2] = -np.inf, -np.inf
    got = build(inputs, gradient)(x, head)
    np.testing.assert_array_equal(got, expected(inputs, gradient, [x, head]))


def moments(shape, axis, condition):
    """``out[i] = (number, sum, sum of squares)`` of the elements that count."""
    added = te.comm_reducer(
        lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)),
        lambda *dtypes: tuple(tirx.const(0, dtype) for dtype in dtypes),
    )
    X, k = cases.placeholder("X", *shape), cases.axis(shape[axis])

    def body(*i):
        x = X(*i[:axis], k, *i[axis + 1 :])
        parts = (tirx.const(1, "int32"), x, x * x)
        holds = CONDITIONS[condition]
        return added(
            [te.if_then_else(holds(k, i[axis]), one, tirx.const(0, one.ty)) for one in parts],
            axis=k,
        )

    return [X], te.compute(shape, body, name="R")


@pytest.mark.parametrize("condition", ["k <= i", "k < i", "k >= i", "k > i"])
@pytest.mark.parametrize(("shape", "axis"), [((6, 40), 1), ((40, 24), 0), ((500,), 0)])
def test_several_values(shape, axis, condition):
    inputs, results = moments(shape, axis, condition)
    for result in results:
        check((inputs, result))
    assert "prefix_reduction" in rules_of(results[1])


def composition(condition):
    """``out[i]`` = the maps ``x → a*x + b`` that count, composed from the first on."""
    composed = te.comm_reducer(
        lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]),
        lambda a, b: (tirx.const(1, a), tirx.const(0, b)),
    )
    A, B, k = cases.placeholder("A", 5, 30), cases.placeholder("B", 5, 30), cases.axis(30)

    def body(r, i):
        holds = CONDITIONS[condition]
        parts = ((A[r, k], 1), (B[r, k], 0))
        return composed(
            [te.if_then_else(holds(k, i), a, tirx.const(b, "float32")) for a, b in parts], axis=k
        )

    return [A, B], te.compute((5, 30), body, name="R")[1]


@pytest.mark.parametrize(("condition", "in_order"), [("k <= i", True), ("k >= i", False)])
def test_maps_that_do_not_commute(condition, in_order):
    check(composition(condition))
    assert ("prefix_reduction" in rules_of(composition(condition)[1])) == in_order


def triangle(n, m):
    """A product with a triangular matrix."""
    A, B, k = cases.placeholder("A", n, n), cases.placeholder("B", n, m), cases.axis(n)
    return [A, B], te.compute(
        (n, m),
        lambda i, j: te.sum(te.if_then_else(k <= i, A[i, k] * B[k, j], 0.0), axis=k),
        name="T",
    )


def far(n, distance):
    """A window that ends before its place."""
    X, k = cases.placeholder("X", n), cases.axis(n)
    return [X], te.compute(
        (n,),
        lambda i: te.sum(te.if_then_else(k <= i - distance, X[k], 0.0), axis=k),
        name="F",
    )


def other_else(n):
    X, k = cases.placeholder("X", n), cases.axis(n)
    return [X], te.compute(
        (n,), lambda i: te.sum(te.if_then_else(k <= i, X[k], 1.0), axis=k), name="O"
    )


OTHERS = {
    "values that follow the result": triangle(20, 24),
    "short rows": running((50, 8), 1),
    "a distance": far(40, 3),
    "a sum of both branches": other_else(40),
    "a plain sum": cases.rows(20, 40),
}


@pytest.mark.parametrize("name", OTHERS)
def test_not_running(name):
    check(OTHERS[name])
    assert prefix_reduction_of(OTHERS[name][1].op) is None


def test_gradient_of_a_cumulative_sum_is_one_from_the_end():
    inputs, output = running((20, 30), 1)
    head = cases.placeholder("head", 20, 30)
    [gradient] = differentiate(output, inputs, head)
    assert rules_of(gradient) == ["prefix_reduction"]
    cotangent = np.random.default_rng(0).standard_normal((20, 30)).astype("float32")
    found = build([head], gradient)(cotangent)
    np.testing.assert_allclose(found, cotangent[:, ::-1].cumsum(1)[:, ::-1], rtol=1e-5, atol=1e-5)
