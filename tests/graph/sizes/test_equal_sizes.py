"""Extents of equal value become one expression."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.graph.sizes.equal_sizes import EqualSizes, is_same

n, m = te.var("n"), te.var("m")
EQUAL = [
    (n + 1 - 1, n),
    (n * 2 + 1, 1 + n + n),
    (n // 2 + m - n // 2, m),
    (n - n + 3, 3),
    ((n + m) // 2, (n + m) // 2),
]
DIFFERENT = [(n, m), (n + 1, n), (n // 2, n // 3), (n, 1)]


@pytest.mark.parametrize("pair", range(len(EQUAL)))
def test_equal(pair: int) -> None:
    same = EqualSizes()
    left, right = EQUAL[pair]
    assert is_same(same(left), same(right))


@pytest.mark.parametrize("pair", range(len(DIFFERENT)))
def test_different(pair: int) -> None:
    same = EqualSizes()
    left, right = DIFFERENT[pair]
    assert not is_same(same(left), same(right))


def test_a_call_of_shapes_that_are_written_differently() -> None:
    """Rows of ``n + 1``, written in three ways, are one fusion group of a direct call."""
    x = te.placeholder((6, n + 1), name="x")
    k = te.reduce_axis((0, 1 + n), "k")
    s = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="s")
    y = te.compute((6, n + 2 - 1), lambda i, j: x[i, j] * s[i], name="y")
    run = ad.build(x, y, cache=False)
    for size in (0, 1, 40):
        array = np.random.default_rng(0).integers(-3, 4, (6, size + 1)).astype("float32")
        want = array * array.sum(1, keepdims=True)
        for _ in range(2):  # the second call finds what the first one left
            np.testing.assert_array_equal(run(array), want)
    assert [row.rule for row in run.profile(array).kernels] == ["fused_rows"]
