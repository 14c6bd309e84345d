"""Slopes of tensors by differences of values that numpy computes in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.evaluate import evaluate_batch, evaluate_graph, key_of
from tests.walks import is_float

STEP = 1e-4


def central_differences(
    output: Any,
    tensors: Sequence[Any],
    pairs: Sequence[tuple[Any, np.ndarray]],
    weights: np.ndarray,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Slopes of ``sum(output * weights)`` in each entry of `tensors`, and their possible errors."""
    moved = {key_of(tensor) for tensor in tensors}
    count = sum(array.size for t, array in pairs if key_of(t) in moved)
    batch, offset = [], 0
    for tensor, array in pairs:
        wide = np.asarray(array, "float64") if is_float(tensor) else np.asarray(array)
        rows = np.repeat(wide[None], 1 + 4 * count, axis=0)
        if key_of(tensor) in moved:
            flat = rows.reshape(len(rows), -1)
            for entry in range(array.size):
                for place, steps in enumerate((-2, -1, 1, 2)):
                    flat[1 + 4 * (offset + entry) + place, entry] += steps * STEP
            offset += array.size
        batch.append((tensor, rows))
    [values] = evaluate_batch([output], batch)
    ends = values[1:].reshape(count, 4, *values.shape[1:])
    # an output that an entry does not change adds nothing, not even rounding
    outer, inner = (ends[:, 3] - ends[:, 0]) / (4 * STEP), (ends[:, 2] - ends[:, 1]) / (2 * STEP)
    size = np.abs(ends).max(axis=1) * (outer != 0)
    sums = [
        (part * weights).reshape(len(part), -1).sum(axis=1) if part.size else np.zeros(count)
        for part in (outer, inner, size)
    ]
    slopes = (4 * sums[1] - sums[0]) / 3
    # the combination is of the next order: its error is far below the difference of the two
    uncertain = 0.01 * np.abs(sums[1] - sums[0]) + 64 * 2.3e-16 * sums[2] / STEP
    found, offset = [], 0
    arrays = {key_of(tensor): array for tensor, array in pairs}
    for tensor in tensors:
        array = arrays[key_of(tensor)]
        part = slice(offset, offset + array.size)
        found.append((slopes[part].reshape(array.shape), uncertain[part].reshape(array.shape)))
        offset += array.size
    return found


def whole_slopes(
    output: Any, tensors: Sequence[Any], given: Mapping[Any, np.ndarray], weights: np.ndarray
) -> list[np.ndarray]:
    """Slopes of ``sum(output * weights)`` by steps of one: exact for polynomials of second degree
    of whole numbers.
    """
    result = []
    for tensor in tensors:
        slope = np.zeros(given[tensor].shape)
        for place in np.ndindex(slope.shape):
            for sign in (1, -1):
                moved = given[tensor].copy()
                moved[place] += sign
                [value] = evaluate_graph([output], {**given, tensor: moved}, strict=True)
                slope[place] += sign * (value * weights).sum() / 2
        result.append(slope)
    return result
