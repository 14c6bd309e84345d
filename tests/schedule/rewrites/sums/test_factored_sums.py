"""Factors pulled out of sums: equal values, what stays in the loop, and what is not touched."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import is_load, load_tensor, op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.free_variables import free_variables
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import bodies, reduction_of
from tvm_autodiff.schedule.rewrites.sums.factored_sums import with_factored_sums

N, M = 6, 9
x = te.placeholder((N, M), "float64", name="x")
u = te.placeholder((N,), "float64", name="u")
s = te.placeholder((), "float64", name="s")
INPUTS = (x, u, s)
zero = tirx.const(0.0, "float64")


def row_sum(body, reduce=te.sum):
    k = te.reduce_axis((0, M), "k")
    return te.compute((N,), lambda i: reduce(body(i, k), axis=k), name="y")


#: name → (terms, what they read in the loop afterwards)
CASES = {
    "loop invariants": (lambda i, k: 2.0 * te.exp(x[i, k]) * s() / s(), "x"),
    "two terms": (lambda i, k: te.exp(x[i, k]) * s() * 2.0 + te.exp(x[i, k]) * s() * 3.0, "x"),
    "a factor of a row": (lambda i, k: te.exp(x[i, k]) * u[i], "xu"),
    "a slow factor of a row": (lambda i, k: x[i, k] * te.rsqrt(u[i]) * s(), "x"),
    "a slow divisor of a row": (lambda i, k: x[i, k] / te.sqrt(u[i]) * x[i, k], "x"),
    "a divisor of a row": (lambda i, k: -(x[i, k] / u[i] * s()) / u[i], "x"),
    "under a condition": (
        lambda i, k: te.if_then_else(k >= i, te.exp(x[i, k]) * te.sqrt(u[i]), zero),
        "x",
    ),
    "a choice by what a row holds": (
        lambda i, k: tirx.Select(u[i] > 1.0, zero, x[i, k] * te.log(u[i])),
        "x",
    ),
    "a choice by what the sum changes": (
        lambda i, k: tirx.Select(x[i, k] > 1.0, zero, x[i, k] * te.log(u[i])),
        "xu",
    ),
    "terms under a condition": (
        lambda i, k: te.if_then_else(k >= i, x[i, k] * te.exp(u[i]) + x[i, k] * te.exp(s()), zero),
        "x",
    ),
    "several invariant factors": (lambda i, k: te.tanh(x[i, k]) * s() * u[0] * u[1] * -1.0, "x"),
}


@pytest.mark.parametrize("name", CASES)
def test_factors_leave_the_loop(name):
    body, left = CASES[name]
    y = row_sum(body)
    [changed] = with_factored_sums([y])
    rng = np.random.default_rng(0)
    given = {t: rng.uniform(0.5, 2.0, [int(n) for n in t.shape]) for t in INPUTS}
    [want], [got] = evaluate_graph([y], given), evaluate_graph([changed], given)
    np.testing.assert_allclose(got, want, rtol=1e-14)
    [reduction] = [found for op in Graph([changed]).ops if (found := reduction_of(op)) is not None]
    reads = {load_tensor(node) for node in postorder(list(reduction.sources)) if is_load(node)}
    assert {str(tensor.op.name) for tensor in reads} == set(left)


@pytest.mark.parametrize(
    "body",
    [
        lambda i, k: te.exp(x[i, k]),
        lambda i, k: x[i, k] * s(),  # waits for memory, whatever it multiplies
    ],
)
def test_what_stays(body):
    y = row_sum(body)
    assert with_factored_sums([y])[0].same_as(y)


a, b = (te.placeholder((8, 9), "float64", name=name) for name in "ab")
place = te.placeholder((8, 8), "float64", name="place")


def product(body):
    """``y[i, j] = Σ_k body(a[i, k]*b[j, k], place[i, j], i, j, k)``."""
    k = te.reduce_axis((0, 9), "k")
    return te.compute(
        (8, 8),
        lambda i, j: te.sum(body(a[i, k] * b[j, k], place, i, j, k), axis=k),
        name="y",
    )


#: the sum of a product of matrices, and whether what the results hold leaves it
PRODUCTS = {
    "times an element": (lambda ab, p, i, j, k: ab * p[i, j], True),
    "under a condition of the sum": (
        lambda ab, p, i, j, k: te.if_then_else(k >= i, ab * p[i, j], zero),
        True,
    ),
    "under a condition of data": (
        lambda ab, p, i, j, k: te.if_then_else(p[i, j] > 1.0, ab, zero),
        True,
    ),
    "under both": (
        lambda ab, p, i, j, k: te.if_then_else(te.all(p[i, j] > 1.0, k >= i), ab, zero),
        True,
    ),
    "a choice by data": (
        lambda ab, p, i, j, k: tirx.Select(p[i + k - k, j] > 1.0, ab, zero),
        True,
    ),
    "a choice by data that the sum changes": (
        lambda ab, p, i, j, k: tirx.Select(p[i, k % 8] > 1.0, ab, zero),
        False,
    ),
    "a choice of two, as of a leaky rectifier": (
        lambda ab, p, i, j, k: (
            tirx.Select(p[i, j] >= 1.0, ab, zero) + tirx.Select(p[i, j] < 1.0, ab * 0.1, zero)
        ),
        True,
    ),
    "a choice of two under branches": (
        lambda ab, p, i, j, k: (
            te.if_then_else(p[i, j] > 1.0, ab, zero)
            + te.if_then_else(tirx.Not(p[i, j] > 1.0), ab * te.exp(p[i, j]), zero)
        ),
        True,
    ),
    "a choice of either side": (
        lambda ab, p, i, j, k: (
            te.if_then_else(p[i, j] > 1.0, zero, ab * 0.1)
            + te.if_then_else(p[i, j] > 1.0, ab, zero)
        ),
        True,
    ),
    "two choices that are not opposite": (
        lambda ab, p, i, j, k: (
            tirx.Select(p[i, j] >= 1.0, ab, zero) + tirx.Select(p[i, j] < 0.9, ab * 0.1, zero)
        ),
        False,
    ),
    "a choice of two that the sum changes": (
        lambda ab, p, i, j, k: (
            tirx.Select(p[i, k % 8] >= 1.0, ab, zero) + tirx.Select(p[i, k % 8] < 1.0, ab, zero)
        ),
        False,
    ),
    "a condition that keeps reads in bounds": (
        lambda ab, p, i, j, k: te.if_then_else(
            te.all(i >= 1, p[i - 1, j] > 1.0), a[i - 1, k] * b[j, k], zero
        ),
        False,
    ),
    "a quotient of an element that may be zero": (
        lambda ab, p, i, j, k: te.if_then_else(k >= i + 2, ab / (p[i, j] - p[i, j]), zero),
        True,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_results_leave_a_product_of_matrices(name):
    body, leaves = PRODUCTS[name]
    y = product(body)
    [changed] = with_factored_sums([y])
    [reduction] = [found for op in Graph([changed]).ops if (found := reduction_of(op)) is not None]
    reads = [load_tensor(n) for n in postorder(list(reduction.sources)) if is_load(n)]
    assert all(tensor.op.name != "place" for tensor in reads) == leaves
    rng = np.random.default_rng(0)
    given = {t: rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in (a, b, place)}
    [want], [got] = evaluate_graph([y], given), evaluate_graph([changed], given)
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_neither_of_two_choices_holds_for_nan():
    y = product(PRODUCTS["a choice of two, as of a leaky rectifier"][0])
    [changed] = with_factored_sums([y])
    given = {t: np.ones([int(n) for n in t.shape]) for t in (a, b, place)}
    given[place][2, 3] = np.nan
    [want], [got] = evaluate_graph([y], given), evaluate_graph([changed], given)
    np.testing.assert_array_equal(got, want)


def test_a_maximum_stays():
    y = row_sum(lambda i, k: te.exp(x[i, k]) * s() * 2.0 + te.exp(x[i, k]) * s(), te.max)
    assert with_factored_sums([y])[0].same_as(y)


def test_the_winner_of_a_maximum_is_found():
    # the gradient compares elements, computed again, with the stored maximum
    y = row_sum(lambda i, k: te.exp(x[i, k]) * s() * 0.1 + te.exp(x[i, k]) * u[i] * s(), te.max)
    [dx] = ad.differentiate(te.compute((), lambda: y[0] + y[N - 1], name="loss"), [x])
    rng = np.random.default_rng(1)
    given = [rng.uniform(0.5, 2.0, [int(n) for n in t.shape]) for t in INPUTS]
    got = ad.build(list(INPUTS), dx)(*given)
    assert (got[[0, N - 1]] != 0).sum(axis=1).tolist() == [1, 1]


def test_exact_math_multiplies_each_term():
    y = row_sum(lambda i, k: te.exp(x[i, k]) * s())
    sources = [ad.build(list(INPUTS), y, exact_math=exact).source("ll") for exact in (False, True)]
    assert sources[0] != sources[1]
    given = [np.ones((N, M)), np.ones(N), np.array(3.0)]
    np.testing.assert_allclose(ad.build(list(INPUTS), y)(*given), np.full(N, 3 * M * np.e))


def test_functions_are_computed_once():
    y = row_sum(lambda i, k: te.exp(x[i, k]) * s() + te.exp(x[i, k]) * u[i])
    [changed] = with_factored_sums([y])
    count = sum(
        op_name(node) == "exp"
        for op in Graph([changed]).ops
        if op.input_tensors
        for node in postorder(list(bodies(op)))
    )
    assert count == 1


def test_factors_of_empty_sums_are_not_evaluated():
    n = te.var("n")
    v = te.placeholder((n,), "float64", name="v")
    k = te.reduce_axis((0, n), "k")
    y = te.compute((), lambda: te.sum(te.exp(v[k]) * v[n - 1] / n.astype("float64"), axis=k))
    assert "if n > 0 then" in str(ad.show(with_factored_sums([y])))
    assert ad.build(v, y, cache=False)(np.zeros(0)) == 0


@pytest.mark.parametrize(
    "body",
    [
        lambda k, j: te.exp(x[0, k] - x[1, j]) * (2.0 * x[2, k]),
        lambda k, j: te.exp(x[0, k] - x[1, j]) * s(),
        lambda k, j: te.exp(x[0, k] - x[1, j]) / s(),
    ],
    ids=["a number", "a tensor", "a divisor"],
)
def test_sums_whose_inner_extent_follows_an_outer_axis(body):
    k = te.reduce_axis((0, M), "k")
    j = te.reduce_axis((0, k.var), "j")
    y = te.compute((N,), lambda i: te.sum(body(k.var, j.var), axis=[k, j]), name="y")
    changed = with_factored_sums([y])
    assert not any(free_variables(op) for op in Graph(changed).ops)
    rng = np.random.default_rng(0)
    given = {t: rng.uniform(0.5, 2.0, [int(n) for n in t.shape]) for t in INPUTS}
    np.testing.assert_allclose(evaluate_graph(changed, given), evaluate_graph([y], given))
