"""`narrowed_results` by cases: the results that sums are computed for; values stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.rewrites.sums.narrowed_results import with_narrowed_results

ROWS, READ, TABLE, TAPS = 9, 24, 30, 4
x = te.placeholder((ROWS, 7 * READ // 5 + TAPS + 4), "float64", name="x")
h = te.placeholder((ROWS, READ), "float64", name="h")
zero = tirx.const(0.0, "float64")


def product(i, j, k):
    return h[i, j] * x[i, 7 * j // 5 + k]


def shifted(i, j, k):
    return h[i, j - 3] * x[i, 7 * (j - 3) // 5 + k]


def table(condition, value=product, rows=ROWS):
    """``y[j, k] = Σ_i if condition then value else 0``, of more rows than there are."""
    i = te.reduce_axis((0, rows), "i")
    return te.compute(
        (TABLE, TAPS),
        lambda j, k: te.sum(te.if_then_else(condition(i, j, k), value(i, j, k), zero), axis=i),
        name="y",
    )


#: a sum, and the shape that it is computed for
CASES = {
    "the first rows": (table(lambda i, j, k: j <= READ - 1), (READ, TAPS)),
    "fewer than": (table(lambda i, j, k: j < READ), (READ, TAPS)),
    "from a literal": (table(lambda i, j, k: j < READ), (READ, TAPS)),
    "a part of them": (
        table(lambda i, j, k: te.all(j >= 3, j < READ + 3), shifted),
        (READ, TAPS),
    ),
    "and of the taps": (table(lambda i, j, k: te.all(j < READ, k > 1)), (READ, TAPS - 2)),
    "with a condition of the sum": (table(lambda i, j, k: te.all(j < READ, i <= j)), (READ, TAPS)),
    "without a quotient": (
        table(lambda i, j, k: j < READ, lambda i, j, k: h[i, j] * x[i, j + k]),
        None,
    ),
    "of taps alone": (
        table(lambda i, j, k: te.all(k > 1, j + k < READ + k)),
        None,
    ),
    "few terms": (table(lambda i, j, k: j < READ, rows=4), None),
}


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    y, shape = CASES[name]
    [got] = with_narrowed_results([y])
    made = [op for op in topological([got]) if op.name == "y_narrowed"]
    assert [shape_of(op.output(0)) for op in made] == ([] if shape is None else [shape])
    rng = np.random.default_rng(0)
    given = {t: rng.standard_normal([int(n) for n in t.shape]) for t in (x, h)}
    [want], [found] = evaluate_graph([y], given), evaluate_graph([got], given)
    np.testing.assert_allclose(found, want, rtol=1e-13, atol=1e-15)


def test_no_result_has_terms():
    y = table(lambda i, j, k: te.all(j < 5, j > 10))
    assert with_narrowed_results([y])[0].same_as(y)


def test_the_gradient_of_a_table_that_is_longer_than_what_is_read():
    weights = te.placeholder((TABLE, TAPS), "float64", name="weights")
    k = te.reduce_axis((0, TAPS), "k")
    y = te.compute(
        (ROWS, READ), lambda i, j: te.sum(x[i, 7 * j // 5 + k] * weights[j, k], axis=k), name="y"
    )
    [gradient] = ad.differentiate(y, [weights], h)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal([int(n) for n in t.shape]) for t in (x, h))
    want = np.zeros((TABLE, TAPS))
    for j in range(READ):
        for tap in range(TAPS):
            want[j, tap] = b[:, j] @ a[:, 7 * j // 5 + tap]
    found = ad.build([x, h], gradient, cache=False)(a, b)
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-14)
