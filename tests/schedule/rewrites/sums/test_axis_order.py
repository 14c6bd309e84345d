"""Sums whose innermost axis is contiguous in every read."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.stage import reduction_of
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.sums.axis_order import in_order_of_memory, with_axes_in_order

N, K, A = 3, 9, 11
x, w = te.placeholder((N, K), "float64", "x"), te.placeholder((N, K, A), "float64", "w")
g = te.placeholder((N, A), "float64", "g")
u, v = (te.placeholder((N, A + 2), "float64", name) for name in "uv")


def total(shape, value, reduce=te.sum, extents=(A, K)):
    a, k = te.reduce_axis((0, extents[0]), "a"), te.reduce_axis((0, extents[1]), "k")
    return te.compute(shape, lambda *at: reduce(value(*at, a, k), axis=[a, k]), "total")


#: name → the sum, and the axes in their new order
CASES = {
    "a row": (total((N,), lambda i, a, k: x[i, k] * w[i, k, a] * g[i, a]), "ka"),
    "a maximum": (total((N,), lambda i, a, k: x[i, k] + w[i, k, a], te.max), "ka"),
    "in order": (total((N,), lambda i, k, a: x[i, k] * w[i, k, a], extents=(K, A)), "ak"),
    "no axis is contiguous": (total((N,), lambda i, a, k: w[i, k, a] * w[i, a - 2, k]), "ak"),
    "columns": (total((N, A), lambda i, j, a, k: w[i, k, j] * g[i, j]), "ak"),
    "reused operands": (total((N,), lambda i, a, k: x[i, k] * w[2, k, a]), "ak"),
    "windows": (
        total((N,), lambda i, a, k: u[i, a + k] * v[i, a + k] * g[i, a], extents=(A, 3)),
        "ka",
    ),
    "windows of an operand that results share": (
        total((N,), lambda i, a, k: u[i, a + k] * v[0, k], extents=(A, 3)),
        "ak",
    ),
    "short windows": (
        total((N,), lambda i, a, k: u[i, a + k] * v[i, a + k], extents=(6, 3)),
        "ak",
    ),
    "functions": (total((N,), lambda i, a, k: te.exp(w[i, a - 2, k])), "ak"),
    "functions along a short axis": (
        total((N,), lambda i, a, k: te.exp(w[i, a - 2, k]), extents=(A, 3)),
        "ka",
    ),
    "too short": (total((N,), lambda i, a, k: x[i, k] * w[i, k, a], extents=(7, K)), "ak"),
}


@pytest.mark.parametrize("name", CASES)
def test_order(name):
    before, order = CASES[name]
    [after] = with_axes_in_order([before])
    assert "".join(axis.var.name for axis in reduction_of(after.op).axes) == order
    assert (tensor_key(after) == tensor_key(before)) == (order == "ak")
    rng = np.random.default_rng(0)
    values = {t: rng.standard_normal([int(n) for n in t.shape]) for t in (x, w, g, u, v)}
    if order == "ka":
        [want], [got] = evaluate_graph([before], values), evaluate_graph([after], values)
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_reused_operands_where_no_tile_pays():
    before, _ = CASES["reused operands"]
    found = in_order_of_memory(Kernel(before.op))
    assert "".join(axis.var.name for axis in reduction_of(found.root).axes) == "ka"
    assert in_order_of_memory(found) is None


def test_an_axis_that_follows_another_one():
    k = te.reduce_axis((0, K), "k")
    a = te.reduce_axis((0, k.var + 1), "a")
    before = te.compute((N,), lambda i: te.sum(w[i, a, k] * x[i, k], axis=[k, a]), "total")
    [after] = with_axes_in_order([before])
    assert after.same_as(before)
    wide = te.compute((N,), lambda i: te.sum(x[i, 0] * w[i, k, a], axis=[k, a]), "total")
    assert with_axes_in_order([wide])[0].same_as(wide)
