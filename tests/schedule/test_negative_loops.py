"""Sums over loops whose extent is negative for small sizes: they are empty, and copies of operands
and factors of sums, whose dimensions come from such loops, are empty as well.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.schedule.cases import axis, placeholder

n, m = te.var("n"), te.var("m")
x, rows = placeholder("x", n), placeholder("rows", 100, n)
a, b = placeholder("a", 40, m), placeholder("b", m, n)


def columns():
    k, r = axis(n - 1), axis(40, "r")
    return te.compute((40,), lambda i: te.sum(rows[i + r, k] * x[k + 1], axis=[r, k]), name="y")


def factors():
    k, j = axis(m - 1), axis(n - 1, "j")
    body = lambda i: te.sum(a[i, k + 1] * b[k + 1, j] * x[j + 1], axis=[j, k])  # noqa: E731
    return te.compute((40,), body, name="y")


CASES = {
    "copied columns": (
        columns,
        [rows, x],
        lambda w, x: (
            np.lib.stride_tricks.sliding_window_view(w[:79, : max(len(x) - 1, 0)], 40, 0)
            .sum(2)
            .dot(x[1:])
        ),
    ),
    "factors": (factors, [a, b, x], lambda a, b, x: a[:, 1:] @ (b[1:, :-1] @ x[1:])),
}


@pytest.mark.parametrize("name", CASES)
def test_loops_of_negative_extent_are_empty(name):
    make, inputs, want = CASES[name]
    function = ad.build(inputs, make(), num_threads=1, cache=False)
    rng = np.random.default_rng(0)
    for sizes in ((0, 0), (0, 70), (70, 0), (1, 1), (2, 35), (9, 40)):
        given = dict(zip((n, m), sizes, strict=True))
        shapes = [[given.get(s, s) for s in tensor.shape] for tensor in inputs]
        arrays = [rng.integers(-3, 4, [int(e) for e in s]).astype("float32") for s in shapes]
        np.testing.assert_array_equal(function(*arrays), want(*arrays), err_msg=f"{sizes}")
