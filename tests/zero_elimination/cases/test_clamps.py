"""Clamps and choices in indices, and sums that only a part of the elements has."""

from __future__ import annotations

import warnings

import pytest
from tvm import te, tirx, topi

from tests.gradient_case import check_numbers
from tvm_autodiff import differentiate, estimate_cost

D = "float64"
A = te.placeholder((4, 5), D, name="A")


def reading(index, shape=(4, 9)):
    return lambda: te.compute(shape, lambda i, j: A[i, index(j)], name="y")


#: name → (stage, iterations at most: elements of the gradient, and of what is summed)
CASES = {
    "clamped above": (reading(lambda j: tirx.Min(j, 4)), 20 + 4 * 4),
    "clamped below": (reading(lambda j: tirx.Max(j - 4, 0)), 20 + 4 * 4),
    "clamped twice": (reading(lambda j: tirx.Max(tirx.Min(j - 2, 4), 0)), 20 + 4 * (2 + 2)),
    "select": (reading(lambda j: tirx.Select(j < 5, j, 8 - j)), 20),
    "branch": (reading(lambda j: te.if_then_else(j < 5, 4 - j, j - 5)), 20),
    "mirror": (lambda: topi.nn.mirror_pad(A, [1, 1], [1, 1], "REFLECT"), 20),
    "symmetric": (lambda: topi.nn.mirror_pad(A, [1, 1], [1, 1], "SYMMETRIC"), 20),
    "tile": (lambda: topi.tile(A, (2, 3)), 20 * 6),
    "nearest": (reading(lambda j: tirx.Min(j // 2, 4), (4, 10)), 20 * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_no_dense_sum_and_little_work(name):
    make, most = CASES[name]
    out = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_numbers(out, [A])
        gradient = differentiate(out, A, te.placeholder(out.shape, D, name="head"))
    assert estimate_cost(list(gradient)).iterations <= most
