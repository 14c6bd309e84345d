"""Numbers of iterations that lets convert to floats: hidden from TVM, and equal."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import prim

import tvm_autodiff as ad
from tvm_autodiff.codegen.passes.indices.opaque_conversions import hide_conversions

k, m = tirx.Var("k", "int32"), tirx.Var("m", "int64")
a, t, u = (tirx.Var(name, "float32") for name in "atu")


def converted(number: Any) -> Any:
    return tirx.Cast("float32", number)


#: name → a value, how many of its integers are hidden
CASES = {
    "a quotient": (prim.Let(u, converted(k) / a, u * u), 1),
    "of a let": (prim.Let(t, converted(k), prim.Let(u, t / a, u * u)), 1),
    "in a let of a let": (prim.Let(u, prim.Let(t, converted(k), t * t), u * a), 1),
    "two": (prim.Let(u, converted(k + 1) * a - converted(m) * a, u * u), 2),
    "no let": (converted(k) / a, 0),
    "in the body": (prim.Let(u, a * a, u * converted(k)), 0),
    "a flag": (prim.Let(u, converted(k < 3) / a, u * u), 0),
    "an integer": (prim.Let(m, tirx.Cast("int64", k), converted(m)), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_hidden(name: str) -> None:
    value, count = CASES[name]
    func = hide_conversions(tirx.PrimFunc([k, m, a], tirx.Evaluate(value)))
    assert func.script().count(" | ") == count


def test_triangular_filters_have_vectors() -> None:
    """Mel filters and the gradient of their corners, against the derivative written out."""
    count, n = 7, 129
    c, h = te.placeholder((count + 2,), name="c"), te.placeholder((count, n), name="h")

    def weight(i: Any, j: Any) -> Any:
        place = j.astype("float32")
        rising = (place - c[i]) / (c[i + 1] - c[i])
        falling = (c[i + 2] - place) / (c[i + 2] - c[i + 1])
        return te.max(te.min(rising, falling), 0.0)

    w = te.compute((count, n), weight, name="w")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as of a kernel that TVM refuses
        built = ad.build([c, h], [w, *ad.differentiate(w, [c], h)], cache=False)
    rng = np.random.default_rng(0)
    corners = np.sort(rng.uniform(0, n, count + 2)).astype("float32")
    head = rng.normal(size=(count, n)).astype("float32")
    values, by_corner = built(corners, head)
    low, top, high = (corners[i : count + i, None].astype(float) for i in range(3))
    place = np.arange(n)
    rising, falling = (place - low) / (top - low), (high - place) / (high - top)
    np.testing.assert_allclose(values, np.maximum(np.minimum(rising, falling), 0), atol=1e-5)
    up = head * ((rising <= falling) & (rising > 0))
    down = head * ((rising > falling) & (falling > 0))
    expected = np.zeros(count + 2)
    expected[:-2] += (up * (place - top) / (top - low) ** 2).sum(1)
    expected[1:-1] += (down * (high - place) / (high - top) ** 2 - up * rising / (top - low)).sum(1)
    expected[2:] += (down * (place - top) / (high - top) ** 2).sum(1)
    np.testing.assert_allclose(by_corner, expected, rtol=1e-4, atol=1e-4)
