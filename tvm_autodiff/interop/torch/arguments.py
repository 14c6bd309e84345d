"""Arguments of functions on PyTorch's tensors: sizes that are symbols, numbers, autocast."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ...functions.leaves import Leaf, leaves_of

#: from leaves and their names to what they are
Look = Callable[[Sequence[Any], Sequence[str]], list[Leaf]]


def quick_key(leaves: Sequence[Any]) -> tuple[Hashable, ...]:
    """What is the same for tensors that take the same program; quick to make.

    Raises
    ------
    AttributeError
        A leaf is neither a tensor of PyTorch nor a number.
    TypeError
        A size is symbolic.
    """
    parts: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is float or kind is int or kind is bool:
            parts.append(kind)
        else:
            parts.append(leaf.device)
            parts.append(leaf.dtype)
            parts.append(leaf.shape)
    return tuple(parts)


def look_for(dynamic: Mapping[str, Sequence[int]]) -> Look:
    """What tells what leaves are, where PyTorch traces with sizes that are symbols, too.

    A symbol on an axis that is dynamic stays one; on any other axis PyTorch makes it a number.
    """
    return partial(_look, dynamic)


def _look(dynamic: Mapping[str, Sequence[int]], values: Sequence[Any], names: Sequence[str]) -> Any:
    known: list[tuple[Any, int]] = []
    plain = []
    for value, name in zip(values, names, strict=True):
        if isinstance(value, torch.Tensor) and _symbolic(value.shape):
            owner = re.match(r"\w+", name)
            axes = dynamic.get(owner[0] if owner else name, ())
            marked = {axis % value.dim() for axis in axes if -value.dim() <= axis < value.dim()}
            sizes = [
                _number(size, known) if axis in marked else int(size)
                for axis, size in enumerate(value.shape)
            ]
            value = torch.empty(sizes, dtype=value.dtype, device=value.device)
        plain.append(value)
    return leaves_of(plain, names)


def _symbolic(shape: Sequence[Any]) -> bool:
    return any(isinstance(size, torch.SymInt) for size in shape)


def _number(size: Any, known: list[tuple[Any, int]]) -> int:
    """A number for a size: the same for sizes that PyTorch finds equal, and for those alone."""
    if isinstance(size, int):
        return size
    for other, number in known:
        if size == other:  # PyTorch notes what it said
            return number
    number = int(size.node.hint)
    while any(number == taken for _, taken in known):
        number += 1
    known.append((size, number))
    return number


def promoted(leaves: Sequence[Any]) -> list[Any]:
    """The leaves as autocast gives them to operators that promote: all floating point tensors in
    the widest of their dtypes.
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
    """The leaves, numbers as tensors of rank 0; `dtypes` holds theirs, and None for tensors."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    device = tensors[0].device if tensors else None
    return [
        leaf if dtype is None else torch.tensor(leaf, dtype=getattr(torch, dtype), device=device)
        for leaf, dtype in zip(leaves, dtypes, strict=True)
    ]
