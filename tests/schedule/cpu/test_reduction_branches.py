"""Reductions of branches run in vectors."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules


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
    "all but a diagonal": off_diagonal,
    "branches in branches": chosen_by_data,
    "a read that its guard protects": before,
}


@pytest.mark.parametrize("over", [total, columns])
@pytest.mark.parametrize("name", CASES)
def test_vectors_without_branches(name, over):
    """Both sides are computed, or the loop is cut where a guard protects a read."""
    [kernel] = separate(normal_form([over(64, CASES[name])[1]]))[0]
    [found] = apply_rules(kernel, avx512(1), CPU_RULES)
    text = "\n".join(str(function.func) for function in found.launches)
    assert "T.vectorized(16)" in text
    assert "if_then_else" not in text


@pytest.mark.parametrize("size", [5, 67, 100])
@pytest.mark.parametrize("over", [total, columns])
@pytest.mark.parametrize("name", CASES)
def test_values(name, over, size):
    check(over(size, CASES[name]))
