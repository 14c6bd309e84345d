"""Finds arrays that share memory, which a function that writes must not get.

numpy arrays that own their memory are compared without their addresses, so the common case is
cheap.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi

from ...expr.dtypes import itemsize

_base = operator.attrgetter("base")
_is_none = functools.partial(operator.is_, None)


def first_overlap(arrays: Sequence[Any], written: Sequence[int]) -> tuple[int, int] | None:
    """The numbers of a written array and of another one that shares memory with it, or None.

    Examples
    --------
    >>> a = np.zeros(4)
    >>> first_overlap([a, np.zeros(4), a[1:]], [0]), first_overlap([a, a, np.zeros(4)], [2])
    ((0, 2), None)
    """
    distinct = len(set(map(id, arrays))) == len(arrays)
    # two arrays can only share memory if one of them does not own it
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
    """Whether an array certainly owns its memory, without looking at its address."""
    return isinstance(array, np.ndarray) and array.base is None


def _all_own(arrays: Sequence[Any]) -> bool:
    try:
        return all(map(_is_none, map(_base, arrays)))  # on the way of every call: no loop in Python
    except AttributeError:
        return False


def _meet(left: tuple[int, int], right: tuple[int, int]) -> bool:
    return left[0] < right[1] and right[0] < left[1]


def _span(array: Any) -> tuple[int, int]:
    """The start and end address of a contiguous array, or nothing for arrays without an address."""
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
