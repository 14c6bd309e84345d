"""Quotients by one number in sums: as factors, with the values of quotients."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff import build
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import bodies, is_compute
from tvm_autodiff.schedule.rewrites.reciprocals import with_reciprocals

N, M = 80, 50


def program(body, dtype="float32", extent=M):
    """A sum for each row, over quotients."""
    x = te.placeholder((N, extent), name="x", dtype=dtype)
    s = te.placeholder((), name="s", dtype=dtype)
    v = te.placeholder((N,), name="v", dtype=dtype)
    k = te.reduce_axis((0, extent), "k")
    total = te.compute((N,), lambda i: te.sum(body(x[i, k], s(), v[i], k), axis=k), name="total")
    return [x, s, v], total


def divisions(outputs):
    """How many quotients are left in sums."""
    large = [op for op in Graph(outputs).ops if is_compute(op) and len(op.axis)]
    return sum(op_name(node) == "div" for op in large for node in postorder(bodies(op)[0]))


CASES = {
    "a number": (lambda x, s, v, k: x / s, 0),
    "an expression": (lambda x, s, v, k: te.exp(x / (2.0 * s * s)), 0),
    "two": (lambda x, s, v, k: x / s / (s + 1.0), 0),
    "a divisor of a row": (lambda x, s, v, k: x / v, 1),
    "a divisor that varies": (lambda x, s, v, k: s / (x + 2.0), 1),
    "a literal": (lambda x, s, v, k: x / 3.0, 0),
    "a tiny literal": (lambda x, s, v, k: x / 1e-38, 1),
    "both are numbers": (lambda x, s, v, k: x * (1.0 / s), 1),
    "guarded": (lambda x, s, v, k: te.if_then_else(k < 7, x / s, 0.0), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_which_quotients_become_products(name):
    body, left = CASES[name]
    inputs, total = program(body)
    found = with_reciprocals([total])
    assert divisions(found) == left
    rng = np.random.default_rng(0)
    arrays = {t: rng.uniform(0.5, 2.0, [int(d) for d in t.shape]) for t in inputs}
    [old], [new] = evaluate_graph([total], arrays), evaluate_graph(found, arrays)
    np.testing.assert_allclose(new, old, rtol=1e-5)


def test_few_quotients_stay():
    _, total = program(CASES["a number"][0], extent=4)
    assert divisions(with_reciprocals([total])) == 1


TINY, LARGE = 2.0**-126, 2.0**127
NUMBERS = [1.0, -3.0, TINY, LARGE, 1e-30, 1e30, 0.0, np.inf, np.nan]


@pytest.mark.parametrize("number", NUMBERS)
def test_quotients_of_any_size(number):
    inputs, total = program(CASES["a number"][0])
    function, exact = (build(inputs, total, exact_math=exact) for exact in (False, True))
    x = np.zeros((N, M), "float32")
    x[:, 3] = 1.5 * (number if np.isfinite(number) and number else 1.0)
    x[5] = 0.0
    given = x, np.float32(number), np.ones(N, "float32")
    np.testing.assert_allclose(function(*given), exact(*given), rtol=3e-7)


def test_a_divisor_that_an_empty_sum_does_not_read_stays():
    n = te.var("n")
    x, k = te.placeholder((n,), name="x"), te.reduce_axis((0, n), "k")
    y = te.compute((N,), lambda i: te.sum(x[k] / x[n - 1], axis=k), name="y")
    [same] = with_reciprocals([y])
    assert same.same_as(y)
