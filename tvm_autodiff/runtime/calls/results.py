"""What a call needs whose arrays kernels take as they are, or in a quick view: makers of results,
and the views.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_dtypes import finfo

from ...errors import CallError
from ...expr.dtypes import integer_range
from ..arrays import Array, ArrayKind, kind_of, numpy_dtype, numpy_kind
from .signature import TensorSpec


def is_number(value: Any, spec: TensorSpec) -> bool:
    """Whether a number stands for an array of rank 0: Python's, or numpy's of another dtype.

    Examples
    --------
    >>> step = TensorSpec("step", (), "float32")
    >>> is_number(0.1, step), is_number(np.float64(0.1), step), is_number(np.ones(()), step)
    (True, True, False)
    """
    if isinstance(value, np.generic):
        known = value.dtype.kind in "biuf" and value.dtype != numpy_dtype(spec.dtype)
        return known and not spec.shape
    return isinstance(value, (int, float)) and not spec.shape


class QuickCall(NamedTuple):
    """How arrays of some types are passed without checks in Python.

    Attributes
    ----------
    makers : list of callable
        One for each result, which makes its array.
    views : list of (int, callable)
        What kernels take of numbers, and of arrays that they do not take themselves, by their place
        among inputs and results.
    """

    makers: list[Callable[[], Array]]
    views: list[tuple[int, Callable[[Array], Any]]]


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

    def __call__(self, given: float | np.generic) -> np.ndarray:
        """The array of a number; `CallError` if its dtype does not hold it."""
        number: float = given.item() if isinstance(given, np.generic) else given
        fits = self._low <= number <= self._high
        if self._whole:
            fits = fits and number == int(number)
        elif not fits:
            fits = number - number != 0  # infinite or no number
        if fits:
            # ml_dtypes convert no integer beyond int64
            return np.asarray(number if self._whole else float(number), self._dtype)
        large = isinstance(number, int) and abs(number) > 2**64  # it may have thousands of digits
        shown = "an integer beyond 2**64" if large else repr(number)
        raise CallError(
            f"argument {self._spec.name!r} must be a number that {self._spec.dtype} holds, "
            f"got {shown}"
        )


def quick_call(
    arrays: Sequence[Array],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    updated: Collection[int],
) -> QuickCall | None:
    """How arrays are passed without checks in Python; None if they need more than a call.

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
    >>> call = quick_call([np.ones(2, "float32")], [x], [x], ())
    >>> call.makers[0]().shape, call.views
    ((2,), [])
    """
    specs = (*inputs, *outputs)
    if len(arrays) not in (len(inputs), len(specs)):
        return None
    kinds: list[ArrayKind | None] = []
    numbers: dict[int, Callable[[Any], np.ndarray]] = {}  # what makes arrays of them
    for number, (array, spec) in enumerate(zip(arrays, specs, strict=False)):
        kind = kind_of(array)
        scalar = number < len(inputs) and not spec.shape and number not in updated
        if scalar and is_number(array, spec):
            numbers[number] = NumberOf(spec)
            kinds.append(None)
            continue
        if isinstance(array, np.generic):
            if not scalar or array.dtype != numpy_dtype(spec.dtype):
                return None
            numbers[number] = np.asarray
        if kind is None:
            return None
        if kind.maker(spec.shape, spec.dtype) is None:
            return None
        kinds.append(kind)
    first = next((kind for kind in kinds if kind is not None), None)
    if first is None:
        return None
    makers = [maker for s in outputs if (maker := first.maker(s.shape, s.dtype)) is not None]
    if len(makers) < len(outputs):
        return None
    kinds += [first] * (len(specs) - len(arrays))
    views = []
    for place, (kind, spec) in enumerate(zip(kinds, specs, strict=True)):
        viewer = (kind or numpy_kind()).viewer(spec.shape, spec.dtype)
        view = _after(numbers.get(place), viewer)
        if view is not None:
            views.append((place, view))
    return QuickCall(makers, views)


def _after(
    first: Callable[[Any], np.ndarray] | None, then: Callable[[Array], Any] | None
) -> Callable[[Array], Any] | None:
    """One step after the other; None without any."""
    if first is None or then is None:
        return first or then
    return lambda given: then(first(given))
