"""How gathered terms become stages: joined sums, copies taken out, sums moved to their readers."""

from __future__ import annotations

import numpy as np
from tvm import te, topi

from tests.evaluate import evaluate_graph
from tvm_autodiff import build, differentiate, estimate_cost
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_compute

D = "float64"
x = te.placeholder((4, 4), D, name="x")
head = te.placeholder((4, 4), D, name="head")


def stages(tensors):
    return [op.name for op in Graph(list(tensors)).ops if is_compute(op)]


def matmul(a, b, name):
    k = te.reduce_axis((0, 4), "k")
    return te.compute((4, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name)


def test_terms_without_a_sum_are_one_stage():
    y = te.compute((4, 4), lambda i, j: x[i, j] + x[j, i] * x[3 - i, j], name="y")
    assert stages(differentiate(y, x, head)) == ["dx"]


def test_sums_over_equal_boxes_are_one_reduction():
    k = te.reduce_axis((0, 4), "k")
    y = te.compute((4, 4), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k), name="y")
    result = differentiate(y, x, head)
    assert stages(result) == ["dx"]
    assert estimate_cost(list(result)).iterations == 64


def test_sums_of_different_consumers_stay_contractions():
    a, b = te.placeholder((4, 4), D, name="a"), te.placeholder((4, 4), D, name="b")
    p, q = matmul(x, a, "p"), matmul(x, b, "q")
    y = te.compute((4, 4), lambda i, j: p[i, j] * q[i, j], name="y")
    names = stages(differentiate(y, x, head))
    assert {"dx_sum0", "dx_sum1"} <= set(names)


def test_a_copied_adjoint_is_the_adjoint():
    y = topi.add(x, te.placeholder((4, 4), D, name="z"))
    [dx] = differentiate(y, x, head)
    assert stages([dx]) in (["dx"], [])
    value = np.arange(16.0).reshape(4, 4)
    if stages([dx]):
        assert np.array_equal(evaluate_graph([dx], {head: value})[0], value)


def test_a_sum_that_only_a_crop_reads_is_made_where_it_is_read():
    w = te.placeholder((3,), D, name="w")
    padded = te.compute(
        (6, 4),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < 5), x[i - 1, j], 0.0),
        name="padded",
    )
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((4, 4), lambda i, j: te.sum(padded[i + k, j] * w[k], axis=k), name="y")
    result = differentiate(y, x, head)
    assert stages(result) == ["dx"]
    asked = differentiate(y, [x, padded], head)
    assert stages(asked) == ["dpadded", "dx"], "an adjoint that was asked for is read"
    assert tensor_key(asked[1]) == tensor_key(asked.adjoints[padded])


def test_unreached_inputs_get_zeros_of_their_shape():
    z = te.placeholder((2, 3), D, name="z")
    y = te.compute((4, 4), lambda i, j: x[i, j] * 2.0, name="y")
    dz = differentiate(y, z, head)[0]
    assert np.array_equal(evaluate_graph([dz], {})[0], np.zeros((2, 3)))


def test_a_constant_cotangent_is_a_literal_and_not_a_stage():
    i, j = te.reduce_axis((0, 4), "i"), te.reduce_axis((0, 4), "j")
    y = te.compute((4, 4), lambda i, j: te.exp(x[i, j]), name="y")
    total = te.compute((), lambda: te.sum(y[i, j], axis=[i, j]), name="total")
    assert stages(differentiate(total, x)) == ["y", "dx"]


def test_a_gradient_that_equals_a_forward_tensor_is_a_stage_of_its_own():
    i, j = te.reduce_axis((0, 4), "i"), te.reduce_axis((0, 4), "j")
    y = te.compute((4, 4), lambda i, j: te.exp(x[i, j]), name="y")
    total = te.compute((), lambda: te.sum(y[i, j], axis=[i, j]), name="total")
    [dx] = differentiate(total, x)
    forward, gradient = build(x, [y, dx])(np.zeros((4, 4)))
    assert np.array_equal(forward, gradient)
