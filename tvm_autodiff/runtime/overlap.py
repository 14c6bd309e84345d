"""Arrays that share memory, which a function that writes must not be given.

In: arrays, and which of them are written. Out: a written one and another that share memory, or
None. Arrays of numpy that own their memory are told apart without asking for addresses, so that the
common case is cheap.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi

from ..expr.dtypes import itemsize

_base = operator.attrgetter("base")
_is_none = functools.partial(operator.is_, None)


def first_overlap(arrays: Sequence[Any], written: Sequence[int]) -> tuple[int, int] | None:
    """Numbers of a written array and of another one that shares memory with it.

    Examples
    --------
    >>> a = np.zeros(4)
    >>> first_overlap([a, np.zeros(4), a[1:]], [0]), first_overlap([a, a, np.zeros(4)], [2])
    ((0, 2), None)
    """
    distinct = len(set(map(id, arrays))) == len(arrays)
    # memory of two arrays is the same only where one of them does not own it
    if distinct and _all_own(arrays):
        return None
    if not distinct:
        for number in written:
            for other, array in enumerate(arrays):
                if other != number and array is arrays[number]:
                    return number, other
    borrowed = [n for n, array in enumerate(arrays) if not _owns(array)]
    spans = {n: _span(arrays[n]) for n in {*borrowed, *written}}
    for number in written:
        for other in spans if number in borrowed else borrowed:
            if other != number and _meet(spans[number], spans[other]):
                return number, other
    return None


def _owns(array: Any) -> bool:
    """Whether an array has its memory for itself, as far as one can tell without its address."""
    return isinstance(array, np.ndarray) and array.base is None


def _all_own(arrays: Sequence[Any]) -> bool:
    try:
        return all(map(_is_none, map(_base, arrays)))  # on the way of every call: no loop in Python
    except AttributeError:
        return False


def _meet(left: tuple[int, int], right: tuple[int, int]) -> bool:
    return left[0] < right[1] and right[0] < left[1]


def _span(array: Any) -> tuple[int, int]:
    """First address and end of a contiguous array; of what has no address, nothing."""
    if isinstance(array, np.ndarray):
        start, size = array.__array_interface__["data"][0], array.nbytes
    elif isinstance(array, tvm_ffi.Tensor):
        start, size = array.data_ptr(), array.numel() * itemsize(array.dtype)
    elif hasattr(array, "data_ptr"):
        start, size = array.data_ptr(), array.nbytes
    elif hasattr(array, "unsafe_buffer_pointer"):
        start, size = array.unsafe_buffer_pointer(), array.nbytes
    else:
        return 0, 0
    return (start, start + size) if size else (0, 0)
