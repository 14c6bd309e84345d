"""Prefix sums inside of sums of products: equal values, one step for each element, what stays."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.nest.reductions.prefix_reductions import prefix_reduction_of
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rewrites.sums.scanned_sums import with_scanned_sums

N, M = 5, 24
x = te.placeholder((N, M), "float64", name="x")
w = te.placeholder((M,), "float64", name="w")
head = te.placeholder((N, M), "float64", name="head")
INPUTS = (x, w, head)

#: name → whether element k counts for result j
ORDERS = {
    "inclusive": lambda k, j: k <= j,
    "exclusive": lambda k, j: k < j,
    "reversed": lambda k, j: k >= j,
    "reversed, exclusive": lambda k, j: k > j,
}


def running_product(counts):
    k = te.reduce_axis((0, M), "k")
    zero = te.const(0.0, "float64")
    return te.compute(
        (N, M),
        lambda i, j: te.sum(te.if_then_else(counts(k, j), x[i, k] * w[k], zero), axis=k),
        name="y",
    )


def arrays(seed):
    rng = np.random.default_rng(seed)
    return {t: rng.integers(-4, 5, [int(n) for n in t.shape]).astype("float64") for t in INPUTS}


def prefixes(tensors):
    return sum(prefix_reduction_of(op) is not None for op in Graph(tensors).ops if op.input_tensors)


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_of_running_products(order):
    y = running_product(ORDERS[order])
    gradients = ad.differentiate(y, [x, w], head)
    changed = with_scanned_sums(gradients)
    given = arrays(0)
    want = evaluate_graph(gradients, given)
    for got, exact in zip(evaluate_graph(changed, given), want, strict=True):
        np.testing.assert_array_equal(got, exact)
    assert prefixes(changed) == 1  # both read the same prefix sum
    function = ad.build(list(INPUTS), [y, *gradients])
    for got, exact in zip(function(*given.values())[1:], want, strict=True):
        np.testing.assert_array_equal(got, exact)
    rules = {kernel.rule for kernel in function.profile(*given.values()).kernels}
    assert "fallback" not in rules


def total(body):
    i, k = te.reduce_axis((0, N), "i"), te.reduce_axis((0, M), "k")
    return te.compute((M,), lambda j: te.sum(body(i, j, k), axis=[i, k]), name="t")


ZERO = te.const(0.0, "float64")
STAYS = {
    "no prefix": total(lambda i, j, k: head[i, k] * x[i, j]),
    "a factor of both": total(
        lambda i, j, k: te.if_then_else(k > j, head[i, k] * x[i, (j + k) % M] * w[j], ZERO)
    ),
    "a read that the condition keeps inside": total(
        lambda i, j, k: te.if_then_else(k > j, head[i, k] * x[i, j + 1], ZERO)
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name):
    assert with_scanned_sums([STAYS[name]])[0].same_as(STAYS[name])


def test_exact_math_leaves_out_what_does_not_count():
    [dx] = ad.differentiate(running_product(ORDERS["exclusive"]), [x], head)
    given = arrays(1)
    given[w][M - 1] = np.inf  # no result counts the last element
    got = ad.build(list(INPUTS), dx, exact_math=True)(*given.values())
    assert (got[:, M - 1] == 0).all()


def test_an_axis_within_the_summed_one_stays():
    i = te.reduce_axis((0, 20), "i")
    k = te.reduce_axis((0, i.var + 1), "k")
    body = lambda j: te.sum(te.if_then_else(i <= j, x[1, i] * w[k], ZERO), axis=[i, k])  # noqa: E731
    y = te.compute((M,), body, name="y")
    given = arrays(2)
    [want] = evaluate_graph([y], given)
    np.testing.assert_array_equal(evaluate_graph(with_scanned_sums([y]), given)[0], want)
    np.testing.assert_array_equal(ad.build(list(INPUTS), y)(*given.values()), want)


@pytest.mark.parametrize("order", ["exclusive", "reversed, exclusive"])
def test_divisors_count_only_where_something_is_summed(order):
    """The mean of the elements before has none at the first place, and divides by zero there."""
    counts, k = ORDERS[order], te.reduce_axis((0, M), "k")
    zero = te.const(0.0, "float64")

    def body(i, j):
        number = (j if order == "exclusive" else M - 1 - j).astype("float64")
        return te.sum(te.if_then_else(counts(k, j), x[i, k] / number, zero), axis=k)

    y = te.compute((N, M), body, name="mean")
    changed = with_scanned_sums([y])
    assert prefixes(changed) == 1
    given = arrays(1)
    [got], [want] = evaluate_graph(changed, given), evaluate_graph([y], given)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-15)


def test_conditions_of_rows_keep_the_reads_of_a_prefix_sum_in_bounds():
    k = te.reduce_axis((0, M), "k")
    zero = te.const(0.0, "float64")
    y = te.compute(
        (N, M),
        lambda i, j: te.sum(
            te.if_then_else(te.all(i >= 1, k <= j), x[i - 1, k] * w[j], zero), axis=k
        ),
        name="y",
    )
    [changed] = with_scanned_sums([y])
    given = arrays(1)
    assert prefixes([changed]) == 1
    [want], [got] = evaluate_graph([y], given), evaluate_graph([changed], given, strict=True)
    np.testing.assert_array_equal(got, want)


ONE = te.const(1.0, "float64")
#: ways to write a sum of the elements up to j
FORMS = {
    "a number": lambda i, j, k: tirx.Cast("float64", k.var <= j) * x[i, k],
    "a number among others": lambda i, j, k: w[k] * tirx.Cast("float64", k.var <= j) * x[i, k],
    "a choice of numbers": lambda i, j, k: tirx.Select(k <= j, ONE, ZERO) * x[i, k],
    "a negation": lambda i, j, k: te.if_then_else(tirx.Not(k > j), x[i, k], ZERO),
    "the other branch": lambda i, j, k: te.if_then_else(k > j, ZERO, x[i, k]),
    "within a mask": lambda i, j, k: te.if_then_else(
        w[k] > 0, te.if_then_else(k <= j, x[i, k], ZERO), ZERO
    ),
    "with a mask of what is summed": lambda i, j, k: te.if_then_else(
        te.all(k <= j, x[i, k] > 0), x[i, k], ZERO
    ),
    "with a mask of the result": lambda i, j, k: te.if_then_else(
        te.all(k <= j, head[i, j] > 0), x[i, k], ZERO
    ),
    "of what a choice cuts": lambda i, j, k: te.if_then_else(
        k <= j, tirx.Select(x[i, k] > 0, x[i, k], ZERO), ZERO
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_ways_to_write_a_prefix_sum(name):
    """The value and its gradient take a step for each element, not for each pair."""
    k = te.reduce_axis((0, M), "k")
    y = te.compute((N, M), lambda i, j: te.sum(FORMS[name](i, j, k), axis=k), name="y")
    [dx] = ad.vjp([y], [x], [head])
    given = arrays(3)
    for before in (y, dx):
        [after] = with_scanned_sums(normal_form([before]))
        assert prefixes([after]) == 1
        [got], [want] = evaluate_graph([after], given), evaluate_graph([before], given)
        np.testing.assert_array_equal(got, want)


def test_a_condition_that_the_order_keeps_in_bounds_stays():
    """Where nothing is summed, the condition of the result is not looked at."""
    k = te.reduce_axis((0, M), "k")
    y = te.compute(
        (N, M),
        lambda i, j: te.sum(
            te.if_then_else(te.all(k + 5 <= j, w[j - 5] > 0), x[i, k], ZERO), axis=k
        ),
        name="y",
    )
    given = arrays(4)
    [want] = evaluate_graph([y], given)
    [plain] = normal_form([y])
    np.testing.assert_array_equal(evaluate_graph(with_scanned_sums([plain]), given)[0], want)
    np.testing.assert_array_equal(ad.build(list(INPUTS), y)(*given.values()), want)


def test_a_choice_within_a_branch_keeps_its_condition_there():
    """``w[k - 1]`` is read where the branch is taken: joined conditions are all looked at."""
    k = te.reduce_axis((0, M), "k")

    def body(i, j):
        chosen = tirx.Select(w[k - 1] > 0, x[i, k], ZERO)
        return te.sum(te.if_then_else(te.all(k <= j, k >= 1), chosen, ZERO), axis=k)

    y = te.compute((N, M), body, name="y")
    given = arrays(5)
    [plain] = normal_form([y])
    [changed] = with_scanned_sums([plain])
    [want] = evaluate_graph([y], given)
    np.testing.assert_array_equal(evaluate_graph([changed], given, strict=True)[0], want)
    np.testing.assert_array_equal(ad.build(list(INPUTS), y)(*given.values()), want)


@pytest.mark.parametrize("exact", [False, True])
def test_an_infinite_number_that_does_not_count(exact):
    """Zero times infinity is no number: only exact math multiplies by a condition."""
    k = te.reduce_axis((0, M), "k")
    y = te.compute((N, M), lambda i, j: te.sum(FORMS["a number"](i, j, k), axis=k), name="y")
    given = arrays(6)
    given[x][:, M - 1] = np.inf  # counts for the last result alone
    got = ad.build(list(INPUTS), y, exact_math=exact)(*given.values())
    assert np.isnan(got[:, : M - 1]).all() if exact else np.isfinite(got[:, : M - 1]).all()
    assert np.isinf(got[:, M - 1]).all()
