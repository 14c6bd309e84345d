"""Reductions of branches: vectors where both sides are safe to evaluate, branches where not."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check
from tvm_autodiff.schedule.cpu.reduction import reduction
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.rewrites.normal_form import normal_form


def total(size, value):
    """A sum over all of a square."""
    X = cases.placeholder("X", size, size)
    i, j = (te.reduce_axis((0, size), name) for name in "ij")
    return [X], te.compute((), lambda: te.sum(value(X, i, j), axis=[i, j]), name="S")


def columns(size, value):
    """A sum for each column."""
    X = cases.placeholder("X", size, size)
    i = te.reduce_axis((0, size), "i")
    return [X], te.compute((size,), lambda j: te.sum(value(X, i, j), axis=i), name="S")


def off_diagonal(X, i, j):
    return tirx.if_then_else(i == j, 0.0, X[i, j] * X[i, j])


def chosen_by_data(X, i, j):
    return tirx.if_then_else(X[i, j] > 0, X[i, j], X[i, j] * tirx.if_then_else(j < 3, 2.0, 3.0))


def before(X, i, j):
    return tirx.if_then_else(j > 0, X[i, j - 1], 0.0)


CASES = {
    "all but a diagonal": (off_diagonal, True),
    "branches in branches": (chosen_by_data, True),
    "a read that its guard protects": (before, False),
}


@pytest.mark.parametrize("over", [total, columns])
@pytest.mark.parametrize("name", CASES)
def test_only_branches_that_protect_reads_stay(name, over):
    value, vectors = CASES[name]
    [kernel] = separate(normal_form([over(64, value)[1]]))[0]
    text = "\n".join(str(function.func) for function in reduction(kernel, avx512(1)))
    assert ("T.vectorized(16)" in text) == vectors
    assert ("if_then_else" in text) != vectors


@pytest.mark.parametrize("size", [5, 67, 100])
@pytest.mark.parametrize("over", [total, columns])
@pytest.mark.parametrize("name", CASES)
def test_values(name, over, size):
    check(over(size, CASES[name][0]))
