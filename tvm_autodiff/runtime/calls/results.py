"""Makers of the results of a call, for arrays that kernels take directly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import numpy as np

from ..arrays import Array, ArrayKind, kind_of
from .signature import TensorSpec

NUMBERS = frozenset((int, float))  #: types that a call takes for an array of rank 0

#: one function for each result, which makes its array; None if arrays need more than a call
Makers: TypeAlias = list[Callable[[], Array]] | None


def makers_of(
    arrays: Sequence[Array],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    updated: Collection[int],
) -> Makers:
    """Makers of the results if kernels take all arrays directly.

    Parameters
    ----------
    arrays
        The inputs of a call, or inputs and results.
    inputs, outputs
        Their descriptions, of constant shapes.
    updated
        The numbers of the inputs that a call writes.

    Examples
    --------
    >>> x = TensorSpec("x", (2,), "float32")
    >>> [make] = makers_of([np.ones(2, "float32")], [x], [x], ())
    >>> make().shape
    (2,)
    """
    specs = (*inputs, *outputs)[: len(arrays)]
    if len(arrays) not in (len(inputs), len(inputs) + len(outputs)):
        return None
    first: ArrayKind | None = None
    for number, (array, spec) in enumerate(zip(arrays, specs, strict=True)):
        kind = kind_of(array)
        scalar = number < len(inputs) and not spec.shape and number not in updated
        if kind is None and type(array) in NUMBERS and scalar:
            continue
        if kind is None or isinstance(array, np.generic):
            return None
        if kind.maker(spec.shape, spec.dtype) is None:
            return None
        first = first or kind
    if first is None:
        return None
    makers = [first.maker(spec.shape, spec.dtype) for spec in outputs]
    return None if None in makers else [maker for maker in makers if maker is not None]
