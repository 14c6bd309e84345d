"""Reductions over one element are plain expressions, with the same values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import bodies, is_compute, reduction_of
from tvm_autodiff.schedule.rewrites.single_steps import without_single_steps

ARGMAX = te.comm_reducer(
    lambda a, b: (
        tirx.Select(a[1] >= b[1], a[0], b[0]),
        tirx.Select(a[1] >= b[1], a[1], b[1]),
    ),
    lambda a, b: (tirx.const(-1, a), te.min_value(b)),
    name="argmax",
)
X = te.placeholder((4, 5), name="x")


def axis(extent, name="k", low=0):
    return te.reduce_axis((low, low + extent), name)


def one_of_two(i):
    k, r = axis(5), axis(1, "r", 2)
    return te.sum(X[i, k] * X[i, r], axis=[k, r])


def ragged(i):
    k = axis(1)
    r = te.reduce_axis((0, k + 2), "r")
    return te.sum(X[i, r], axis=[k, r])


def of_one(reducer, **options):
    def body(i):
        k = axis(1, low=3)
        return reducer(X[i, k], axis=k, **{n: make(i, k) for n, make in options.items()})

    return body


#: name → body, and the reduce axes that are left
CASES = {
    "sum": (of_one(te.sum), 0),
    "largest": (of_one(te.max), 0),
    "under a condition": (of_one(te.sum, where=lambda i, k: tirx.all(i < k)), 0),
    "one of two axes": (one_of_two, 1),
    "a bound depends on it": (ragged, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_axes_that_are_left(name):
    body, left = CASES[name]
    y = te.compute((4,), body, name="y")
    z = te.compute((4,), lambda i: y[3 - i] * 2.0, name="z")
    found = without_single_steps([z, y])
    counts = [
        len(reduction_of(op).axes) if reduction_of(op) is not None else 0
        for op in Graph(found).ops
        if is_compute(op)
    ]
    assert sum(counts) == left
    arrays = {X: np.random.default_rng(0).standard_normal((4, 5))}
    for new, old in zip(evaluate_graph(found, arrays), evaluate_graph([z, y], arrays), strict=True):
        np.testing.assert_allclose(new, old)


def test_a_sum_of_one_adds_nothing():
    y = te.compute((4,), of_one(te.sum), name="y")
    [found] = without_single_steps([y])
    assert [op_name(node) for node in postorder(list(bodies(found.op)))][-1] == "load"


def test_several_components():
    k = axis(1, low=2)
    place, value = te.compute((4,), lambda i: ARGMAX((k.var, X[i, k]), axis=k), name="largest")
    found = without_single_steps([place, value])
    arrays = {X: np.random.default_rng(0).standard_normal((4, 5))}
    got = evaluate_graph(found, arrays)
    np.testing.assert_array_equal(got[0], [2, 2, 2, 2])
    np.testing.assert_allclose(got[1], arrays[X][:, 2])
