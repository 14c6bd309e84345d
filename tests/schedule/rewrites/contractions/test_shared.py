"""Sums that several contractions begin with: computed once, with equal values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.schedule.rewrites.contractions.ordered import with_ordered_contractions

N, M, D = 6, 7, 20
a = te.placeholder((N, D), "float64", name="a")
b = te.placeholder((M, D), "float64", name="b")
e = te.placeholder((N, M), "float64", name="e")
s = te.placeholder((N,), "float64", name="s")


def total(shape, over, body, name):
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(over)]
    return te.compute(shape, lambda *place: te.sum(body(*place, *axes), axis=axes), name=name)


def gradients_of_a_quotient():
    x = total((N,), (D, M), lambda i, d, k: -a[i, d] * b[k, d] * (e[i, k] / s[i]) / s[i], "x")
    y = total((N, M), (D,), lambda i, k, d: a[i, d] * b[k, d] / s[i], "y")
    return x, y


def with_a_contraction_itself():
    x = total((), (N, M, D), lambda i, k, d: b[k, d] * e[i, k] * a[i, d] * 2.0, "x")
    y = total((N, M), (D,), lambda i, k, d: a[i, d] * b[k, d], "y")
    return x, y


def other_order_of_loops():
    x = total((), (M, N, D), lambda k, i, d: a[i, d] * b[k, d] * e[i, k] * e[i, k], "x")
    y = total((M, N), (D,), lambda k, i, d: a[i, d] * b[k, d] * s[i], "y")
    return x, y


def product(i, k, d):
    return 3.0 * ((a[i, d] - b[k, d]) * (a[i, d] + 2.0 * b[k, d]) * e[i, k] + e[i, k])


def sum_of_terms(i, k, d):
    return (a[i, d] - b[k, d]) * (a[i, d] + 2.0 * b[k, d]) * e[i, k] - (a[i, d] + b[k, d]) * a[i, d]


def terms_under_a_condition(i, k, d):
    return te.if_then_else(e[i, k] > 0.0, sum_of_terms(i, k, d), 0.0)


VALUES = [product, sum_of_terms, terms_under_a_condition]


def weighted_by_coordinates(value):
    """The gradient of parameters of a motion: values at all points, times the coordinates."""

    def along(coordinate, name):
        return total((), (N, M, D), lambda i, k, d: value(i, k, d) * coordinate(i, k), name)

    x = along(lambda i, k: i.astype("float64"), "x")
    y = along(lambda i, k: k.astype("float64") * 2.0 - 1.0, "y")
    return x, y, total((), (N, M, D), value, "z")


@pytest.mark.parametrize(
    "program", [gradients_of_a_quotient, with_a_contraction_itself, other_order_of_loops]
)
def test_once(program):
    outputs = list(program())
    shared = with_ordered_contractions(outputs)
    rng = np.random.default_rng(0)
    given = {
        tensor: rng.integers(-4, 5, [int(n) for n in tensor.shape]).astype("float64")
        for tensor in (a, b, e)
    }
    given[s] = 2.0 ** rng.integers(-2, 3, N)  # quotients by powers of two are exact
    results = evaluate_graph(shared, given), evaluate_graph(outputs, given)
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.abs(want).sum() > 0
    products = N * M * D
    assert ad.estimate_cost(outputs).multiplications >= 3 * products
    assert ad.estimate_cost(shared).multiplications <= 1.3 * products


@pytest.mark.parametrize("value", VALUES)
def test_a_value_that_several_sums_weight_is_computed_once(value):
    outputs = list(weighted_by_coordinates(value))
    shared = with_ordered_contractions(outputs)
    rng = np.random.default_rng(0)
    given = {t: rng.integers(-4, 5, [int(n) for n in t.shape]).astype("float64") for t in (a, b, e)}
    results = evaluate_graph(shared, given), evaluate_graph(outputs, given)
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.abs(want).sum() > 0
    before, after = ad.estimate_cost(outputs), ad.estimate_cost(shared)
    assert after.multiplications <= 0.4 * before.multiplications


@pytest.mark.parametrize("value", VALUES)
def test_a_value_of_one_sum_stays(value):
    x, *_ = weighted_by_coordinates(value)
    assert with_ordered_contractions([x])[0].same_as(x)


def gradient_of_a_kernel(function, n=30, d=40):
    """The gradient of ``Σ_k f(u[i] - u[k])*b[k, j]`` with respect to u reads one product twice."""
    u, b = te.placeholder((n,), "float64", "u"), te.placeholder((n, d), "float64", "b")
    head = te.placeholder((n, d), "float64", "head")
    y = total((n, d), (n,), lambda i, j, k: function(u[i] - u[k]) * b[k, j], "y")
    return [u, b, head], ad.differentiate(y, [u], head)


@pytest.mark.parametrize(
    "function",
    [
        lambda d: te.exp(-d * d),  # as expensive as it is, it is evaluated once for each pair
        lambda d: 1.0 / (1.0 + d * d),
        lambda d: te.max(1.0 - te.abs(d), 0.0),
        lambda d: te.max(d, 0.0),
    ],
)
def test_the_gradient_of_a_kernel_of_data_begins_with_one_product(function):
    inputs, [gradient] = gradient_of_a_kernel(function)
    [ordered] = with_ordered_contractions([gradient])
    rng = np.random.default_rng(0)
    given = {t: rng.standard_normal([int(n) for n in t.shape]) for t in inputs}
    [want], [got] = evaluate_graph([gradient], given), evaluate_graph([ordered], given)
    np.testing.assert_allclose(got, want, rtol=1e-10)
    assert ad.estimate_cost(ordered).iterations <= 30 * 30 * (40 + 3)


def test_different_sums_stay():
    x = total((N,), (M, D), lambda i, k, d: a[i, d] * b[k, d] * e[i, k], "x")
    y = total((N, M), (D,), lambda i, k, d: a[i, d] * b[M - 1 - k, d], "y")
    assert with_ordered_contractions([x, y])[1].same_as(y)
