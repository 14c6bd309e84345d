"""Bits of indices as quotients and remainders, which the solver and the rules for loops understand.

Butterflies, as of Fourier and Hadamard transforms and of sorting networks, read ``x[i ^ h]``. The
index is a sum: h is added where the bit of i is 0, and taken away where it is 1.
"""

from __future__ import annotations

from collections.abc import Callable

from ..build import add, const, mul, sub
from ..dtypes import bits_of
from ..nodes import BITWISE_CLASSES, Expr, binary, const_value, dtype_of, op_name, operands
from ..rewrite import contains, contains_load, rewrite

_SIGNED = ("int32", "int64")
_BITWISE = frozenset((*BITWISE_CLASSES, "bitwise_not"))


def without_bits(root: Expr) -> Expr:
    """``i >> 3 → i // 8,  i & 7 → i % 8,  i ^ 8 → i + 8 - 16*(i // 8 % 2)`` in indices.

    The bits of numbers that tensors hold stay, and those for which no literal says which.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> i = te.var("i")
    >>> [text(without_bits(index)) for index in (i >> 3, i & 7, i & 8, i & ~7)]
    ['i//8', 'i%8', 'i//8%2*8', 'i//8*8']
    """
    return rewrite(root, _as_arithmetic) if contains(root, _has_bits) else root


def _has_bits(node: Expr) -> bool:
    return op_name(node) in _BITWISE


def _as_arithmetic(node: Expr) -> Expr | None:
    name, dtype = op_name(node), dtype_of(node)
    if name not in _BITWISE or dtype not in _SIGNED or contains_load(node):
        return None
    if name == "bitwise_not":
        return sub(const(-1, dtype), operands(node)[0])
    left, right = operands(node)
    if const_value(left) is not None and name in _MASKED:
        left, right = right, left
    value = const_value(right)
    if value is None:
        return None
    if name in _MASKED:
        kept = _kept(left, int(value))
        return None if kept is None else _MASKED[name](left, right, kept)
    if not 0 <= value <= bits_of(dtype) - 2:
        return None
    scale = const(1 << int(value), dtype)
    return binary("floordiv", left, scale) if name == "shift_right" else mul(left, scale)


def _kept(value: Expr, mask: int) -> Expr | None:
    """``value & mask`` for a mask whose ones, or zeros, are one run; None for others."""
    run = mask if mask >= 0 else ~mask
    if run == 0:
        return value if mask else const(0, dtype_of(value))
    low, high = (run & -run).bit_length() - 1, run.bit_length()
    if run != (1 << high) - (1 << low) or high > bits_of(dtype_of(value)) - 2:
        return None
    if mask < 0:
        return add(_digits(value, high, None), _digits(value, 0, low))
    return _digits(value, low, high)


def _digits(value: Expr, low: int, high: int | None) -> Expr:
    """The bits from one place up to another one, or to the last, at their places."""
    if low == high:
        return const(0, dtype_of(value))
    scale = const(1 << low, dtype_of(value))
    digits = binary("floordiv", value, scale) if low else value
    if high is not None:
        digits = binary("floormod", digits, const(1 << high - low, dtype_of(value)))
    return mul(digits, scale)


#: operator → its value from both operands and the bits that they share
_MASKED: dict[str, Callable[[Expr, Expr, Expr], Expr]] = {
    "bitwise_and": lambda left, right, both: both,
    "bitwise_or": lambda left, right, both: sub(add(left, right), both),
    "bitwise_xor": lambda left, right, both: sub(
        add(left, right), mul(const(2, dtype_of(both)), both)
    ),
}
