"""What TVM's operators compute, as functions of numpy arrays.

One table for node classes and one for named calls. `numpy_dtype` gives the dtype that results are
rounded to: integers wrap, and float16 and bfloat16 are rounded after every operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from tvm import ir
from tvm.ir import prim
from tvm_ffi import Object

Array = Any

_address = Object.__hash__
#: dtypes by the addresses of TVM's types, which are valid while these live: a text costs much more
_OF_TYPES: dict[int, tuple[np.dtype, Any]] = {}


def numpy_dtype(dtype: Any) -> np.dtype:
    """The dtype of numpy, bfloat16 included."""
    if isinstance(dtype, ir.Type):
        known = _OF_TYPES.get(_address(dtype))
        if known is None:
            known = _OF_TYPES[_address(dtype)] = (_of_name(str(dtype)), dtype)
        return known[0]
    return _of_name(str(dtype))


def _of_name(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def is_floating(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


def _truncdiv(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient * b != a) & (quotient < 0)).astype(quotient.dtype)


def _divide(a: Array, b: Array) -> Array:
    return np.divide(a, b) if is_floating(np.asarray(a).dtype) else _truncdiv(a, b)


def _popcount(a: Array) -> Array:
    unsigned = np.asarray(a).astype(np.int64) & ((1 << (8 * np.asarray(a).dtype.itemsize)) - 1)
    return np.vectorize(lambda n: int(n).bit_count(), otypes=[np.int64])(unsigned)


def _clz(a: Array) -> Array:
    width = 8 * np.asarray(a).dtype.itemsize
    count = np.vectorize(lambda n: width - (int(n) % (1 << width)).bit_length(), otypes=[np.int64])
    return count(a)


#: class of a node with two operands → its function
BINARY: dict[type, Callable[..., Array]] = {
    prim.Add: np.add,
    prim.Sub: np.subtract,
    prim.Mul: np.multiply,
    prim.Div: _divide,
    prim.Mod: np.fmod,
    prim.FloorDiv: np.floor_divide,
    prim.FloorMod: np.mod,
    prim.Min: lambda a, b: np.where(a < b, a, b),
    prim.Max: lambda a, b: np.where(a > b, a, b),
    prim.EQ: np.equal,
    prim.NE: np.not_equal,
    prim.LT: np.less,
    prim.LE: np.less_equal,
    prim.GT: np.greater,
    prim.GE: np.greater_equal,
    prim.And: np.logical_and,
    prim.Or: np.logical_or,
}

#: name of a call, without the dialect before its dot → its function
CALLS: dict[str, Callable[..., Array]] = {
    "fma": lambda a, b, c: a * b + c,
    "fmod": np.fmod,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.bitwise_not,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "likely": lambda x: x,
    "stop_gradient": lambda x: x,
    "checkpoint": lambda x: x,
    "recomputed": lambda x, sweep: x,
    "abs": np.abs,
    "fabs": np.abs,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "itself": lambda value: value,
    "ldexp": lambda x, n: x * np.exp2(n),
    "hypot": np.hypot,
    "pow": np.power,
    "power": np.power,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,  # ties to even, as on llvm
    "nearbyint": np.rint,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "sinf": np.sin,  # of C
    "cosf": np.cos,
    "popcount": _popcount,
    "clz": _clz,
}
#: bitwise operators that some builds of TVM have as nodes
for _name, _function in (
    ("BitwiseAnd", np.bitwise_and),
    ("BitwiseOr", np.bitwise_or),
    ("BitwiseXor", np.bitwise_xor),
    ("LShift", np.left_shift),
    ("RShift", np.right_shift),
):
    if hasattr(prim, _name):
        BINARY[getattr(prim, _name)] = _function
