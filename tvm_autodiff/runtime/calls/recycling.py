"""Reuses the memory of large results when no array of the caller holds it any longer.

The C library requests large blocks from the system, which maps them page by page on first access,
and returns them immediately. Without reuse, each call would spend more time on new pages than on
writing them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

#: the size in bytes up to which freed memory may stay with the process (glibc, mallopt(3):
#: DEFAULT_MMAP_THRESHOLD_MAX of 64-bit systems)
KEPT_BY_MALLOC = 32 << 20


class RecycledMemory:
    """Makes new arrays of one shape and dtype, reusing the memory of an earlier one if it is free.

    At most one array's memory is kept.

    Parameters
    ----------
    shape : sequence of int
        Shape of the arrays.
    dtype : numpy.dtype
        Their dtype, which must be one of numpy's own.

    Examples
    --------
    >>> make = RecycledMemory((4,), np.dtype("float32"))
    >>> first = make()
    >>> second, place = first[1:], first.ctypes.data
    >>> del first
    >>> make().ctypes.data == place  # the slice still reads it
    False
    """

    def __init__(self, shape: Sequence[int], dtype: np.dtype) -> None:
        self._shape, self._dtype = tuple(shape), dtype
        self._free: deque[np.ndarray] = deque(maxlen=1)

    def __call__(self) -> np.ndarray:
        """An uninitialised array."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(self._shape, self._dtype)
        return np.asarray(_Lent(memory, self._free))


class _Lent:
    """The base of an array and of all its views, which is freed with the last of them."""

    def __init__(self, memory: np.ndarray, free: deque[np.ndarray]) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.append(self._memory)
