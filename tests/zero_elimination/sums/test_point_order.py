"""Solved reductions take their points in the order in which they are written: of equal numbers, the
first has the derivative of a maximum.

The expected values and gradients come from loops over all points in Python.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff import differentiate, estimate_cost, show, simplify_reductions

D = "float64"
LOWEST = np.finfo(D).min


def both(left, right):
    plain = isinstance(left, (bool, np.bool_)) and isinstance(right, (bool, np.bool_))
    return bool(left and right) if plain else tirx.all(left, right)


def pooled(holds, elements, points, otherwise=-np.inf):
    """``o[i, j] = max_{k, m} if holds(i, j, k, m) then x[k, m] else otherwise``."""
    x = te.placeholder(points, D, name="x")
    axes = [te.reduce_axis((0, extent), name) for name, extent in zip("km", points, strict=True)]
    k, m = (axis.var for axis in axes)

    def body(i, j):
        chosen = te.if_then_else(holds(i, j, k, m), x[k, m], tirx.const(otherwise, D))
        return te.max(chosen, axis=axes)

    return x, te.compute(elements, body, name="o")


def by_loops(x, head, holds, otherwise=-np.inf):
    """The values, and the gradient at the first best number."""
    values, gradient = np.empty(head.shape), np.zeros(x.shape)
    for i, j in np.ndindex(*head.shape):
        best, place = LOWEST, None
        for k, m in np.ndindex(*x.shape):
            value = x[k, m] if holds(i, j, k, m) else otherwise
            if value > best:
                best, place = value, (k, m) if holds(i, j, k, m) else None
        values[i, j] = best
        if place is not None:
            gradient[place] += head[i, j]
    return values, gradient


def assert_as_by_loops(holds, elements, points):
    """The simplified stage and its gradient; returns the costs before and after."""
    x, o = pooled(holds, elements, points)
    head = te.placeholder(elements, D, name="head")
    [solved] = simplify_reductions(o)
    [direct], [after] = differentiate(o, [x], head), differentiate(solved, [x], head)
    numbers = np.random.default_rng(0).integers(0, 3, points).astype(D)
    heads = np.arange(1.0, np.prod(elements) + 1).reshape(elements)
    values, gradient = by_loops(numbers, heads, holds)
    got = evaluate_graph([o, solved, direct, after], {x: numbers, head: heads}, strict=True)
    for found, want in zip(got, [values, values, gradient, gradient], strict=True):
        np.testing.assert_array_equal(found, want)
    return estimate_cost(o).iterations, estimate_cost(solved).iterations


#: name → the points that count, the numbers of elements and points, the points of each in the end
ORDERS = {
    "a window before": (
        lambda i, j, k, m: both(m <= j, both(m > j - 3, k == i)), (4, 6), (4, 6), 3
    ),
    "against both axes": (
        lambda i, j, k, m: both(both(m <= j, m > j - 3), both(k <= i, k > i - 2)), (4, 6), (4, 6), 6
    ),
    "blocks": (lambda i, j, k, m: both(k // 2 == i, m // 3 == j), (2, 2), (4, 6), 6),
    "remainders": (lambda i, j, k, m: both(k % 2 == i, m % 3 == j), (2, 3), (4, 6), 4),
    "one axis by the other": (lambda i, j, k, m: both(k + m == j, k >= i), (2, 8), (4, 6), 4),
    "exchanged": (lambda i, j, k, m: both(m == 5 - i, k // 2 == j), (6, 2), (4, 6), 2),
    "a diagonal": (lambda i, j, k, m: both(k - m == i - j, k >= 0), (4, 6), (4, 6), 4),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_order(name):
    holds, elements, points, left = ORDERS[name]
    count = int(np.prod(elements))
    before, after = assert_as_by_loops(holds, elements, points)
    assert (before, after) == (count * int(np.prod(points)), count * left)


def test_a_reversed_axis_is_written_without_its_end():
    x, k = te.placeholder((9,), name="x"), te.reduce_axis((0, 9), "k")

    def body(j):
        near = tirx.all(k <= j, k > j - 4)
        return te.max(te.if_then_else(near, x[k], te.min_value("float32")), axis=k)

    [solved] = simplify_reductions(te.compute((9,), body, name="o"))
    assert "max_{t0<4} if 3 <= j + t0 then x[j + t0 - 3] else" in show(solved)


@st.composite
def conditions(draw):
    """One or two affine conditions on the elements i, j and the points k, m."""

    def one():
        factors = [draw(st.integers(-2, 2)) for _ in range(4)]
        constant, divisor = draw(st.integers(-4, 4)), draw(st.sampled_from([0, 0, 2, 3]))
        relation = draw(st.sampled_from(["eq", "eq", "eq", "lt"]))
        quotient = draw(st.booleans())

        def holds(*axes):
            value = sum(factor * axis for factor, axis in zip(factors, axes, strict=True))
            value = value + constant
            if divisor:
                value = value // divisor if quotient else value % divisor
            if relation == "lt":
                return value < 1
            return value == 0

        return holds if any(factors) else lambda *axes: axes[2] == axes[0]

    first, second = one(), one()
    single = draw(st.booleans())
    return first if single else lambda *axes: both(first(*axes), second(*axes))


@pytest.mark.filterwarnings("ignore::tvm_autodiff.DenseSumWarning")
@settings(max_examples=60, deadline=None)
@given(conditions(), st.tuples(*[st.integers(1, 4)] * 2), st.tuples(*[st.integers(1, 5)] * 2))
def test_random_orders(holds, elements, points):
    before, after = assert_as_by_loops(holds, elements, points)
    assert after <= before


@settings(max_examples=60, deadline=None)
@given(conditions(), st.tuples(*[st.integers(1, 4)] * 2), st.tuples(*[st.integers(1, 5)] * 2))
def test_random_numbers_beside_the_points(holds, elements, points):
    """A constant above the identity counts where a point holds it, and only there."""
    x, o = pooled(holds, elements, points, otherwise=0.0)
    [solved] = simplify_reductions(o)
    signs = itertools.cycle([-1.0, -2.0, 1.0, -3.0])
    numbers = np.array([next(signs) for _ in range(int(np.prod(points)))]).reshape(points)
    values, _ = by_loops(numbers, np.zeros(elements), holds, otherwise=0.0)
    [got] = evaluate_graph([solved], {x: numbers}, strict=True)
    np.testing.assert_array_equal(got, values)
