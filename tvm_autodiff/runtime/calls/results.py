"""Makers of the results of a call, for arrays that kernels take directly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import numpy as np
from ml_dtypes import finfo

from ...errors import CallError
from ...expr.dtypes import integer_range
from ..arrays import Array, ArrayKind, kind_of, numpy_dtype
from .signature import TensorSpec

NUMBERS = frozenset((int, float))  #: types that a call takes for an array of rank 0

#: one function for each result, which makes its array; None if arrays need more than a call
Makers: TypeAlias = list[Callable[[], Array]] | None


class NumberOf:
    """Arrays of rank 0 in place of numbers, for one argument; an integer dtype is to hold them as
    they are, and a float not as infinity.

    Parameters
    ----------
    spec : TensorSpec
        The argument.

    Examples
    --------
    >>> NumberOf(TensorSpec("n", (), "int32"))(2)
    array(2, dtype=int32)
    """

    __slots__ = ("_dtype", "_high", "_low", "_spec", "_whole")

    def __init__(self, spec: TensorSpec) -> None:
        self._spec, self._dtype = spec, numpy_dtype(spec.dtype)
        self._whole = "float" not in spec.dtype
        self._low: float
        self._high: float
        if self._whole:
            self._low, self._high = integer_range(spec.dtype)
        else:
            limits = finfo(self._dtype)
            # up to half a unit beyond the largest float, numbers are rounded to it
            self._high = float(limits.max) * (1 + float(limits.eps) / 4)
            self._low = -self._high

    def __call__(self, number: float) -> np.ndarray:
        """The array of a number; `CallError` if its dtype does not hold it."""
        fits = self._low <= number <= self._high
        if self._whole:
            fits = fits and number == int(number)
        elif not fits:
            fits = number - number != 0  # infinite or no number
        if fits:
            return np.asarray(number, self._dtype)
        shown = "one beyond 2**64" if abs(number) > 2**64 else repr(number)
        raise CallError(
            f"argument {self._spec.name!r} must be a number that {self._spec.dtype} holds, "
            f"got {shown}"
        )


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
