"""te functions, and the same in PyTorch's own operations: the oracle."""

from __future__ import annotations

import torch
from tvm import te, topi


def energy(x, w):
    """A scalar: shared parts, a product, an exponential."""
    h = topi.tanh(topi.matmul(x, w))
    return topi.sum(topi.exp(h) * h)


def torch_energy(x, w):
    h = torch.tanh(x @ w)
    return (torch.exp(h) * h).sum()


def wave(x):
    """Elementwise."""
    return topi.sin(x) * x


def torch_wave(x):
    return torch.sin(x) * x


def pair(x, w):
    """Two results in a dictionary, of which the second reads the first."""
    y = topi.tanh(topi.matmul(x, w))
    return {"y": y, "s": topi.sum(topi.exp(y), axis=1)}


def torch_pair(x, w):
    y = torch.tanh(x @ w)
    return {"y": y, "s": torch.exp(y).sum(1)}


def smooth(x, w):
    """A convolution in one dimension."""
    k = te.reduce_axis((0, w.shape[0]), "k")
    size = x.shape[0] - w.shape[0] + 1
    return te.compute((size,), lambda i: te.sum(x[i + k] * w[k], axis=k), name="smooth")


def torch_smooth(x, w):
    return torch.nn.functional.conv1d(x[None, None], w[None, None])[0, 0]


def rows(x):
    """A number of rows that may be a symbol."""
    return topi.sum(topi.exp(x) * x, axis=1)


def torch_rows(x):
    return (torch.exp(x) * x).sum(1)


def random(*shape, dtype=None, seed=0, grad=False):
    """Normal numbers of a seed."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
    return numbers.to(dtype or torch.float64).requires_grad_(grad)
