"""Operands spread out with zeros: what is multiplied by those zeros is not summed."""

from __future__ import annotations

import pytest
from tvm import te, tirx, topi

from tests.gradient_case import check_numbers
from tvm_autodiff import differentiate, estimate_cost, show
from tvm_autodiff.expr.nodes import is_load
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.rules.linearize import linearize
from tvm_autodiff.zero_elimination.transposition.sparse_operands import with_sparse_operands


def placeholder(name, *shape):
    return te.placeholder(shape, "float64", name)


def transposed_convolution(stride, edge):
    x, w = placeholder("x", 1, 2, 5, 5), placeholder("w", 2, 3, 4, 4)
    return topi.nn.conv2d_transpose_nchw(x, w, (stride,) * 2, (edge,) * 2, "float64", (0, 0)), w


def spread(n, m, by):
    """`y[i] = Σ_k w[k] z[i + k]` with z a vector between zeros."""
    x, w = placeholder("x", n), placeholder("w", m)
    z = te.compute(
        (n * by,),
        lambda i: te.if_then_else(i % by == 0, x[i // by], tirx.const(0.0, "float64")),
        name="z",
    )
    k = te.reduce_axis((0, m), "k")
    return te.compute((n * by - m + 1,), lambda i: te.sum(w[k] * z[i + k], axis=k), name="y"), w


def guarded_by_hand(n, m, by):
    """The same with the guard in the sum itself."""
    x, w = placeholder("x", n), placeholder("w", m)
    k = te.reduce_axis((0, m), "k")

    def body(i):
        inside = tirx.all((i + k) % by == 0)
        zero = tirx.const(0.0, "float64")
        return te.sum(te.if_then_else(inside, x[(i + k) // by], zero) * w[k], axis=k)

    return te.compute((n * by - m + 1,), body, name="y"), w


def checkered(n):
    """A guard on the sum of two indices: every other element of each row."""
    x, w = placeholder("x", n, n), placeholder("w", n)
    zero = tirx.const(0.0, "float64")
    z = te.compute((n, n), lambda i, j: te.if_then_else((i + j) % 2 == 0, x[i, j], zero), name="z")
    k = te.reduce_axis((0, n), "k")
    return te.compute((n,), lambda i: te.sum(z[i, k] * w[k], axis=k), name="y"), w


def gradient(y, w):
    return differentiate(y, [w], te.placeholder(y.shape, "float64", "g"))


#: output and tensor to differentiate by; iterations of the gradient, and what they were
TABLE = {
    "transposed convolution, stride 2": (transposed_convolution(2, 1), 2400, 9600),
    "transposed convolution, stride 3": (transposed_convolution(3, 0), 2400, 24576),
    "spread by 2": (spread(20, 6, 2), 108, 210),
    "spread by 5": (spread(20, 6, 5), 114, 570),
    "guarded by hand": (guarded_by_hand(20, 6, 5), 114, 570),
    "checkered": (checkered(8), 32, 64),
}


@pytest.mark.parametrize("name", TABLE)
def test_zeros_are_left_out(name):
    (y, w), most, dense = TABLE[name]
    [dw] = gradient(y, w)
    assert estimate_cost([dw]).iterations <= most < dense


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_gradients(name):
    (y, w), _, _ = TABLE[name]
    check_numbers(y, [w])


def test_what_is_left():
    y, w = spread(20, 6, 2)
    text = show(gradient(y, w))
    assert "z[" not in text
    assert "Σ_{t0<18}" in text


def padded(n):
    x, w = placeholder("x", n), placeholder("w", 3)
    z = topi.nn.pad(x, [1], [1], name="z")
    k = te.reduce_axis((0, 3), "k")
    return te.compute((n,), lambda i: te.sum(w[k] * z[i + k], axis=k), name="y"), w


def added(n):
    """Not zero between the elements."""
    x, w = placeholder("x", n), placeholder("w", n)
    one = tirx.const(1.0, "float64")
    return te.compute(
        (n,), lambda i: w[i] * te.if_then_else(i % 2 == 0, x[i // 2], one), name="y"
    ), w


@pytest.mark.parametrize("case", [padded(8), added(8)], ids=["padding", "ones between"])
def test_others_stay(case):
    y, w = case
    [term] = linearize(y.op, [w])
    assert with_sparse_operands(term) is term


def filled(n, m, by, number):
    """A vector between equal numbers; a copy of it that is one between zeros."""
    x, w = placeholder("x", n), placeholder("w", m)
    fill, zero = (tirx.const(value, "float64") for value in (number, 0.0))
    z = te.compute((n * by,), lambda i: te.if_then_else(i % by == 0, x[i // by], fill), name="z")
    again = te.compute((n * by,), lambda i: te.if_then_else(i % 2 == 0, z[i], zero), name="again")
    k = te.reduce_axis((0, m), "k")

    def correlated(t):
        return te.compute((n * by - m + 1,), lambda i: te.sum(w[k] * t[i + k], axis=k), name="y")

    return [correlated(z), correlated(again)], w


@pytest.mark.parametrize("number", [1.0, -2.0, float("inf")])
def test_numbers_between_the_elements_of_an_operand_stay(number):
    (y, zeros), w = filled(7, 4, 3, number)
    [term] = linearize(y.op, [w])
    assert with_sparse_operands(term) is term
    [term] = linearize(zeros.op, [w])
    between = with_sparse_operands(term)
    assert len(between.conditions) == len(term.conditions) + 1
    assert "z" in {tensor.op.name for tensor in loads(between.value)}


def loads(value):
    return [node.args[0] for node in postorder(value) if is_load(node)]


@pytest.mark.parametrize("by", [2, 3])
def test_gradients_of_operands_between_numbers(by):
    outputs, w = filled(5, 4, by, 1.5)
    for y in outputs:
        check_numbers(y, [w])
