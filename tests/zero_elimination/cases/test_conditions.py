"""Conditions that hold in several parts of a range: the cases are disjoint and cover them, by brute
force, and sums and their gradients take as many iterations as there are points.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tests.numeric import run
from tvm_autodiff import check_grads, differentiate, estimate_cost, simplify_reductions
from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.rules.terms import Condition
from tvm_autodiff.zero_elimination.cases.conditions import cases_of
from tvm_autodiff.zero_elimination.passes.reductions import solve_masks

D = "float64"
N = 30


class Case(NamedTuple):
    """A condition on k and j, in te and in numpy, and the number of points of each j that are
    summed; None for sums up to a place, which are two at most, and for what stays dense.
    """

    condition: Callable[[Any, Any], Any]
    holds: Callable[[Any, Any], Any]
    points: int | None


def _same(condition: Callable[[Any, Any], Any], points: int | None) -> Case:
    """A condition that te and numpy write alike."""
    return Case(condition, condition, points)


CASES = {
    "two places": Case(
        lambda k, j: te.any(k == j, k == j + 1), lambda k, j: (k == j) | (k == j + 1), 0
    ),
    "three places": Case(
        lambda k, j: te.any(k == j, k == j + 1, k == j - 5),
        lambda k, j: (k == j) | (k == j + 1) | (k == j - 5),
        0,
    ),
    "windows apart": Case(
        lambda k, j: te.any(te.all(k >= j, k < j + 2), te.all(k >= j + 7, k < j + 10)),
        lambda k, j: ((k >= j) & (k < j + 2)) | ((k >= j + 7) & (k < j + 10)),
        5,
    ),
    "windows that overlap": Case(
        lambda k, j: te.any(te.all(k >= j, k < j + 4), te.all(k >= j + 2, k < j + 7)),
        lambda k, j: (k >= j) & (k < j + 7),
        7,
    ),
    "not outside": Case(
        lambda k, j: tirx.Not(te.any(k < j, k > j + 3)), lambda k, j: (k >= j) & (k <= j + 3), 4
    ),
    "not both": Case(
        lambda k, j: te.all(k < 4, tirx.Not(te.all(k >= 1, j < 9))),
        lambda k, j: (k < 4) & ((k < 1) | (j >= 9)),
        4,
    ),
    "a distance": Case(lambda k, j: te.abs(k - j) == 7, lambda k, j: abs(k - j) == 7, 0),
    "a difference on a circle": _same(lambda k, j: (k - j + N) % N < 5, 10),
    "the other way": _same(lambda k, j: (j - k) % N <= 2, 6),
    "three on a circle": _same(lambda k, j: (k + 2 * j) % N < 2, 2),
    "a negative divisor": Case(
        lambda k, j: te.all(k < 3, tirx.floormod(k - j, -N) >= -2),
        lambda k, j: (k < 3) & ((k - j) % -N >= -2),
        None,
    ),
    "the smaller one": Case(
        lambda k, j: tirx.min(k, j) == 3, lambda k, j: np.minimum(k, j) == 3, 2
    ),
    "how far apart": Case(
        lambda k, j: tirx.max(k, j) - tirx.min(k, j) < 3, lambda k, j: abs(k - j) < 3, 5
    ),
    "both ends": Case(
        lambda k, j: te.any(k < 3, k >= N - 3), lambda k, j: (k < 3) | (k >= N - 3), 6
    ),
    "all others": _same(lambda k, j: k != j, None),
    "before or at": Case(lambda k, j: te.any(k < j, k == j), lambda k, j: k <= j, None),
    "before, and one behind": Case(
        lambda k, j: te.any(k < j, k == j + 3), lambda k, j: (k < j) | (k == j + 3), None
    ),
    "far away": Case(lambda k, j: te.abs(k - j) > 5, lambda k, j: abs(k - j) > 5, None),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_are_disjoint_and_cover_the_condition(name):
    k, j = te.var("k"), te.var("j")
    ranges = {k: (0, N), j: (0, N)}
    cases = cases_of([Condition(te_bool(CASES[name].condition(k, j)), False)], ranges)
    if cases is None:  # of linear conditions only, or beyond these
        assert name in ("not outside", "a negative divisor")
        return
    tests = [compile_integers([c.expr for c in case], [k, j]) for case in cases]
    assert len(tests) > 1
    for point in itertools.product(range(N), range(N)):
        met = sum(all(test(*point)) for test in tests)
        assert met == int(CASES[name].holds(*point))


def te_bool(condition: Any) -> Any:
    """A condition as a node, which te writes when an expression holds it."""
    return te.if_then_else(condition, 1, 0).args[0]


def summed(name: str, weighted: bool = True) -> tuple[Any, Any, Any]:
    x, w = (te.placeholder((N,), D, name) for name in "xw")
    k = te.reduce_axis((0, N), "k")

    def element(j: Any) -> Any:
        value = x[k] * w[k] if weighted else x[k]
        return te.sum(te.if_then_else(CASES[name].condition(k, j), value, te.const(0, D)), axis=k)

    return x, w, te.compute((N,), element, name="y")


@pytest.mark.parametrize("name", CASES)
def test_values_and_iterations(name):
    rng = np.random.default_rng(1)
    x, w, y = summed(name)
    head = te.placeholder((N,), D, name="head")
    a, b, h = (rng.standard_normal(N) for _ in range(3))
    j, k = np.indices((N, N))
    mask = np.broadcast_to(CASES[name].holds(k, j), (N, N)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [simple] = simplify_reductions([y])
        [built] = solve_masks([y])
        gradient = differentiate(y, [x], head)
    wanted = [mask @ (a * b)] * 2 + [(mask.T @ h) * b]
    found = evaluate_graph([simple, built, *gradient], [(x, a), (w, b), (head, h)])
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-12)
    points = CASES[name].points
    for tensors in ([simple], [built], list(gradient)):
        iterations = estimate_cost(tensors).iterations
        assert iterations <= (2 * N * N + N if points is None else N * points + 2 * N)


@pytest.mark.parametrize("name", ["all others", "far away", "before, and one behind"])
def test_sums_up_to_a_place_are_scans(name):
    rng = np.random.default_rng(2)
    x, _, y = summed(name, weighted=False)
    [built] = solve_masks([y])
    assert len(built.op.input_tensors) > 1  # a sum on each side
    a = rng.standard_normal(N)
    j, k = np.indices((N, N))
    np.testing.assert_allclose(run([x], [y], [a])[0], CASES[name].holds(k, j) @ a, atol=1e-12)


@pytest.mark.parametrize("name", ["windows that overlap", "a difference on a circle", "a distance"])
def test_derivatives_of_any_order(name):
    x, w, y = summed(name)
    check_grads(y, [x, w], order=2, modes=("forward", "reverse"))
