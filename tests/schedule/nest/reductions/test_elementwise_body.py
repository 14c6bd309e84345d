"""What a reduction is read as: which factors of a product are one operand, which is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.schedule.nest.reductions.elementwise_body import (
    Body,
    reduced_body,
    with_joined_reads,
)
from tvm_autodiff.schedule.nest.reductions.products import Product

N, M, K = 6, 7, 9
a, c = (te.placeholder((N, K), name=name) for name in "ac")
b = te.placeholder((K, M), name="b")
u, v = te.placeholder((N,), name="u"), te.placeholder((K,), name="v")
m = te.placeholder((N, K), "bool", "m")


def summed(body: Callable[..., Any]) -> Any:
    k = te.reduce_axis((0, K), "k")
    return te.compute((N, M), lambda i, j: te.sum(body(i, j, k), axis=k), name="y")


def kernel(i: Any, k: Any) -> Any:
    return te.exp(-(u[i] - v[k]) * (u[i] - v[k]))


#: name → (the summed value, its operands, those with reads over equal loops joined or None)
OPERANDS: dict[str, tuple[Callable[..., Any], list[str], list[str] | None]] = {
    "two matrices": (lambda i, j, k: a[i, k] * b[k, j], ["a[i, k]", "b[k, j]"], None),
    "reads over equal loops": (
        lambda i, j, k: a[i, k] * b[k, j] * c[i, k],
        ["a[i, k]", "b[k, j]", "c[i, k]"],
        ["c[i, k]*a[i, k]", "b[k, j]"],
    ),
    "what is computed takes along what has its loops": (
        lambda i, j, k: a[i, k] * v[k] * kernel(i, k) * b[k, j],
        ["a[i, k]*v[k]*exp((-(u[i] - v[k]))*(u[i] - v[k]))", "b[k, j]"],
        None,
    ),
    "with its conditions": (
        lambda i, j, k: te.if_then_else(m[i, k], a[i, k], 0.0) * kernel(i, k) * b[k, j],
        ["a[i, k]*exp((-(u[i] - v[k]))*(u[i] - v[k]))", "b[k, j]"],
        None,
    ),
    "only over equal loops": (
        lambda i, j, k: a[i, k] * c[i, k],
        ["a[i, k]", "c[i, k]"],
        None,
    ),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands(name: str) -> None:
    body, operands, joined = OPERANDS[name]
    found = reduced_body(summed(body).op)
    assert isinstance(found, Product | Body)
    assert [text(one.expr) for one in found.operands] == operands
    together = with_joined_reads(found)
    assert (together is None) == (joined is None)
    if together is not None:
        assert [text(one.expr) for one in together.operands] == joined


@pytest.mark.parametrize("name", OPERANDS)
def test_values(name: str) -> None:
    y = summed(OPERANDS[name][0])
    inputs = [a, c, b, u, v, m]
    rng = np.random.default_rng(0)
    arrays = [rng.random([int(n) for n in t.shape]).astype("float32") for t in inputs[:-1]]
    mask = rng.random((N, K)) < 0.5
    at, ct, bt, ut, vt = arrays
    weights = np.exp(-((ut[:, None] - vt) ** 2))
    want = {
        "two matrices": at @ bt,
        "reads over equal loops": (at * ct) @ bt,
        "what is computed takes along what has its loops": (at * vt * weights) @ bt,
        "with its conditions": (at * mask * weights) @ bt,
        "only over equal loops": np.repeat((at * ct).sum(1)[:, None], M, 1),
    }[name]
    got = ad.build(inputs, y, cache=False)(*arrays, mask)
    np.testing.assert_allclose(got, want, rtol=1e-5)
