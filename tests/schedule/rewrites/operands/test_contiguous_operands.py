"""Small operands that vectors read with strides are copied."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.rewrites.operands.contiguous_operands import with_contiguous_operands

P, N = 500, 24
g, small = te.placeholder((P, N), "float64", "g"), te.placeholder((N, 3), "float64", "small")
turned = te.placeholder((N, P), "float64", "turned")
long = te.placeholder((P, 2), "float64", "long")
index = te.placeholder((N,), "int32", "index")


def total(value, reduce=te.sum):
    p = te.reduce_axis((0, P), "p")
    return te.compute((N,), lambda i: reduce(value(p, i), axis=p), "total")


#: name → the sum, and how many copies it gets
CASES = {
    "a component": (total(lambda p, i: g[p, i] * te.exp(small[i, 1])), 1),
    "two, one of them twice": (
        total(lambda p, i: g[p, i] * small[i, 0] * small[i, 2] + small[i, 0]),
        2,
    ),
    "a maximum": (total(lambda p, i: g[p, i] + small[i, 2], te.max), 1),
    "at a place that is data": (total(lambda p, i: g[p, i] * small[index[i], 0]), 0),
    "contiguous": (total(lambda p, i: g[p, i] * g[3, i]), 0),
    "a large one": (total(lambda p, i: g[p, i] * turned[i, p]), 0),
    "nothing large": (total(lambda p, i: small[i, 0] * p), 0),
    "along a sum": (total(lambda p, i: turned[i, p] * te.exp(long[p, 1])), 1),
    "along the sum of columns": (total(lambda p, i: g[p, i] * long[p, 1]), 0),
    "rows": (total(lambda p, i: turned[i, p] * small[i, 0]), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_copies(name):
    before, copies = CASES[name]
    [after] = with_contiguous_operands([before])
    made = [op for op in Graph([after]).ops if op.name.endswith("_part")]
    assert len(made) == copies
    assert (tensor_key(after) == tensor_key(before)) == (not copies)
    if copies:
        rng = np.random.default_rng(0)
        inputs = (g, small, turned, long)
        values = {t: rng.standard_normal([int(n) for n in t.shape]) for t in inputs}
        [want], [got] = evaluate_graph([before], values), evaluate_graph([after], values)
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_weights_of_several_loops():
    """``Σ_{c,d} x[b, a, c, d]*w[d, c]`` reads 256 weights across their rows; those of results stay.
    """
    x, w = te.placeholder((40, 6, 8, 32), "float64", "x"), te.placeholder((32, 8), "float64", "w")
    c, d = te.reduce_axis((0, 8), "c"), te.reduce_axis((0, 32), "d")
    before = te.compute(
        (40, 6), lambda b, a: te.sum(x[b, a, c, d] * w[d, c], axis=[c, d]), name="total"
    )
    [after] = with_contiguous_operands([before])
    [copy] = [op for op in Graph([after]).ops if op.name.endswith("_part")]
    assert [int(n) for n in copy.output(0).shape] == [8, 32]
    rng = np.random.default_rng(0)
    values = {x: rng.standard_normal((40, 6, 8, 32)), w: rng.standard_normal((32, 8))}
    [got] = evaluate_graph([after], values)
    np.testing.assert_allclose(got, np.einsum("bacd,dc->ba", *values.values()), rtol=1e-12)
    of_results = [
        te.compute((40, 8), lambda b, c: te.sum(x[b, 0, c, d] * w[d, c], axis=d), name="p"),
        te.compute((40, 8), lambda b, j: te.sum(x[b, 0, 0, d] * w[d, j], axis=d), name="p"),
    ]
    for product in of_results:
        assert with_contiguous_operands([product])[0].same_as(product)


def test_of_loops_that_follow_others():
    x, w = te.placeholder((40, 50), "float64", "x"), te.placeholder((50, 2), "float64", "w")
    rows = lambda i: te.reduce_axis((0, i + 1), "k")  # noqa: E731

    def body(i):
        k = rows(i)
        return te.sum(x[i, k] * w[k, 1], axis=k)

    before = te.compute((40,), body, "total")
    assert with_contiguous_operands([before])[0].same_as(before)


def test_sums_share_copies():
    sums = [total(lambda p, i: g[p, i] * small[i, 1]), total(lambda p, i: g[p, i] + small[i, 1])]
    made = Graph(with_contiguous_operands(sums)).ops
    assert sum(op.name == "small_part" for op in made) == 1


def test_of_symbolic_many_rows():
    n = te.var("n")
    rows, k = te.placeholder((n, N), "float64", "rows"), te.reduce_axis((0, N), "k")
    before = te.compute((n,), lambda i: te.sum(rows[i, k] * small[k, 1], axis=k), "total")
    [after] = with_contiguous_operands([before])
    assert [op.name for op in Graph([after]).ops if op.name.endswith("_part")] == ["small_part"]
    rng = np.random.default_rng(0)
    values = {rows: rng.standard_normal((7, N)), small: rng.standard_normal((N, 3))}
    [got] = evaluate_graph([after], values, {n: 7})
    np.testing.assert_allclose(got, values[rows] @ values[small][:, 1], rtol=1e-13)


def test_of_symbolic_many_columns():
    n = te.var("n")
    square, points = (te.placeholder(s, "float64", "t") for s in ((n, n), (n, 3)))
    k = te.reduce_axis((0, n), "k")
    before = te.compute(
        (n,), lambda i: te.sum(square[i, k] * (points[i, 1] - points[k, 1]), axis=k), "total"
    )
    [after] = with_contiguous_operands([before])
    assert [op.name for op in Graph([after]).ops if op.name.endswith("_part")] == ["t_part"]
    rng = np.random.default_rng(0)
    values = {square: rng.standard_normal((7, 7)), points: rng.standard_normal((7, 3))}
    [got] = evaluate_graph([after], values, {n: 7})
    column = values[points][:, 1]
    want = (values[square] * (column[:, None] - column)).sum(1)
    np.testing.assert_allclose(got, want, rtol=1e-12)
