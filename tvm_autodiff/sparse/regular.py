"""Recognises lists of positions that are affine in the indices of a box, and so need no index
array.

``place[n] = 40·(n mod 3) + n div 3 → place[b, m] = 40·m + b over a box of 40 by 3``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..expr.build import add, const, mul
from ..expr.nodes import Expr, dtype_of
from .points import Array


@dataclass(frozen=True)
class AffinePlaces:
    """Positions in a tensor: ``base + Σ_d steps[d]·index[d]``, with an index for each dimension.

    Attributes
    ----------
    base : tuple of int
        The first position.
    extents : tuple of int
        The extents of the box. The last index runs fastest.
    steps : tuple of tuple of int
        For each index of the box, its increment of each index of the tensor.
    """

    base: tuple[int, ...]
    extents: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]


def affine_places(positions: Array, shape: Sequence[int]) -> AffinePlaces | None:
    """Positions in a flattened tensor as affine positions in a box, in their order.

    None if they are not affine, or only in a box of more than twice as many dimensions as the
    tensor.

    Examples
    --------
    >>> affine_places(np.array([0, 4, 1, 5, 2, 6, 3, 7]), (2, 4))
    AffinePlaces(base=(0, 0), extents=(4, 2), steps=((0, 1), (1, 0)))
    >>> affine_places(np.array([0, 1, 3, 7]), (8,)) is None
    True
    """
    digits = _digits(positions[:, None])
    if digits is None:
        return None
    extents: list[int] = []
    steps: list[tuple[int, ...]] = []
    first = int(positions[0])
    base = _indices(np.array([first]), shape)[0]
    for extent, (step,) in digits:
        # a contiguous sequence may cross several dimensions
        parts = _digits(_indices(first + step * np.arange(extent), shape))
        if parts is None:
            return None
        extents += [count for count, _ in parts]
        steps += [step for _, step in parts]
    if len(extents) > 2 * len(shape) or not _is_inside(base, extents, steps, shape):
        return None
    return AffinePlaces(tuple(int(index) for index in base), tuple(extents), tuple(steps))


def affine_numbers(numbers: NDArray[np.int32]) -> tuple[list[int], int] | None:
    """``numbers[i, j] = a·i + b·j + c`` as ([a, b], c), or None if there are no such factors.

    Examples
    --------
    >>> affine_numbers(np.array([[5, 7], [6, 8]], np.int32))
    ([1, 2], 5)
    >>> affine_numbers(np.array([5, 7, 8], np.int32)) is None
    True
    """
    if not numbers.size:
        return None
    first = numbers[(0,) * numbers.ndim]
    steps, expected = [], np.full(numbers.shape, first)
    for dim, extent in enumerate(numbers.shape):
        line = numbers[tuple(slice(None) if d == dim else 0 for d in range(numbers.ndim))]
        steps.append(int(line[1] - first) if extent > 1 else 0)
        shape = [extent if d == dim else 1 for d in range(numbers.ndim)]
        expected = expected + steps[-1] * np.arange(extent).reshape(shape)
    return (steps, int(first)) if (expected == numbers).all() else None


def linear_combination(indices: Sequence[Expr], factors: Sequence[int], constant: int) -> Expr:
    """``Σ factor·index + constant``."""
    pairs = [(i, f) for i, f in zip(indices, factors, strict=True) if f]
    total: Expr = const(constant, dtype_of(pairs[0][0]) if pairs else "int32")
    for index, factor in pairs:
        total = add(total, mul(index, const(factor, dtype_of(index))))
    return total


def _indices(positions: Array, shape: Sequence[int]) -> Array:
    return np.stack(np.unravel_index(positions, tuple(shape)), axis=1)


def _digits(rows: Array) -> list[tuple[int, tuple[int, ...]]] | None:
    """``rows[n] = rows[0] + Σ_d step[d]·digit[d](n)`` for the digits of n in some mixed radix.

    Returns (radix, step) of each digit, the last digit last, or None.
    """
    found: list[tuple[int, tuple[int, ...]]] = []
    while len(rows) > 1:
        step = rows[1] - rows[0]
        same = (rows == rows[0] + step * np.arange(len(rows))[:, None]).all(axis=1)
        run = len(rows) if same.all() else int(same.argmin())
        if len(rows) % run:
            return None
        table = rows.reshape(-1, run, rows.shape[1])
        if (table != table[:, :1] + step * np.arange(run)[:, None]).any():
            return None
        found.append((run, tuple(int(value) for value in step)))
        rows = table[:, 0]
    return found[::-1]


def _is_inside(
    base: Array, extents: Sequence[int], steps: Sequence[Sequence[int]], shape: Sequence[int]
) -> bool:
    """Whether all indices stay within their dimensions, without carries between them."""
    ends = np.array(
        [
            [(extent - 1) * value for value in step]
            for extent, step in zip(extents, steps, strict=True)
        ]
    ).reshape(-1, len(shape))
    low, high = np.minimum(ends, 0).sum(axis=0), np.maximum(ends, 0).sum(axis=0)
    return bool((base + low >= 0).all() and (base + high < np.asarray(shape)).all())
