"""Loops that follow their guards: the points of a box that count, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tests.gradient_case import check_numbers
from tvm_autodiff import build, differentiate, estimate_cost
from tvm_autodiff.graph.stage import axis_range, reduction_of

D = "float64"
zero = tirx.const(0.0, D)


def reading(size, shape, index, reduce=(), where=None):
    """``y[a] = Σ_k if where(a, k) then x[index(a, k)]``."""
    x = te.placeholder((size,), D, name="x")
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(reduce)]

    def body(*outer):
        point = (*outer, *(axis.var for axis in axes))
        value = x[index(*point)]
        if where is not None:
            value = te.if_then_else(where(*point), value, zero)
        return te.sum(value, axis=axes) if axes else value

    return x, te.compute(shape, body, name="y")


#: case → input, output, iterations of the gradient: reads that reach an element, one at least
CASES = {
    "three axes": (reading(13, (5, 5), lambda i, j, k: i + j + k, (5,)), 125),
    "simplex": (
        reading(6, (6,), lambda i, k, m: m, (6, 6), lambda i, k, m: te.all(k <= i, m <= k)),
        56,
    ),
    "strict simplex": (
        reading(6, (6,), lambda i, k, m: m, (6, 6), lambda i, k, m: te.all(k < i, m < k)),
        22,
    ),
    "four axes": (reading(13, (4, 4), lambda i, j, k, m: i + j + k + m, (4, 4)), 256),
}
#: case → input, output: boxes that stay
BOXES = {
    "window": reading(6, (4,), lambda i, k: i + k, (3,)),
    "prefix sum": reading(8, (8,), lambda i, k: k, (8,), lambda i, k: k <= i),
}


@pytest.mark.parametrize("name", CASES)
def test_only_points_that_count_are_visited(name):
    (x, y), iterations = CASES[name]
    head = te.placeholder(y.shape, D, name="head")
    result = differentiate(y, x, head)
    [dx] = result
    assert "ragged loops" in result.explain()
    assert estimate_cost(dx).iterations == iterations


@pytest.mark.filterwarnings("ignore::tvm_autodiff.PlainScheduleWarning")  # numbers, not speed
@pytest.mark.parametrize("name", CASES)
def test_values(name):
    (x, y), _ = CASES[name]
    head = te.placeholder(y.shape, D, name="head")
    [dx] = differentiate(y, x, head)
    weights = np.random.default_rng(0).normal(size=[int(n) for n in y.shape])
    size = int(x.shape[0])
    expected = np.zeros(size)
    for n in range(size):
        unit = np.zeros(size)
        unit[n] = 1
        expected[n] = (evaluate_graph([y], {x: unit})[0] * weights).sum()
    np.testing.assert_allclose(evaluate_graph([dx], {head: weights})[0], expected, atol=1e-12)
    np.testing.assert_allclose(build([head], dx)(weights), expected, atol=1e-12)


@pytest.mark.filterwarnings("ignore::tvm_autodiff.PlainScheduleWarning")  # numbers, not speed
@pytest.mark.parametrize("name", CASES)
def test_is_differentiated_again(name):
    (x, y), _ = CASES[name]
    squares = te.compute(y.shape, lambda *i: y(*i) * y(*i) * y(*i), name="cubes")
    [dx] = differentiate(squares, [x], te.placeholder(y.shape, D, name="head"))
    check_numbers(dx, [x])


@pytest.mark.parametrize("name", BOXES)
def test_boxes_that_are_mostly_full_stay(name):
    x, y = BOXES[name]
    [dx] = differentiate(y, x, te.placeholder(y.shape, D, name="head"))
    assert all(isinstance(axis_range(axis)[1], int) for axis in reduction_of(dx.op).axes)


def test_a_product_of_tensors_stays_a_box():
    a, b = (te.placeholder((8, 8), D, name=name) for name in "ab")
    k = te.reduce_axis((0, 8), "k")
    y = te.compute(
        (8, 8),
        lambda i, j: te.sum(
            te.if_then_else(te.all(k <= i, j <= k), a[i, k] * b[k, j], zero), axis=k
        ),
        name="y",
    )
    [da] = differentiate(y, [a], te.placeholder((8, 8), D, name="head"))
    [axis] = reduction_of(da.op).axes
    assert axis_range(axis) == (0, 8)


def test_guards_that_contradict_each_other_leave_zeros():
    x = te.placeholder((2, 2), D, name="x")

    def body(i, j):  # which the guard allows nowhere
        return te.if_then_else(tirx.NE(i * 2, 1), zero, x[i, (j * 3) // 4])

    y = te.compute((2, 3), body, name="y")
    head = te.placeholder((2, 3), D, name="head")
    [dx] = differentiate(y, [x], head)
    [values] = evaluate_graph([dx], {head: np.ones((2, 3))})
    np.testing.assert_array_equal(values, np.zeros((2, 2)))


def test_a_function_without_a_known_value_keeps_the_box():
    x, y = reading(
        8, (8,), lambda i, k: k, (8,), lambda i, k: te.all(tirx.popcount(k) == 1, k <= i)
    )
    head = te.placeholder((8,), D, name="head")
    dx = build([head], list(differentiate(y, x, head)), cache=False)(np.ones(8))
    np.testing.assert_array_equal(dx, [[0, 7, 6, 0, 4, 0, 0, 0]])


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
def test_triangles_of_no_elements(shape):
    x, k = te.placeholder((3,), D, name="x"), te.reduce_axis((0, 5), "k")
    y = te.compute(
        shape, lambda i, j: te.sum(te.if_then_else(j <= k, x[i], zero), axis=k), name="y"
    )
    head = te.placeholder(shape, D, name="head")
    outputs = [y, *differentiate(y, x, head)]
    values = build([x, head], outputs, cache=False)(np.ones(3), np.ones(shape))
    assert values[0].shape == shape
    assert not values[1].any()
