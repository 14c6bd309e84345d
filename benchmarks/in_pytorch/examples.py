"""Gradients for each example of a batch: a network of two layers with cross-entropy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from tvm import te, topi

from tvm_autodiff.interop.torch import function

from .case import Case, Step, compiled

BATCH, SIZES = 256, (64, 128, 10)


def in_te(first: Any, second: Any, x: Any, label: Any) -> Any:
    """The loss of one example."""
    hidden = topi.tanh(topi.matmul(topi.expand_dims(x, 0), first))
    scores = topi.nn.log_softmax(topi.matmul(hidden, second))
    return te.compute((), lambda: -scores[0, label()], name="loss")


def in_torch(first: Any, second: Any, x: Any, label: Any) -> Any:
    """The same."""
    scores = torch.tanh(x @ first) @ second
    return torch.nn.functional.cross_entropy(scores[None], label[None])


def inputs(dtype: Any) -> Sequence[Any]:
    """Weights and a batch."""
    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    weights = [normal(m, n) / m**0.5 for m, n in pairwise(SIZES)]
    labels = torch.randint(SIZES[-1], (BATCH,), generator=generator)
    return [*weights, normal(BATCH, SIZES[0]), labels]


def step(loss: Callable[..., Any]) -> Step:
    """A gradient for each example and each weight."""
    return torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), (None, None, 0, 0))


CASE = Case(
    f"per-example gradients, batch of {BATCH}, layers {'-'.join(map(str, SIZES))}",
    inputs,
    {
        "te": lambda: step(function(in_te)),
        "te, torch.compile": lambda: compiled(step(function(in_te))),
        "PyTorch": lambda: step(in_torch),
        "torch.compile": lambda: compiled(step(in_torch)),
    },
    "PyTorch",
)
