"""Force matching: the forces of a pairwise potential, and the gradient of a loss on them by its
parameters, a derivative of third order, mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te, tirx, topi

from tvm_autodiff.interop.torch import function

from .case import Case, Step, compiled

ATOMS = 256


def in_te(places: Any, depth: Any, width: Any, length: Any) -> Any:
    """Morse's potential, summed over all pairs."""
    atoms, axes = places.shape
    k = te.reduce_axis((0, axes), "k")
    square = te.compute(
        (atoms, atoms),
        lambda i, j: te.sum((places[i, k] - places[j, k]) * (places[i, k] - places[j, k]), axis=k),
        name="square",
    )

    def pair(i: Any, j: Any) -> Any:
        distance = te.sqrt(tirx.if_then_else(i == j, 1.0, square[i, j]))
        rest = 1.0 - te.exp(-width() * (distance - length()))
        return tirx.if_then_else(i == j, 0.0, depth() * rest * rest)

    return topi.sum(te.compute((atoms, atoms), pair, name="pair")) * 0.5


def in_torch(places: Any, depth: Any, width: Any, length: Any) -> Any:
    """The same."""
    between = places[:, None] - places[None]
    same = torch.eye(ATOMS, dtype=places.dtype)
    distance = torch.sqrt(between.square().sum(-1) + same)
    rest = 1 - torch.exp(-width * (distance - length))
    return (depth * rest * rest * (1 - same)).sum() * 0.5


def inputs(dtype: Any) -> Sequence[Any]:
    """Places, parameters, and the forces that are wanted."""
    generator = torch.Generator().manual_seed(0)
    places, wanted = torch.randn(2, ATOMS, 3, generator=generator, dtype=torch.float64)
    parameters = torch.tensor([1.0, 0.8, 1.5], dtype=torch.float64)
    given = [t.clone().to(dtype).requires_grad_() for t in parameters]
    return [(3 * places).to(dtype), *given, wanted.to(dtype)]


def by_functions(energy: Callable[..., Any]) -> Callable[..., Any]:
    """The loss on forces that `torch.func.grad` gives."""

    def loss(places: Any, depth: Any, width: Any, length: Any, wanted: Any) -> Any:
        slope = torch.func.grad(energy)(places, depth, width, length)
        return (slope + wanted).square().mean()

    return loss


def by_autograd(energy: Callable[..., Any]) -> Callable[..., Any]:
    """The loss on forces that `torch.autograd.grad` gives."""

    def loss(places: Any, depth: Any, width: Any, length: Any, wanted: Any) -> Any:
        places = places.detach().requires_grad_()
        value = energy(places, depth, width, length)
        [slope] = torch.autograd.grad(value, places, create_graph=True)
        return (slope + wanted).square().mean()

    return loss


def step(loss: Callable[..., Any]) -> Step:
    """The value, and the gradients of the parameters."""

    def run(*inputs: Any) -> Sequence[Any]:
        value = loss(*inputs)
        return [value, *torch.autograd.grad(value, inputs[1:4])]

    return run


CASE = Case(
    f"force matching, {ATOMS} atoms, gradients of three parameters",
    inputs,
    {
        "te": lambda: step(by_autograd(function(in_te))),
        "te, torch.compile": lambda: step(compiled(by_functions(function(in_te)))),
        "PyTorch": lambda: step(by_autograd(in_torch)),
        "torch.compile": lambda: step(compiled(by_autograd(in_torch))),
        "torch.compile, torch.func": lambda: step(compiled(by_functions(in_torch))),
    },
    "PyTorch",
)
