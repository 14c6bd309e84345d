"""Gradients of reads at bits of indices gather, and have no sum over zeros."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.kinds.kind import Compute, kind_of
from tvm_autodiff.graph.stage import reduced_axes

N, H = 64, 8

#: the index of element i that a butterfly reads, and the most terms of an adjoint
INDICES = {
    "the partner": (lambda i: i ^ H, 1),
    "the first of a pair": (lambda i: i & ~H, 2),
    "the first of a pair, masked": (lambda i: i & ~H & (N - 1), 2),
    "the second of a pair": (lambda i: i | H, 2),
    "mirrored": (lambda i: i ^ (N - 1), 1),
    "the place in a block": (lambda i: i & (H - 1), N // H),
    "the block": (lambda i: i >> 3, H),
    "the block's first": (lambda i: i >> 3 << 3, H),
    "one bit": (lambda i: i >> 3 & 1, N // 2),
}


@pytest.mark.parametrize("name", INDICES)
def test_adjoints(name):
    index, most = INDICES[name]
    x, head = (te.placeholder((N,), "float64", name=name) for name in ("x", "head"))
    y = te.compute((N,), lambda i: x[index(i)] * 2.0, name="y")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [dx] = ad.vjp([y], [x], [head])
    assert isinstance(kind_of(dx.op), Compute)  # and no scatter
    terms = [int(axis.dom.extent) for axis in reduced_axes(dx.op)]
    assert np.prod(terms, dtype=int) <= most
    values = np.random.default_rng(0).random(N)
    want = np.zeros(N)
    np.add.at(want, [index(i) for i in range(N)], 2 * values)
    [got] = evaluate_graph([dx], [(head, values)])
    np.testing.assert_allclose(got, want, rtol=1e-14)
