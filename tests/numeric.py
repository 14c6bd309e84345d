"""Numerical helpers for tests: random arrays, compiled values, differences and comparisons.

A comparison that fails names the worst entry. Differences are taken of the compiled forward
computation in float64; `tests.evaluate` computes without compiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np

from tvm_autodiff.compile import build

Array = np.ndarray


def shape_of(tensor: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in tensor.shape)


def random_inputs(
    tensors: Sequence[Any], seed: int = 0, low: float = -2.0, high: float = 2.0
) -> list[Array]:
    """An array for each tensor, of its shape and dtype, uniform between `low` and `high`."""
    rng = np.random.default_rng(seed)
    return [
        rng.uniform(low, high, shape_of(tensor)).astype(str(tensor.dtype)) for tensor in tensors
    ]


def run(inputs: Sequence[Any], outputs: Sequence[Any], arrays: Sequence[Array]) -> list[Array]:
    """Values of the outputs, compiled for this host."""
    return build(list(inputs), list(outputs), cache=False)(*arrays)


def reached(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[int]:
    """Positions of the inputs that the outputs depend on; `build` takes no others."""
    seen, pending = set(), [output.op for output in outputs]
    while pending:
        op = pending.pop()
        if hash(op) not in seen:
            seen.add(hash(op))
            pending += [tensor.op for tensor in op.input_tensors]
    return [place for place, tensor in enumerate(inputs) if hash(tensor.op) in seen]


def central_difference(
    inputs: Sequence[Any], output: Any, arrays: Sequence[Array], head: Array, step: float = 1e-3
) -> list[Array]:
    """d<head, output>/d input for every element, with an error of fourth order in `step`.

    All inputs are float64; each element costs four calls of one compiled function.
    """
    function = build(list(inputs), output, cache=False)
    arrays = [np.array(array, "float64") for array in arrays]
    gradients = []
    for array in arrays:
        gradient = np.empty(array.shape)
        for place in np.ndindex(array.shape):
            centre = array[place]
            slope = 0.0
            for offset, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
                array[place] = centre + offset * step
                slope += weight * float((function(*arrays) * head).sum())
            array[place] = centre
            gradient[place] = slope / (12 * step)
        gradients.append(gradient)
    return gradients


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
