"""Memory of large results, used again once no array of the caller holds it.

The C library takes memory beyond a limit from the system, page by page as it is touched, and gives
it back at once: without this, each call would spend more time on new pages than on writing them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

#: bytes up to which memory may stay with the process when it is freed (glibc, mallopt(3):
#: DEFAULT_MMAP_THRESHOLD_MAX of 64-bit systems)
KEPT_BY_MALLOC = 32 << 20


class RecycledMemory:
    """Makes new arrays of one shape and dtype, in the memory of an earlier one where that is free.

    At most one array's memory is kept for later.

    Parameters
    ----------
    shape : sequence of int
        Shape of the arrays.
    dtype : numpy.dtype
        Their dtype, one of numpy's own.

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
        """An array whose elements have any value."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(self._shape, self._dtype)
        return np.asarray(_Lent(memory, self._free))


class _Lent:
    """The base of an array and of all its views: what dies with the last of them."""

    def __init__(self, memory: np.ndarray, free: deque[np.ndarray]) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.append(self._memory)
