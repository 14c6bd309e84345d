"""A bilateral filter of an image, and the gradients of a loss by the image and both widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te

from tvm_autodiff.interop.torch import function

from .case import Case, Step, compiled

SIZE, RADIUS = 512, 3


def in_te(image: Any, space: Any, tone: Any) -> Any:
    """The mean of neighbours, with weights that fall with distance and with difference."""
    height, width = image.shape
    window = 2 * RADIUS + 1

    def near(i: Any, j: Any) -> Any:
        row = te.max(te.min(i, height - 1), 0)
        return image[row, te.max(te.min(j, width - 1), 0)]

    def weight(i: Any, j: Any, p: Any, q: Any) -> Any:
        difference = near(i + p - RADIUS, j + q - RADIUS) - image[i, j]
        far = ((p - RADIUS) * (p - RADIUS) + (q - RADIUS) * (q - RADIUS)).astype(image.dtype)
        tones = difference * difference / (2.0 * tone() * tone())
        return te.exp(-far / (2.0 * space() * space()) - tones)

    def sums(term: Callable[..., Any], name: str) -> Any:
        p, q = te.reduce_axis((0, window), "p"), te.reduce_axis((0, window), "q")
        return te.compute(
            (height, width), lambda i, j: te.sum(term(i, j, p, q), axis=[p, q]), name=name
        )

    above = sums(lambda i, j, p, q: weight(i, j, p, q) * near(i + p - 3, j + q - 3), "above")
    below = sums(weight, "below")
    return te.compute((height, width), lambda i, j: above[i, j] / below[i, j], name="filtered")


def by_slices(image: Any, space: Any, tone: Any) -> Any:
    """The same as a sum over shifted images."""
    height, width = image.shape
    padded = torch.nn.functional.pad(image[None, None], (RADIUS,) * 4, mode="replicate")[0, 0]
    above = below = 0
    for p in range(2 * RADIUS + 1):
        for q in range(2 * RADIUS + 1):
            shifted = padded[p : p + height, q : q + width]
            far = (p - RADIUS) ** 2 + (q - RADIUS) ** 2
            tones = (shifted - image) ** 2 / (2 * tone**2)
            weight = torch.exp(-far / (2 * space**2) - tones)
            above = above + weight * shifted
            below = below + weight
    return above / below


def by_windows(image: Any, space: Any, tone: Any) -> Any:
    """The same with all neighbours of a pixel on an axis of their own."""
    padded = torch.nn.functional.pad(image[None, None], (RADIUS,) * 4, mode="replicate")[0, 0]
    window = 2 * RADIUS + 1
    near = padded.unfold(0, window, 1).unfold(1, window, 1)
    offset = torch.arange(-RADIUS, RADIUS + 1, dtype=image.dtype)
    far = offset[:, None] ** 2 + offset**2
    tones = (near - image[..., None, None]) ** 2 / (2 * tone**2)
    weight = torch.exp(-far / (2 * space**2) - tones)
    return (weight * near).sum((-2, -1)) / weight.sum((-2, -1))


def inputs(dtype: Any) -> Sequence[Any]:
    """An image with its widths, and the image that is wanted."""
    generator = torch.Generator().manual_seed(0)
    image, wanted = torch.rand(2, SIZE, SIZE, generator=generator, dtype=torch.float64)
    space, tone = torch.tensor([2.0, 0.3], dtype=torch.float64)
    given = [t.clone().to(dtype).requires_grad_() for t in (image, space, tone)]
    return [*given, wanted.to(dtype)]


def loss_of(filtered: Callable[..., Any]) -> Callable[..., Any]:
    """The squared distance of a filtered image from the wanted one."""
    return lambda image, space, tone, wanted: (
        (filtered(image, space, tone) - wanted).square().mean()
    )


def step(loss: Callable[..., Any]) -> Step:
    """The value, and the gradients of the image and both widths."""

    def run(*inputs: Any) -> Sequence[Any]:
        value = loss(*inputs)
        return [value, *torch.autograd.grad(value, inputs[:3])]

    return run


CASE = Case(
    f"bilateral filter 7x7 of {SIZE}x{SIZE}, gradients of image and widths",
    inputs,
    {
        "te": lambda: step(loss_of(function(in_te))),
        "te, torch.compile": lambda: step(compiled(loss_of(function(in_te)))),
        "PyTorch": lambda: step(loss_of(by_slices)),
        "torch.compile": lambda: step(compiled(loss_of(by_slices))),
        "torch.compile, windows": lambda: step(compiled(loss_of(by_windows))),
    },
    "PyTorch",
)
