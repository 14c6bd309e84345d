"""Expressions that occur in lets and beside them compile in their schedules."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad

N = 40  #: rows and columns of the image


def bilateral(image: te.Tensor, sharpness: te.Tensor) -> te.Tensor:
    """Each pixel as a mean of its neighbours, by how near their values are."""

    def at(y, x):
        return image[te.max(te.min(y, N - 1), 0), te.max(te.min(x, N - 1), 0)]

    def weight(y, x, a, b):
        apart = at(y + a - 1, x + b - 1) - image[y, x]
        return te.exp(-apart * apart * sharpness())

    (a, b), (c, d) = ([te.reduce_axis((0, 3), name) for name in names] for names in ("ab", "cd"))
    top = te.compute(
        (N, N),
        lambda y, x: te.sum(weight(y, x, a, b) * at(y + a - 1, x + b - 1), axis=[a, b]),
        name="top",
    )
    total = te.compute((N, N), lambda y, x: te.sum(weight(y, x, c, d), axis=[c, d]), name="total")
    return te.compute((N, N), lambda y, x: top[y, x] / total[y, x], name="out")


@pytest.mark.slow
def test_the_gradient_of_a_bilateral_filter_keeps_its_schedules() -> None:
    """TVM's elimination defines what is common to lets and to later stores behind the lets."""
    image, head = (te.placeholder((N, N), name=name) for name in ("image", "head"))
    sharpness = te.placeholder((), name="sharpness")
    out = bilateral(image, sharpness)
    [gradient] = ad.vjp([out], [image], [head])
    function = ad.build([image, sharpness, head], [out, gradient])
    assert function.notice is None
    rng = np.random.default_rng(0)
    x, g = rng.random((N, N), "float32"), rng.random((N, N), "float32")
    found = function(x, np.float32(2), g)

    wide = np.pad(x.astype("float64"), 1, mode="edge")
    shifted = np.stack([wide[a : a + N, b : b + N] for a in range(3) for b in range(3)])
    weights = np.exp(-2 * (shifted - x) ** 2)
    want = (weights * shifted).sum(0) / weights.sum(0)
    np.testing.assert_allclose(found[0], want, rtol=1e-5)
    # by the quotient rule, towards the neighbours and towards the pixel itself
    slopes = -4 * (shifted - x) * weights
    to_shifted = ((slopes * (shifted - want) + weights) / weights.sum(0)) * g
    to_pixel = (-slopes * (shifted - want)).sum(0) / weights.sum(0) * g
    padded = np.zeros((N + 2, N + 2))
    for number, (a, b) in enumerate((a, b) for a in range(3) for b in range(3)):
        padded[a : a + N, b : b + N] += to_shifted[number]
    for axis in (0, 1):  # what lies behind an edge is the pixel at the edge
        padded = np.moveaxis(padded, axis, 0)
        padded[1] += padded[0]
        padded[-2] += padded[-1]
        padded = np.moveaxis(padded[1:-1], 0, axis)
    np.testing.assert_allclose(found[1], padded + to_pixel, rtol=1e-4, atol=1e-5)
