"""The leaves of arguments: the properties that distinguish compilations and define placeholders."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import CallError, InvalidArgumentError
from ..runtime.arrays import Array, kind_of
from ..runtime.device_arrays import gpu_of

#: the dtype of a Python number; floats take the dtype of the arrays in the call
_NUMBERS = {bool: "bool", int: "int32", float: "float32"}

_DTYPES = frozenset(
    ("bool", "bfloat16")
    + tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
    + tuple(f"float{bits}" for bits in (16, 32, 64))
)


@dataclass(frozen=True)
class Leaf:
    """One array or number of a call.

    Attributes
    ----------
    shape : tuple of int
        Its shape.
    dtype : str
        The TVM name of its dtype.
    gpu : int or None
        The number of the GPU that holds it, or None for the host and for numbers.
    writable : bool
        Whether its memory may be written; false for numbers and JAX arrays.
    """

    shape: tuple[int, ...]
    dtype: str
    gpu: int | None = None
    writable: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def quick_key(leaves: Sequence[Any]) -> tuple[Hashable, ...]:
    """A key that is equal only for arrays that take the same program, and fast to make.

    It also differs for dtypes of different frameworks.

    Raises
    ------
    AttributeError
        If a leaf is neither an array nor a number.
    """
    parts: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is np.ndarray:
            parts.append(leaf.shape)
            parts.append(leaf.dtype)
        elif kind in _NUMBERS:
            parts.append(kind)
        else:
            parts.append(tuple(leaf.shape))
            parts.append(leaf.dtype)
            parts.append(kind)
            parts.append(getattr(leaf, "device", None).__str__())
    return tuple(parts)


def leaves_of(values: Sequence[Any], names: Sequence[str]) -> list[Leaf]:
    """The properties of each value.

    Raises
    ------
    InvalidArgumentError
        If a value is neither an array nor a number, or a number does not fit its dtype.
    CallError
        If arrays are on different devices.
    """
    floats = "float32"
    found: list[Leaf | None] = []
    for value, name in zip(values, names, strict=True):
        if type(value) in _NUMBERS:
            found.append(None)
            continue
        kind = kind_of(value)
        if kind is None:
            raise InvalidArgumentError(
                f"{name} is {type(value).__name__}: arguments must be arrays and numbers, in "
                "tuples, lists, dictionaries and dataclasses; list arguments that specialise the "
                "program in static_argnums of jit"
            )
        shape, dtype = kind.shape_dtype(value)
        refuse_dtype(dtype, name)
        found.append(Leaf(tuple(map(int, shape)), dtype, gpu_of(value), kind.name != "jax"))
    _one_device(found, names)
    dtypes = [leaf.dtype for leaf in found if leaf is not None and "float" in leaf.dtype]
    if dtypes:
        floats = dtypes[0]
    return [
        leaf if leaf is not None else Leaf((), _number_dtype(value, floats, name))
        for leaf, value, name in zip(found, values, names, strict=True)
    ]


def refuse_dtype(dtype: str, name: str) -> None:
    """Raise InvalidArgumentError if no kernel computes with the dtype of an argument."""
    if dtype not in _DTYPES:
        raise InvalidArgumentError(
            f"{name} has dtype {dtype}, which no kernel computes with: convert it to one of "
            f"{', '.join(sorted(_DTYPES))}"
        )


def _number_dtype(value: Any, floats: str, name: str) -> str:
    if type(value) is float:
        return floats
    if type(value) is int and not -(2**31) <= value < 2**31:
        raise InvalidArgumentError(
            f"{name} is {value}, which does not fit int32: pass an array of int64"
        )
    return _NUMBERS[type(value)]


def _one_device(found: Sequence[Leaf | None], names: Sequence[str]) -> None:
    places = [
        (leaf.gpu, name)
        for leaf, name in zip(found, names, strict=True)
        if leaf is not None and leaf.shape
    ]
    for gpu, name in places[1:]:
        if gpu != places[0][0]:
            raise CallError(
                f"{places[0][1]} is on {_device(places[0][0])} and {name} on {_device(gpu)}: move "
                "them to one device"
            )


def _device(gpu: int | None) -> str:
    return "the CPU" if gpu is None else f"GPU {gpu}"


def contiguous(array: Array) -> Array:
    """The array, or a contiguous copy if its elements are not contiguous."""
    if isinstance(array, np.ndarray):
        native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        return np.require(native, requirements=["C", "A"])
    if hasattr(array, "contiguous"):
        return array.contiguous()
    return array


def as_array(value: Any, dtype: str) -> Any:
    """A Python number as an array of rank 0."""
    return np.asarray(value, dtype) if type(value) in _NUMBERS else value
