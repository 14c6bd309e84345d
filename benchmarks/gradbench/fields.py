"""Fields of an eval's input, checked: what is missing or has another form is named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..suite.case import Array, aligned


class InputError(Exception):
    """An input of an eval that is not as its specification says."""


def field(data: Any, name: str) -> Any:
    """The value of a field that must be there; dots lead into nested objects."""
    for part in name.split("."):
        if not isinstance(data, Mapping) or part not in data:
            raise InputError(f"the input has no field {name!r}")
        data = data[part]
    return data


def array(data: Any, name: str, shape: tuple[int | None, ...], dtype: str = "float64") -> Array:
    """A field as an array; None stands for any extent."""
    given = field(data, name)
    wanted = "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
    try:
        values = np.asarray(given)
    except ValueError as error:
        raise InputError(f"the rows of {name!r} differ in length, shape {wanted} needed") from error
    if values.size == 0:  # the form of what an empty list would hold is not written
        values = values.reshape(*values.shape, *(size or 0 for size in shape[values.ndim :]))
    fits = values.ndim == len(shape) and all(
        size is None or size == found for size, found in zip(shape, values.shape, strict=True)
    )
    if not fits:
        raise InputError(f"{name!r} has the shape {list(values.shape)}, needed is {wanted}")
    kinds = "iuf" if dtype == "float64" else "iu"
    if values.size and values.dtype.kind not in kinds:
        raise InputError(f"{name!r} holds something that is no {dtype}")
    return aligned(values.astype(dtype))


def places(data: Any, name: str, shape: tuple[int | None, ...], below: int) -> Array:
    """A field of indices, from 0 up to `below`."""
    values = array(data, name, shape, "int32")
    if values.size and (values.min() < 0 or values.max() >= below):
        raise InputError(f"{name!r} holds an index outside of 0 to {below - 1}")
    return values


def integer(data: Any, name: str, least: int) -> int:
    """A field that is an integer, at least `least`."""
    value = field(data, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name!r} is {value!r}, needed is an integer of at least {least}")
    return value


def number(data: Any, name: str) -> float:
    """A field that is a finite number."""
    value = field(data, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{name!r} is {value!r}, needed is a finite number")
    return float(value)
