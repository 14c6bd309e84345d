"""Steps of loops over symbolic sizes whose multiples leave int32: programs build, and are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad

STEP = 1_000_000_000
n = te.var("n")
x = te.placeholder((n,), name="x")
k, q = te.reduce_axis((0, 4), "k"), te.reduce_axis((0, 2), "q")

#: what is read, and the places of x (None: no place) for i in range(4) and 5 elements
READS: dict[str, tuple[Callable[[Any], Any], list[int | None]]] = {
    "clamped from the end": (lambda i: x[te.max(n - 1 - i * STEP, 0)], [4, 0, 0, 0]),
    "clamped from the start": (lambda i: x[te.min(i * STEP, n - 1)], [0, 4, 4, 4]),
    "guarded": (
        lambda i: te.if_then_else(i * STEP < n, x[n - 1 - i * STEP], 0.0),
        [4, None, None, None],
    ),
    "guarded by the loop": (
        lambda i: te.if_then_else(i < 1, x[n - 1 - i * STEP], 0.0),
        [4, None, None, None],
    ),
}


@pytest.mark.parametrize("name", READS)
def test_values_and_gradients(name: str) -> None:
    read, places = READS[name]
    y, h = te.compute((4,), read, name="y"), te.placeholder((4,), name="h")
    [dx] = ad.differentiate(y, [x], h)
    given, head = np.arange(1, 6, dtype="float32"), np.array([2, 3, 5, 7], "float32")
    value, gradient = ad.build([x, h], [y, dx], cache=False)(given, head)
    wanted = np.zeros(5)
    for place, one in zip(places, head, strict=True):
        if place is not None:
            wanted[place] += one
    np.testing.assert_array_equal(value, [0 if p is None else given[p] for p in places])
    np.testing.assert_array_equal(gradient, wanted)


@pytest.mark.parametrize("target", ["llvm", "cuda"])
@pytest.mark.parametrize(
    "body",
    [
        lambda i: x[n - 1 - i * STEP],
        lambda i: te.max(x[n - 1 - k * STEP - i], axis=k),
        lambda i: te.sum(x[n - 1 - k * STEP - q * 700_000_000 - i], axis=[k, q]),
    ],
    ids=["elementwise", "one axis", "two axes"],
)
def test_strides_from_the_end_build(body: Callable[[Any], Any], target: str) -> None:
    y = te.compute((3,), body, name="y")
    assert ad.build(x, y, cache=False, target=target).signature.inputs[0].name == "x"
