"""Reductions up to a place, in all the ways to write them: one step an element, the same values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.nest.reductions.prefix_reductions import prefix_reduction_of
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

N = 17
X = te.placeholder((N,), "float64", name="X")
Y = te.placeholder((3, N, 4), "float64", name="Y")
product = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="product")
ite = te.if_then_else


def along(body, extent=lambda i: N, low=lambda i: 0, reduce=te.sum):
    """``out[i] = reduce_k body(i, k)``."""

    def element(i):
        k = te.reduce_axis((low(i), extent(i)), "k")
        return reduce(body(i, k.var), axis=k)

    return te.compute((N,), element, name="out")


def middle(body, extent=lambda i: N, reduce=te.sum):
    def element(b, i, c):
        k = te.reduce_axis((0, extent(i)), "k")
        return reduce(body(b, i, k.var, c), axis=k)

    return te.compute((3, N, 4), element, name="out")


SCANS = {
    "ragged": along(lambda i, k: X[k], lambda i: i + 1),
    "ragged, exclusive": along(lambda i, k: X[k], lambda i: i),
    "ragged from i": along(lambda i, k: X[k], low=lambda i: i),
    "ragged, read backwards": along(lambda i, k: X[N - 1 - k], lambda i: N - i),
    "ragged, shifted": along(lambda i, k: X[i + k], lambda i: N - i),
    "ragged, lagged": along(lambda i, k: X[i - k], lambda i: i + 1),
    "ragged, written backwards": along(lambda i, k: X[k], lambda i: N - i),
    "read backwards": along(lambda i, k: ite(k < N - i, X[N - 1 - k], 0.0)),
    "shifted": along(lambda i, k: ite(i + k < N, X[i + k], 0.0)),
    "shifted, exclusive": along(lambda i, k: ite(te.all(i + k < N, k > 0), X[i + k], 0.0)),
    "lagged": along(lambda i, k: ite(i - k >= 0, X[i - k], 0.0)),
    "lagged, backwards": along(lambda i, k: ite(i - k >= 0, X[N - 1 - i + k], 0.0)),
    "written backwards": along(lambda i, k: ite(k <= N - 1 - i, X[k], 0.0)),
    "written backwards, exclusive": along(lambda i, k: ite(i + k < N - 1, X[k], 0.0)),
    "with another condition": along(
        lambda i, k: ite(te.all(i + k < N, tirx.FloorMod(k, 3) > 0), X[k], 0.0)
    ),
    "with a bound": along(lambda i, k: ite(te.all(k <= i, k >= 3), X[k] * X[k], 0.0)),
    "product": along(lambda i, k: X[N - 1 - k], lambda i: N - i, reduce=product),
    "max": along(lambda i, k: X[i + k], lambda i: N - i, reduce=te.max),
    "middle, ragged": middle(lambda b, i, k, c: Y[b, k, c], lambda i: i + 1),
    "middle, backwards": middle(lambda b, i, k, c: ite(k < N - i, Y[b, N - 1 - k, c], 0.0)),
    "middle, shifted": middle(lambda b, i, k, c: Y[b, i + k, c] * X[i + k], lambda i: N - i),
}

OTHERS = {
    "every second": along(lambda i, k: ite(2 * k <= i, X[k], 0.0)),
    "of both": along(lambda i, k: ite(k <= i, te.exp(X[k] * X[i]), 0.0)),
    "window": along(lambda i, k: ite(te.all(k <= i, k > i - 3), X[k], 0.0)),
}


def check(outputs, inputs):
    data = [
        (t, np.random.default_rng(0).uniform(0.5, 1.5, [int(n) for n in t.shape])) for t in inputs
    ]
    kernels, results = separate(normal_form(outputs))
    got = evaluate_graph(results, data)
    for one, other in zip(got, evaluate_graph(outputs, data), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    return [prefix_reduction_of(kernel.root) is not None for kernel in kernels]


@pytest.mark.parametrize("name", SCANS)
def test_scan(name):
    assert check([SCANS[name]], [X, Y]) == [True]


#: gradients that are no plain scan: strided, or with a factor that depends on the place
NO_SCANS = {"product", "max", "with another condition", "with a bound", "middle, shifted"}


@pytest.mark.parametrize("name", [name for name in SCANS if name not in NO_SCANS])
def test_gradient_of_a_sum_is_a_scan(name):
    """The transpose of a prefix sum is a suffix sum."""
    out = SCANS[name]
    head = te.placeholder(out.shape, "float64", name="head")
    wanted = [Y] if name.startswith("middle") else [X]
    assert all(check(ad.differentiate(out, wanted, head), [X, Y, head])[:1])


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name):
    assert check([OTHERS[name]], [X]) == [False]


@pytest.mark.parametrize("name", ["ragged, read backwards", "lagged, backwards", "middle, shifted"])
def test_compiled(name):
    out = SCANS[name]
    inputs = [t for t in (X, Y) if name.startswith("middle") or t is X]
    data = [np.random.default_rng(1).uniform(-1, 1, [int(n) for n in t.shape]) for t in inputs]
    [want] = evaluate_graph([out], list(zip(inputs, data, strict=True)))
    np.testing.assert_allclose(ad.build(inputs, out, cache=False)(*data), want, rtol=1e-12)
