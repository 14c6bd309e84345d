"""Stages that compute the same are one afterwards; others are not."""

from __future__ import annotations

import pytest
from tvm import te

from tests.zero_elimination.graph_values import assert_equal_values
from tvm_autodiff import differentiate, inline_tensors, merge_equal_stages, simplify_reductions
from tvm_autodiff.cost import estimate_cost
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_placeholder

D = "float64"
x = te.placeholder((5,), D, name="x")


def stage(body, name="t", shape=(5,)):
    return te.compute(shape, body, name=name)


def total(factor):
    k = te.reduce_axis((0, 5), "k")
    return te.compute((5,), lambda i: te.sum(x[i] * x[k] * factor, axis=k), name="s")


def reader(left, right):
    return stage(lambda i: left[i] - right[i] * 2.0, "reader")


def over(body):
    t = stage(lambda i: te.exp(x[i]))
    return stage(lambda i: body(t[i]))


#: name → (two tensors, whether they are computed alike)
PAIRS = {
    "equal": (lambda: (stage(lambda i: x[i] + 1.0), stage(lambda j: x[j] + 1.0)), True),
    "other constant": (lambda: (stage(lambda i: x[i] + 1.0), stage(lambda i: x[i] + 2.0)), False),
    "other index": (lambda: (stage(lambda i: x[i] * 3.0), stage(lambda i: x[4 - i] * 3.0)), False),
    "sums": (lambda: (total(2.0), total(2.0)), True),
    "other sums": (lambda: (total(2.0), total(3.0)), False),
    "over equal stages": (lambda: (over(te.tanh), over(te.tanh)), True),
    "others over equal stages": (lambda: (over(te.tanh), over(te.exp)), False),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name):
    make, alike = PAIRS[name]
    outputs = [reader(*make())]
    merged = merge_equal_stages(outputs)
    assert_equal_values(outputs, merged)
    before, after = (
        sum(not is_placeholder(op) for op in Graph(tensors).ops) for tensors in (outputs, merged)
    )
    shared = name == "others over equal stages"
    assert (after < before) == (alike or shared)
    assert len(Graph(merged).reads(merged[0].op)) == (1 if alike else 2)


def test_a_jacobian_times_a_matrix_by_transformations_alone():
    """The diagonal of an elementwise map, read as a tensor, is a sum over zeros; inlined, none."""
    weights = te.placeholder((5, 5), D, name="W")
    y = stage(lambda i: te.tanh(x[i]), "y")
    [jacobian] = differentiate(y, [x])
    k = te.reduce_axis((0, 5), "k")
    dense = te.compute(
        (5, 5), lambda i, j: te.sum(weights[i, k] * jacobian[k, j], axis=k), name="product"
    )
    assert estimate_cost(dense).iterations == 155
    [simple] = simplify_reductions(inline_tensors(dense, jacobian))
    assert estimate_cost(simple).iterations == 30
    assert_equal_values([dense], [simple])
