"""The evals in PyTorch, eager and compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from .library import Library, PeerOf


def functions_of_torch() -> Library:
    """The functions of PyTorch."""

    def scattered(shape: tuple[int, ...], places: tuple[Any, ...], values: Any) -> Any:
        result = torch.zeros(shape, dtype=values.dtype)
        result[places] = values
        return result

    def grad(function: Callable[..., Any], places: Any) -> Callable[..., Any]:
        return torch.func.grad(function, argnums=places)

    return Library(
        numpy=torch,
        grad=grad,
        jacrev=torch.func.jacrev,
        jacfwd=torch.func.jacfwd,
        jvp=torch.func.jvp,
        vmap=torch.func.vmap,
        constant=torch.as_tensor,
        log_sum_exp=torch.logsumexp,
        largest=torch.max,
        nearest=lambda values: torch.argmin(values, 1),
        scattered=scattered,
        powers=lambda values, count: torch.vander(values, count, increasing=True),
        scan=_scan_of_torch,
        sigmoid=torch.sigmoid,
    )


def _scan_of_torch(step: Any, carry: Any, xs: Any, length: int) -> tuple[Any, Any]:
    """A loop of Python: torch has no scan whose gradient can be relied on."""
    rows = [None] * length if xs is None else xs.unbind()
    ys = []
    for x in rows:
        carry, y = step(carry, x)
        ys.append(y)
    return carry, None if xs is None else torch.stack(ys)


def by_functions(
    peer_of: PeerOf, function: str, data: Mapping[str, Any], threads: int, compiled: bool
) -> Callable[[], list[np.ndarray]]:
    """A function of an eval; compiled as a whole, its derivative included."""
    torch.set_num_threads(threads)
    peer = peer_of(functions_of_torch(), data)
    derived = peer.functions[function]
    return _call(torch.compile(derived) if compiled else derived, peer.arguments)


def by_autograd(
    peer_of: PeerOf, function: str, data: Mapping[str, Any], threads: int, compiled: bool
) -> Callable[[], list[np.ndarray]]:
    """A function of an eval that has loops, which compiling as a whole would unroll: a step is
    compiled, and gradients are those of autograd, which costs least where operations are small.
    """
    torch.set_num_threads(threads)

    def scan(step: Any, carry: Any, xs: Any, length: int) -> tuple[Any, Any]:
        return _scan_of_torch(torch.compile(step) if compiled else step, carry, xs, length)

    library = dataclasses.replace(functions_of_torch(), grad=_grad_by_autograd, scan=scan)
    peer = peer_of(library, data)
    return _call(peer.functions[function], peer.arguments)


def _grad_by_autograd(function: Callable[..., Any], places: tuple[int, ...]) -> Callable[..., Any]:
    def gradients(*arguments: Any) -> Any:
        watched = list(arguments)
        for place in places:
            watched[place] = watched[place].detach().requires_grad_()
        return torch.autograd.grad(function(*watched), [watched[place] for place in places])

    return gradients


def _call(derived: Callable[..., Any], arguments: Any) -> Callable[[], list[np.ndarray]]:
    return lambda: torch.utils._pytree.tree_leaves(derived(*arguments))
