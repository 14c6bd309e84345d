"""Central differences along one entry of an input, with an estimate of their error.

The step with the smallest error is used. `check` defines the tolerances for derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Key = tuple[int, int]  #: of a tensor
Function = Callable[[Mapping[Key, np.ndarray]], np.ndarray]

ROUNDINGS = 16  #: that an element of an output goes through
_LONGER = (1, 10, 100, 1000, 10000)  #: steps that are tried one after the other, in the first one's
_LONGEST = 0.1  #: step of all


@dataclass(frozen=True)
class Precision:
    """The rounding of one operation, the first step, and the error at which a slope is accepted."""

    eps: float
    step: float
    rtol: float
    atol: float


def best_difference(
    function: Function,
    weights: np.ndarray,
    key: Key,
    array: np.ndarray,
    index: tuple[int, ...],
    precision: Precision,
) -> tuple[float, float]:
    """The slope along one entry for the most accurate step, and its possible error.

    Parameters
    ----------
    function : callable
        Returns the outputs for values that differ from those of the point, by key.
    weights : ndarray
        The weights of the outputs in the sum.
    key, array, index
        The entry, as an element of an input.
    precision : Precision
        Rounding, first step and accepted error.
    """
    best: tuple[float, float] | None = None
    for longer in _LONGER:
        step = longer * precision.step
        if best is not None and step > _LONGEST:
            break
        slope, uncertain = central_difference(
            function, weights, key, array, index, precision.eps, step
        )
        if best is None or uncertain < best[1]:
            best = slope, uncertain
        elif longer > 1:
            break  # what a longer step adds to the error of the difference is more than it saves
        if best[1] <= precision.rtol * abs(best[0]) + precision.atol:
            break
    assert best is not None
    return best


def central_difference(
    function: Function,
    weights: np.ndarray,
    key: Key,
    array: np.ndarray,
    index: tuple[int, ...],
    eps: float,
    step: float,
) -> tuple[float, float]:
    """The slope of ``sum(function * weights)`` along one entry, and its possible error.

    The slopes for one and two steps have errors of step² and 4·step². A third of their difference
    is subtracted, and all of it counts as possible error. Rounding only counts for outputs that the
    entry changes. If it changes none, the gradient may be the rounding of terms of the size of the
    outputs, divided by the entry.
    """
    slopes, rounding = [], 0.0
    for length in (step, 2 * step):
        ends = []
        for sign in (1, -1):
            moved = array.copy()
            moved[index] += sign * length
            ends.append((function({key: moved}), float(moved[index])))
        (high, right), (low, left) = ends
        size, changed = np.abs(high) + np.abs(low), high != low
        apart = abs(right - left)
        if not changed.any():  # a slope of zero may be what is left of terms that cancel
            changed, apart = np.ones_like(changed), max(apart, abs(right))
        noise = eps * float((size * np.abs(weights))[changed].sum())
        rounding = max(rounding, noise / apart)
        slopes.append(float(((high - low) * weights).sum()) / (right - left))
    slope = slopes[0] + (slopes[0] - slopes[1]) / 3
    return slope, abs(slopes[0] - slopes[1]) + ROUNDINGS * rounding
