"""Bit widths, byte sizes and ranges of dtypes, computed from their names."""

from __future__ import annotations

from functools import cache

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


@cache
def integer_range(dtype: str) -> tuple[int, int]:
    """The least and the largest value of an integer dtype or bool.

    Examples
    --------
    >>> integer_range("int8"), integer_range("uint16")
    ((-128, 127), (0, 65535))
    """
    if dtype == "bool":
        return 0, 1
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0, (1 << bits) - 1) if dtype[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)


def keeps_values(source: str, target: str) -> bool:
    """Whether both dtypes are integers or bool, and a conversion keeps every value.

    Examples
    --------
    >>> keeps_values("uint8", "int32"), keeps_values("uint32", "int32")
    (True, False)
    >>> keeps_values("float16", "int32")
    False
    """
    if not (_is_integer(source) and _is_integer(target)):
        return False
    (least, most), (low, high) = integer_range(source), integer_range(target)
    return low <= least and most <= high


def _is_integer(dtype: str) -> bool:
    return dtype == "bool" or dtype.removeprefix("u").startswith("int")


def common_float(*dtypes: str) -> str:
    """The smallest floating point dtype that holds the values of several.

    Examples
    --------
    >>> common_float("float16", "float64"), common_float("float16", "bfloat16")
    ('float64', 'float32')
    """
    widest = max(dtypes, key=bits_of)
    same = all(dtype == widest or bits_of(dtype) < bits_of(widest) for dtype in dtypes)
    return widest if same else "float32"


def common_index(*dtypes: str) -> str:
    """The index dtype in which integers of several dtypes are compared.

    It holds all of their values, except uint64 values from 2**63 on, which are not valid indices.

    Examples
    --------
    >>> common_index("uint8", "int32"), common_index("uint32", "int32")
    ('int32', 'int64')
    """
    return "int32" if all(keeps_values(dtype, "int32") for dtype in dtypes) else "int64"
