"""Axes along which all elements of a stage are equal: which of them a program loses."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff import build, differentiate
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_compute, shape_of
from tvm_autodiff.graph.unused_axes import without_unused_axes

N, M = 5, 4
x = te.placeholder((N, M), "float64", name="x")
n = te.var("n")
v = te.placeholder((n,), "float64", name="v")


def total(shape, body):
    k = te.reduce_axis((0, M), "k")
    return te.compute(shape, lambda *i: te.sum(body(*i, k), axis=k), name="s")


def times(s, shape=(N, M)):
    return te.compute(shape, lambda i, j: s[i, j] * x[i, j], name="y")


#: name → (outputs, shapes of the stages that are left)
CASES = {
    "a sum between": (lambda: [times(total((N, M), lambda i, j, k: x[i, k]))], [(N,), (N, M)]),
    "a function between": (
        lambda: [times(te.compute((N, M), lambda i, j: te.exp(x[i, 0])))],
        [(N,), (N, M)],
    ),
    "numbers between": (
        lambda: [times(te.compute((N, M), lambda i, j: i.astype("float64")))],
        [(N, M), (N, M)],
    ),
    "an output that sums": (lambda: [total((N, M), lambda i, j, k: x[i, k])], [(N,), (N, M)]),
    "a function of an output": (
        lambda: [te.compute((N, M), lambda i, j: te.exp(x[i, 0]))],
        [(N, M)],
    ),
    "one element of an output": (lambda: [total((N, 1), lambda i, j, k: x[i, k])], [(N, 1)]),
    "a size that a place contains": (
        lambda: [total((N, n), lambda i, j, k: v[n - 1] * x[i, k])],
        [(N, n)],
    ),
    "a size that no place contains": (
        lambda: [total((N, n), lambda i, j, k: x[i, k])],
        [(N,), (N, n)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left(name):
    make, shapes = CASES[name]
    found = without_unused_axes(make())
    left = [shape_of(op.output(0)) for op in Graph(found).ops if is_compute(op)]
    assert [*map(str, left)] == [*map(str, shapes)]
    if not any(n is extent for shape in shapes for extent in shape):
        given = {x: np.random.default_rng(0).standard_normal((N, M))}
        np.testing.assert_allclose(evaluate_graph(found, given), evaluate_graph(make(), given))


def test_a_maximum_that_all_rows_share_is_searched_once():
    """LLVM takes a minute for each row if the search is inside of the loop over rows."""
    table, head = (te.placeholder((size,), "float64", name=f"p{size}") for size in (2, N))
    k, m = te.reduce_axis((0, 7), "k"), te.reduce_axis((0, 12), "m")
    y = te.compute((N,), lambda i: te.max(table[(k + m) % 2], axis=[k, m]), name="y")
    [gradient] = differentiate(y, [table], head)
    got = build([table, head], gradient, cache=False)(np.array([1.0, 2.0]), np.ones(N))
    np.testing.assert_array_equal(got, [0.0, N])
