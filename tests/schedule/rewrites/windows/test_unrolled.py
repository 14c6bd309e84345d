"""Graphs before the cut: borders in windows, classes in one stage, an extreme and its place."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

from tests.schedule.cpu.test_windows import interleaved, pool, pool_gradient, window_sums
from tvm_autodiff import build, differentiate
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.stage import reduction_of
from tvm_autodiff.schedule.fusion.kernels import cut, separate
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rewrites.windows.unrolled import unrolled_bodies, window_of


def names(outputs):
    return [kernel.name for kernel in cut(normal_form(outputs))[0]]


def pool_in_a_network():
    inputs, output = pool(2, 3, 12, 12, [2, 2], [2, 2], [0, 0])
    loss = topi.sum(output * output)
    return [loss, *differentiate(loss, inputs)]


def class_of_functions():
    A = te.placeholder((4, 8), name="A")
    even = te.compute((4, 4), lambda i, j: te.exp(A[i, j]), name="even")
    return [
        te.compute(
            (4, 8), lambda i, j: te.if_then_else(j % 2 == 0, even[i, j // 2], A[i, j]), name="mixed"
        )
    ]


def class_read_elsewhere():
    A = te.placeholder((4, 8), name="A")
    even = te.compute((4, 4), lambda i, j: te.exp(A[i, j]), name="even")
    mixed = te.compute(
        (4, 8), lambda i, j: te.if_then_else(j % 2 == 0, even[i, j // 2], A[i, j]), name="mixed"
    )
    return [even, mixed]


KERNELS = [
    (lambda: [pool(2, 3, 13, 13, [3, 3], [2, 2], [1, 1])[1]], ["pool_max"]),
    (lambda: [pool_gradient(2, 3, 13, 13, [3, 3], [2, 2], [1, 1])[1]], ["pool_max_winner", "dX"]),
    (lambda: [interleaved(4, 9)[1]], ["I"]),
    (class_read_elsewhere, ["even", "mixed"]),
    (class_of_functions, ["even", "mixed"]),  # in vectors
]


@pytest.mark.parametrize(("outputs", "expected"), KERNELS)
def test_kernels(outputs, expected):
    assert names(outputs()) == expected


def reductions(outputs):
    kernels = separate(normal_form(outputs))[0]
    return [kernel.root.name for kernel in kernels if reduction_of(kernel.root) is not None]


def test_a_maximum_is_read_from_its_winner():
    assert "pool_max" not in reductions(pool_in_a_network())


def test_a_maximum_that_is_an_output_stays():
    inputs, output = pool(2, 3, 12, 12, [2, 2], [2, 2], [0, 0])
    head = te.placeholder(output.shape, name="head")
    assert "pool_max" in reductions([output, *differentiate(output, inputs, head)])


SPECIAL = [np.nan, -np.inf, np.inf, 0.0]


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("place", range(4))
def test_special_values_have_the_same_fate(value, place):
    """The loss is that of the forward pass alone, wherever in a window the value stands."""
    X = te.placeholder((1, 1, 4, 4), name="X")
    output = topi.nn.pool2d(X, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "max")
    loss = topi.sum(output)
    x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4) - 7
    x[0, 0, 2 + place // 2, place % 2] = value
    alone = build([X], loss)(x)
    shared, _ = build([X], [loss, *differentiate(loss, [X])])(x)
    np.testing.assert_array_equal(shared, alone)


def test_windows_are_small_and_contiguous():
    assert window_of(window_sums(3, 17)[1].op)
    A = te.placeholder((8, 72), name="A")
    k = te.reduce_axis((0, 8), "k")
    for stride, small in ((8, True), (9, False)):
        strided = te.compute((8, 8), lambda i, j: te.sum(A[i, j * stride + k], axis=k), name="S")  # noqa: B023
        assert (window_of(strided.op) is not None) == small
    longer = te.reduce_axis((0, 17), "k")
    long = te.compute((8, 40), lambda i, j: te.sum(A[i, j + longer], axis=longer), name="L")
    assert unrolled_bodies(long.op) is None


def test_what_a_place_decides_is_gone():
    """A choice among fourteen formulas is too large for each of its places, and is one of them."""
    A, k = te.placeholder((14, 64), name="A"), te.reduce_axis((0, 14), "k")

    def term(i):
        value = te.const(0.0, "float32")
        for place in range(14):
            formula = sum(A[k, i] * float(place + n) for n in range(6))
            value = te.if_then_else(k == place, formula, value)
        return te.sum(value, axis=k)

    values = unrolled_bodies(te.compute((64,), term, name="S").op)
    assert values is not None
    assert not any(op_name(node) == "if_then_else" for node in postorder(values))
