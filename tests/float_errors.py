"""Errors of float32 results in units of the last place, arguments that cover all float32, and
numbers without subnormal ones.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

WRONG = 1e30  #: the error of a NaN in the wrong place or a zero of the wrong sign


def errors(got: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """How far float32 results are from float64 ones, in units of the last place of these.

    What is beyond the largest float32 counts as 2**128.
    """
    with np.errstate(all="ignore"):
        rounded = truth.astype("float32")
        _, exponent = np.frexp(truth)
        unit = np.exp2(np.clip(exponent - 1, -126, 127) - 23.0)
        ends = [np.clip(x.astype("float64"), -(2.0**128), 2.0**128) for x in (got, truth)]
        result = np.abs(ends[0] - ends[1]) / unit
    zeros = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    result = np.where(zeros, WRONG, result)
    either, both = np.isnan(got) | np.isnan(truth), np.isnan(got) & np.isnan(truth)
    return np.where(both, 0.0, np.where(either, WRONG, result))


def arguments(per_binade: int, seed: int = 0) -> np.ndarray:
    """Float32 of every exponent and both signs, the ends of each binade among them, and all kinds
    of zeros, infinities and NaN.
    """
    rng = np.random.default_rng(seed)
    mantissas = rng.integers(0, 1 << 23, (512, per_binade), dtype="uint32")
    mantissas[:, :4] = [0, 1, (1 << 23) - 1, 1 << 22]
    binades = np.arange(512, dtype="uint32")[:, None] << 23
    return (binades | mantissas).view("float32").reshape(-1)


def flushed(array: np.ndarray) -> np.ndarray:
    """The array with zeros of equal sign in place of subnormal numbers, as kernels read it."""
    least = ml_dtypes.finfo(array.dtype).smallest_normal
    return np.where(np.abs(array) < least, np.copysign(array.dtype.type(0), array), array)
