"""Arguments of functions on PyTorch tensors: symbolic sizes, numbers, autocast."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ...errors import CallError, InvalidArgumentError
from ...functions.leaves import Leaf, leaves_of

#: maps leaves and their names to their properties
Look = Callable[[Sequence[Any], Sequence[str]], list[Leaf]]

#: the devices of kernels; "meta" holds only shapes
_DEVICES = ("cpu", "cuda", "meta")


def quick_key(leaves: Sequence[Any]) -> tuple[Hashable, ...]:
    """A key that is equal only for tensors that take the same `QuickCall`, and fast to make.

    Raises
    ------
    AttributeError
        If a leaf is neither a PyTorch tensor nor a number.
    TypeError
        If a size is symbolic, or a nested tensor has none.
    """
    parts: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is float or kind is int or kind is bool:
            parts.append(kind)
        elif leaf.is_nested:
            raise TypeError("a nested tensor has no shape")
        else:
            parts.append(leaf.device)
            parts.append(leaf.dtype)
            parts.append(leaf.layout)
            parts.append(leaf.shape)
            parts.append(leaf.requires_grad)
    return tuple(parts)


def look_for(dynamic: Mapping[str, Sequence[int]]) -> Look:
    """A function that returns the properties of leaves, also when PyTorch traces with symbolic
    sizes.

    A symbol on a dynamic axis stays symbolic. On any other axis PyTorch specialises it to a number.
    """
    return partial(_look, dynamic)


def _look(dynamic: Mapping[str, Sequence[int]], values: Sequence[Any], names: Sequence[str]) -> Any:
    known: list[tuple[Any, int]] = []
    plain = []
    for value, name in zip(values, names, strict=True):
        if type(value) in (bool, int, float):
            plain.append(value)
            continue
        _check(value, name)
        owner = re.match(r"\w+", name)
        axes = dynamic.get(owner[0] if owner else name, ())
        marked = {axis % value.dim() for axis in axes if -value.dim() <= axis < value.dim()}
        sizes = [
            _number(size, known) if axis in marked else int(size)
            for axis, size in enumerate(value.shape)
        ]
        # tensors that transforms wrap, or that hold no values, cannot be queried like plain ones
        plain.append(torch.empty((), dtype=value.dtype).expand(sizes))
    _check_devices(values, names)
    return leaves_of(plain, names)


def _check(value: Any, name: str) -> None:
    if not isinstance(value, torch.Tensor):
        raise InvalidArgumentError(
            f"{name} is {type(value).__name__}: arguments must be PyTorch tensors and numbers, in "
            "tuples, lists, dictionaries and dataclasses; bind values that specialise the function "
            "in its closure"
        )
    if value.is_nested:
        raise InvalidArgumentError(
            f"{name} is a nested tensor: kernels take dense tensors: use .to_padded_tensor(0.0), "
            "or call the function with each of .unbind()"
        )
    if value.layout != torch.strided:
        raise InvalidArgumentError(
            f"{name} has the layout {value.layout}: kernels take dense tensors: use .to_dense()"
        )
    if value.is_quantized:
        raise InvalidArgumentError(
            f"{name} is quantized: kernels take plain numbers: use .dequantize()"
        )
    if value.device.type not in _DEVICES:
        raise CallError(
            f"{name} is on {value.device}, for which there are no kernels: move it to the CPU or "
            "to a CUDA GPU"
        )


def _check_devices(values: Sequence[Any], names: Sequence[str]) -> None:
    places = [
        (value.device, name)
        for value, name in zip(values, names, strict=True)
        if isinstance(value, torch.Tensor) and (value.dim() or value.device.type != "cpu")
    ]
    for device, name in places[1:]:
        if device != places[0][0]:
            raise CallError(
                f"{places[0][1]} is on {places[0][0]} and {name} on {device}: move them to one "
                "device"
            )


def _number(size: Any, known: list[tuple[Any, int]]) -> int:
    """A number for a size: equal exactly for sizes that PyTorch finds equal."""
    if isinstance(size, int):
        return size
    for other, number in known:
        if size == other:  # PyTorch records the answer as a guard
            return number
    number = int(size.node.hint)
    while any(number == taken for _, taken in known):
        number += 1
    known.append((size, number))
    return number


def promoted(leaves: Sequence[Any]) -> list[Any]:
    """The leaves as autocast passes them to promoting operators.

    All floating point tensors are converted to the widest of their dtypes.
    """
    dtypes = [t.dtype for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]
    if len(set(dtypes)) < 2:
        return list(leaves)
    widest = dtypes[0]
    for dtype in dtypes[1:]:
        widest = torch.promote_types(widest, dtype)
    return [
        leaf.to(widest) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf
        for leaf in leaves
    ]


def as_tensors(leaves: Sequence[Any], dtypes: Sequence[str | None]) -> list[torch.Tensor]:
    """The leaves, with numbers as tensors of rank 0; `dtypes` holds their dtypes, and None for
    tensors.
    """
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    device = tensors[0].device if tensors else None
    return [
        leaf if dtype is None else torch.tensor(leaf, dtype=getattr(torch, dtype), device=device)
        for leaf, dtype in zip(leaves, dtypes, strict=True)
    ]
