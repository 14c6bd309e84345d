"""Axes that nothing depends on: taken away between the outputs, shapes and values kept."""

from __future__ import annotations

import pytest
from tvm import te

from tests.zero_elimination.graph_values import assert_equal_values
from tvm_autodiff import estimate_cost, remove_unused_dims
from tvm_autodiff.errors import InvalidArgumentError
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_placeholder, shape_of

D = "float64"
x = te.placeholder((5,), D, name="x")
M = te.placeholder((5, 4), D, name="M")


def stage(name, shape, body):
    return te.compute(shape, body, name=name)


def total(name, shape, body, extent=4):
    k = te.reduce_axis((0, extent), "k")
    return te.compute(shape, lambda *axes: te.sum(body(*axes, k), axis=k), name=name)


def middle(body, shape=(5, 4)):
    t = stage("T", shape, body)
    return [stage("y", shape, lambda *axes: t(*axes) * M(*axes[:2]))]


def chain():
    t = stage("T", (5, 4), lambda i, j: te.exp(x[i]))
    u = stage("U", (4, 5), lambda j, i: t[i, j] + 1.0)
    return [stage("y", (5, 4), lambda i, j: u[j, i] * M[i, j])]


def sum_between():
    s = total("S", (5, 4), lambda i, j, k: M[i, k])
    return [stage("y", (5, 4), lambda i, j: M[i, j] / s[i, j])]


def everything():
    s = total("S", (5, 4), lambda i, j, k: M[2, k])
    return [stage("y", (5, 4), lambda i, j: M[i, j] * s[i, j])]


def read_inside_a_sum():
    t = stage("T", (5, 6), lambda i, m: te.exp(x[i]))
    return [total("y", (5,), lambda i, k: t[i, k + 1] * M[i, k])]


def output_and_middle():
    s = total("S", (5, 4), lambda i, j, k: M[i, k])
    return [s, stage("y", (5, 4), lambda i, j: s[i, j] * M[i, j])]


def window():
    def body(i, j):
        k = te.reduce_axis((0, 2), "k")
        return te.sum(x[te.min(i + k, 4)], axis=k)

    return middle(body)


def bounds():
    def body(i, j):
        k = te.reduce_axis((0, te.min(j + 1, 1)), "k")
        return te.sum(x[k + i] * 1.0, axis=k)

    return [stage("T", (4, 4), body)]


def pairs():
    pair = te.compute((5, 4), lambda i, j: (te.exp(x[i]), x[i] + 1.0), name="pair")
    return [stage("y", (5, 4), lambda i, j: pair[0][i, j] * pair[1][i, j] * M[i, j])]


def half_of_a_pair():
    pair = te.compute((5, 4), lambda i, j: (te.exp(x[i]), M[i, j]), name="pair")
    return [stage("y", (5, 4), lambda i, j: pair[0][i, j] * pair[1][i, j])]


#: name → (outputs, shapes of the stages that are left, iterations before and after)
CASES = {
    "used": (lambda: middle(lambda i, j: M[i, j]), [(5, 4), (5, 4)], 40, 40),
    "second axis": (lambda: middle(lambda i, j: te.exp(x[i])), [(5,), (5, 4)], 40, 25),
    "first axis": (lambda: middle(lambda i, j: te.exp(x[j])), [(4,), (5, 4)], 40, 24),
    "only inside": (
        lambda: middle(lambda i, j, m: te.exp(x[m]), (5, 4, 3)),
        [(3,), (5, 4, 3)],
        120,
        63,
    ),
    "a chain": (chain, [(5,), (5,), (5, 4)], 60, 30),
    "a sum": (sum_between, [(5,), (5, 4)], 100, 40),
    "all axes": (everything, [(), (5, 4)], 100, 24),
    "read inside a sum": (read_inside_a_sum, [(5,), (5,)], 50, 25),
    "an output": (lambda: [total("S", (5, 4), lambda i, j, k: M[i, k])], [(5,), (5, 4)], 80, 40),
    "an output, elementwise": (
        lambda: [stage("y", (5, 4), lambda i, j: te.exp(x[i]))],
        [(5,), (5, 4)],
        20,
        25,
    ),
    "an output that copies": (lambda: [stage("y", (5, 4), lambda i, j: x[i])], [(5, 4)], 20, 20),
    "an output that another reads": (output_and_middle, [(5,), (5, 4), (5, 4)], 100, 60),
    "a window": (window, [(5,), (5, 4)], 60, 30),
    "several components": (pairs, [(5,), (5, 4)], 40, 25),
    "one of several components": (half_of_a_pair, [(5, 4), (5, 4)], 40, 40),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    make, shapes, before, after = CASES[name]
    outputs = make()
    smaller = remove_unused_dims(outputs)
    assert_equal_values(outputs, smaller)
    left = [shape_of(op.output(0)) for op in Graph(smaller).ops if not is_placeholder(op)]
    assert left == shapes
    assert (estimate_cost(outputs).iterations, estimate_cost(smaller).iterations) == (before, after)
    assert [t.op.name for t in smaller] == [t.op.name for t in outputs]


def test_an_axis_that_bounds_depend_on_is_used():
    [before] = bounds()
    assert tensor_key(remove_unused_dims(before)[0]) == tensor_key(before)


def test_an_opaque_reader_gets_the_whole():
    from tvm import tirx

    t = stage("T", (5, 4), lambda i, j: x[i])
    y = te.extern(
        (5,),
        [t],
        lambda ins, outs: tirx.Evaluate(tirx.call_packed("f", ins[0].data, outs[0].data)),
        name="y",
        dtype=D,
    )
    [same] = remove_unused_dims(y)
    assert [shape_of(t) for t in same.op.inputs] == [(5, 4)]


def test_symbolic_extents():
    n = te.var("n")
    v = te.placeholder((n,), D, name="v")
    t = stage("T", (n, n), lambda i, j: te.exp(v[i]))
    y = stage("y", (n, n), lambda i, j: t[i, j] * v[j])
    [smaller] = remove_unused_dims(y)
    assert estimate_cost([y], {n: 10}).iterations == 200
    assert estimate_cost([smaller], {n: 10}).iterations == 110


def test_only_tensors_are_taken():
    with pytest.raises(InvalidArgumentError, match=r"tensors\[1\] must be a te.Tensor"):
        remove_unused_dims([x, 1])
