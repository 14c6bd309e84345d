"""Numerical helpers for tests: compiled values and comparisons.

A comparison that fails names the worst entry. `tests.evaluate` computes without compiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np

from tvm_autodiff.compile import build

Array = np.ndarray


def run(inputs: Sequence[Any], outputs: Sequence[Any], arrays: Sequence[Array]) -> list[Array]:
    """Values of the outputs, compiled for this host."""
    return build(list(inputs), list(outputs), cache=False)(*arrays)


def mismatch(got: Array, want: Array, rtol: float = 1e-7, atol: float = 1e-7) -> str | None:
    """What is wrong with `got`, at its worst entry; None if it is close. NaN equals only NaN."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    got, want = got.astype("float64"), want.astype("float64")
    excess = np.abs(got - want) - (atol + rtol * np.abs(want))
    excess = np.where((got == want) | (np.isnan(got) & np.isnan(want)), -np.inf, excess)
    excess = np.where(np.isnan(excess), np.inf, excess)
    if not excess.size or excess.max() <= 0:
        return None
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    place = [int(i) for i in worst]
    count = int((excess > 0).sum())
    return f"{got[worst]} at {place}, expected {want[worst]} ({count} of {got.size} entries wrong)"


def assert_close(
    got: Array, want: Array, what: str, rtol: float = 1e-7, atol: float = 1e-7
) -> None:
    """Fail with the name of the tensor and the worst entry if `got` is not close to `want`."""
    complaint = mismatch(got, want, rtol, atol)
    assert complaint is None, f"{what}: {complaint}"
