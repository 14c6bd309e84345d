"""Reductions with vectors along a symbolic last axis, on whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad

SIZES = (0, 1, 3, 4, 7, 15, 16, 17, 63, 64, 100, 513)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype("float32")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [(), (3,), ("n",)])
def test_columns(batch: tuple, threads: int) -> None:
    """``z = b·Σ_k x + 1`` and the maximum, over columns inside of batches."""
    n = te.var("n")
    outer = tuple(n if one == "n" else one for one in batch)
    x = te.placeholder((*outer, 20, n), name="x")
    axis = len(outer)
    s = topi.sum(x, axis=axis)
    b = te.placeholder(s.shape, name="b")
    z = te.compute(s.shape, lambda *i: s(*i) * b(*i) + 1.0, name="z")
    run = ad.build([x, b], [z, topi.max(x, axis=axis)], num_threads=threads, cache=False)
    used = {row.rule for row in run.profile(*_arrays(batch, 5)).kernels}
    assert used == {"reduction"}
    for size in SIZES:
        array, scale = _arrays(batch, size)
        total, largest = run(array, scale)
        np.testing.assert_array_equal(total, array.sum(axis) * scale + 1)
        np.testing.assert_array_equal(largest, array.max(axis))


def _arrays(batch: tuple, size: int) -> list[np.ndarray]:
    outer = tuple(size if one == "n" else one for one in batch)
    return [numbers(*outer, 20, size), numbers(*outer, size)]


def test_shifted_columns_that_share_a_vector() -> None:
    """``y[j] = Σ_k x[k, j + 2]·w[k]``: one operand is the same along the vectors."""
    n = te.var("n")
    x, w = te.placeholder((50, n + 2), name="x"), te.placeholder((50,), name="w")
    k = te.reduce_axis((0, 50), "k")
    y = te.compute((n,), lambda j: te.sum(x[k, j + 2] * w[k], axis=k), name="y")
    run = ad.build([x, w], y, cache=False)
    for size in SIZES:
        array, scale = numbers(50, size + 2), numbers(50)
        np.testing.assert_array_equal(run(array, scale), scale @ array[:, 2:])
