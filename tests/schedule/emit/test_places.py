"""Tensors that hold the elements of another one in the same order: which share its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph

D = "float64"
A, B = te.placeholder((12, 7), D, name="a"), te.placeholder((7, 10), D, name="b")
ARRAYS = [(A, np.random.default_rng(0).normal(size=(12, 7)))]
ARRAYS.append((B, np.random.default_rng(1).normal(size=(7, 10))))


def product() -> Any:
    k = te.reduce_axis((0, 7), "k")
    return te.compute((12, 10), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="p")


def flat(p: Any, name: str = "flat") -> Any:
    return te.compute((120,), lambda q: p[q // 10, q % 10], name=name)


def flat_alone() -> list[Any]:
    return [flat(product())]


def flat_and_whole() -> list[Any]:
    p = product()
    return [p, flat(p)]


def flat_twice() -> list[Any]:
    p = product()
    shift = te.compute((120,), lambda q: p[q // 10, q % 10] + 1.0, name="shift")
    return [flat(p), shift, flat(p, "again")]


def flat_of_flat() -> list[Any]:
    q = flat(product())
    return [te.compute((30, 4), lambda i, j: q[i * 4 + j], name="rows")]


def transposed() -> list[Any]:
    p = product()
    return [te.compute((10, 12), lambda i, j: p[j, i], name="t")]


def first_elements() -> list[Any]:
    """A result has no room for the others."""
    p = product()
    return [te.compute((115,), lambda q: p[q // 10, q % 10], name="first")]


def of_an_input() -> list[Any]:
    return [te.compute((84,), lambda q: A[q // 7, q % 7], name="flat")]


#: name → the outputs, and the bytes of temporaries
CASES: dict[str, tuple[Callable[[], list[Any]], int]] = {
    "alone": (flat_alone, 0),
    "beside the whole": (flat_and_whole, 0),
    "twice": (flat_twice, 0),
    "of a flat tensor": (flat_of_flat, 0),
    "a transposition": (transposed, 960),
    "the first elements": (first_elements, 960),
    "of an input": (of_an_input, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_memory_and_values(name: str) -> None:
    make, temporaries = CASES[name]
    outputs = make()
    step = ad.build([A, B], outputs, cache=False)
    got = step(*(array for _, array in ARRAYS))
    for left, right in zip(evaluate_graph(outputs, ARRAYS), got, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-12)
    assert step.memory().temporaries == temporaries


def test_a_view_takes_no_time() -> None:
    step = ad.build([A, B], flat_alone(), cache=False)
    assert [kernel.name for kernel in step.profile(*(array for _, array in ARRAYS)).kernels] == [
        "p"
    ]
