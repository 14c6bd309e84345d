"""Sums of which many elements are equal: each is computed once, and the others read it."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff import differentiate, estimate_cost, simplify_reductions

D = "float64"
N = 60

#: name → whether k counts for j, and how many sums differ and have how many terms
CASES = {
    "blocks": (lambda k, j: k // 10 == j // 10, 6, 10),
    "an odd block at the end": (lambda k, j: k // 8 == j // 8, 8, 8),
    "equal remainders": (lambda k, j: k % 4 == j % 4, 4, 15),
    "even distances": (lambda k, j: tirx.floormod(j - k, 2) == 0, 2, 30),
}


def summed(name):
    x, w = (te.placeholder((N,), D, name) for name in "xw")
    k = te.reduce_axis((0, N), "k")
    holds = CASES[name][0]

    def element(j):
        return te.sum(te.if_then_else(holds(k, j), x[k] * w[k], te.const(0, D)), axis=k)

    return x, w, te.compute((N,), element, name="y")


@pytest.mark.parametrize("name", CASES)
def test_values_and_iterations(name):
    x, w, y = summed(name)
    head = te.placeholder((N,), D, name="head")
    rng = np.random.default_rng(3)
    a, b, h = (rng.standard_normal(N) for _ in range(3))
    j, k = np.indices((N, N))
    mask = CASES[name][0](k, j) if name != "even distances" else (j - k) % 2 == 0
    [simple] = simplify_reductions([y])
    [gradient] = differentiate(y, [x], head)
    found = evaluate_graph([simple, gradient], [(x, a), (w, b), (head, h)])
    for got, want in zip(found, [mask @ (a * b), (mask.T @ h) * b], strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)
    _, sums, terms = CASES[name]
    assert estimate_cost(simple).iterations <= sums * terms + N


def test_a_place_beside_its_quotient_stays():
    x, k = te.placeholder((N,), D, "x"), te.reduce_axis((0, N), "k")
    y = te.compute(
        (N,),
        lambda j: te.sum(te.if_then_else(k // 10 == j // 10, x[k] * x[j], te.const(0, D)), axis=k),
        name="y",
    )
    [simple] = simplify_reductions([y])
    assert estimate_cost(simple).iterations == N * 10
