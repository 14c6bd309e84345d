"""Bit widths and byte sizes of dtypes, computed from their names."""

from __future__ import annotations

import tvm


def bits_of(dtype: str) -> int:
    """The number of bits in one element.

    Examples
    --------
    >>> bits_of("bfloat16"), bits_of("int4"), bits_of("bool")
    (16, 4, 8)
    """
    return int(tvm.DataType(str(dtype)).bits)


def itemsize(dtype: str) -> int:
    """The number of bytes that one element takes in memory."""
    return (bits_of(dtype) + 7) // 8
