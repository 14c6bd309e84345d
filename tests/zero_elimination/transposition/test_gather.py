"""What is left to sum after a term is transposed: counted by brute force, reads by reads."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from tvm import te, tirx, topi

from tests.evaluate import evaluate, evaluate_graph
from tvm_autodiff import DenseSumWarning, build, differentiate, estimate_cost, pullback, show
from tvm_autodiff.expr.nodes import is_load, load_tensor, operands, tensor_key
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import (
    axis_range,
    axis_vars,
    bodies,
    is_extern,
    is_placeholder,
    reduction_of,
    shape_of,
)

D = "float64"


def reads(shape_in, shape_out, index, reduce=()):
    """One stage that sums ``x[index(axes)]`` over some axes."""
    x = te.placeholder(shape_in, D, name="x")
    inner = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(reduce)]

    def body(*axes):
        read = x(*index(*axes, *(axis.var for axis in inner)))
        return te.sum(read, axis=inner) if inner else read

    return x, te.compute(shape_out, body, name="y")


#: name → (stage, extents that may be left to sum over: how many terms the fullest element has)
INDEX_MAPS = {
    "identity": (lambda: reads((5, 4), (5, 4), lambda i, j: (i, j)), 1),
    "transpose": (lambda: reads((4, 5), (5, 4), lambda i, j: (j, i)), 1),
    "reversal": (lambda: reads((5,), (5,), lambda i: (4 - i,)), 1),
    "broadcast": (lambda: reads((4,), (5, 4), lambda i, j: (j,)), 5),
    "row sums": (lambda: reads((4, 5), (4,), lambda i, k: (i, k), (5,)), 1),
    "stride": (lambda: reads((10,), (5,), lambda i: (2 * i,)), 1),
    "stride and offset": (lambda: reads((17,), (5,), lambda i: (3 * i + 4,)), 1),
    "window": (lambda: reads((9,), (7,), lambda i, k: (i + k,), (3,)), 3),
    "window, stride 2": (lambda: reads((9,), (4,), lambda i, k: (2 * i + k,), (3,)), 2),
    "window, stride 3": (lambda: reads((12,), (4,), lambda i, k: (3 * i + k,), (3,)), 1),
    "window, dilation 2": (lambda: reads((11,), (7,), lambda i, k: (i + 2 * k,), (3,)), 3),
    "window, both": (lambda: reads((16,), (4,), lambda i, k: (3 * i + 3 * k,), (3,)), 3),
    "skewed": (lambda: reads((24,), (5,), lambda i, k: (2 * i + 3 * k,), (6,)), 2),
    "diagonal": (lambda: reads((5, 5), (5,), lambda i: (i, i)), 1),
    "flatten": (lambda: reads((3, 4), (12,), lambda i: (i // 4, i % 4)), 1),
    "unflatten": (lambda: reads((12,), (3, 4), lambda i, j: (4 * i + j,)), 1),
    "repeat": (lambda: reads((4,), (12,), lambda i: (i // 3,)), 3),
    "tile": (lambda: reads((4,), (12,), lambda i: (i % 4,)), 3),
    "rotation": (lambda: reads((7,), (7, 7), lambda i, j: ((i + j) % 7,)), 7),
    "two equations": (lambda: reads((9, 13), (5, 5), lambda i, j: (i + j, 2 * i + j)), 1),
}


def points_per_element(x, y):
    """By brute force from the definition: how many points of the domain read each element of x."""
    op = y.op
    reduction = reduction_of(op)
    source = bodies(op)[0] if reduction is None else reduction.sources[0]
    [site] = [node for node in postorder(source) if is_load(node)]
    assert tensor_key(load_tensor(site)) == tensor_key(x)
    inner = () if reduction is None else reduction.axes
    boxes = [range(n) for n in shape_of(y)] + [range(axis_range(axis)[1]) for axis in inner]
    variables = [*axis_vars(op), *(axis.var for axis in inner)]
    counts = np.zeros(shape_of(x), int)
    for point in itertools.product(*boxes):
        values = dict(zip(variables, point, strict=True))
        counts[tuple(int(evaluate(index, values, {})) for index in operands(site))] += 1
    return counts


def summed_extent(tensor) -> int:
    """The most that any stage of a gradient sums over for one element."""
    most = 1
    for op in Graph([tensor]).ops:
        reduction = None if is_placeholder(op) else reduction_of(op)
        if reduction is not None:
            most = max(most, math.prod(axis_range(axis)[1] for axis in reduction.axes))
    return most


@pytest.mark.parametrize("name", INDEX_MAPS)
def test_no_more_is_summed_than_the_fullest_element_needs(name):
    make, fullest = INDEX_MAPS[name]
    x, y = make()
    head = te.placeholder(y.shape, D, name="head")
    counts = points_per_element(x, y)
    assert counts.max() == fullest
    [dx] = differentiate(y, x, head)
    assert summed_extent(dx) == fullest
    # with a head of ones, each element's gradient is the number of its readers
    assert np.array_equal(evaluate_graph([dx], {head: np.ones(shape_of(y))})[0], counts)
    weights = np.random.default_rng(0).standard_normal(shape_of(y))
    [gradient] = evaluate_graph([dx], {head: weights})
    value = np.random.default_rng(1).standard_normal(shape_of(x))
    [forward] = evaluate_graph([y], {x: value})
    # the pullback is the transpose: <head, y(x)> = <dx(head), x>
    assert np.isclose((weights * forward).sum(), (gradient * value).sum())


def test_halide_issue_7385_gradient_of_a_diagonal():
    # out(x) = in(x, x): there every row of the gradient came out as the head
    x = te.placeholder((4, 4), D, name="in")
    out = te.compute((4,), lambda i: x[i, i], name="out")
    head = te.placeholder((4,), D, name="head")
    [gradient] = differentiate(out, x, head)
    weights = np.array([2.0, 3.0, 5.0, 7.0])
    assert np.array_equal(evaluate_graph([gradient], {head: weights})[0], np.diag(weights))
    assert np.array_equal(build([head], gradient)(weights), np.diag(weights))
    assert estimate_cost(gradient).iterations == 16, "nothing is summed"


def test_what_is_not_solved_is_scattered():
    x = te.placeholder((5,), D, name="x")
    y = te.compute((4,), lambda i: x[i * i % 5], name="y")
    head = te.placeholder((4,), D, name="head")
    dx = pullback(y, x, head)
    assert is_extern(dx.op)
    weights = np.array([1.0, 2.0, 4.0, 8.0])
    expected = np.zeros(5)
    for i in range(4):
        expected[i * i % 5] += weights[i]
    assert np.array_equal(build([head], dx)(weights), expected)


def test_a_dense_sum_is_said_and_right():
    x, k = te.placeholder((9,), D, name="x"), te.reduce_axis((0, 3), "k")
    y = te.compute((2,), lambda i: te.sum(x[i * i + k * k], axis=k), name="y")
    with pytest.warns(DenseSumWarning, match="stage y with respect to x"):
        [jacobian] = differentiate(y, [x])
    expected = np.zeros((2, 9))
    for i in range(2):
        for n in range(3):
            expected[i, i * i + n * n] += 1
    assert np.array_equal(evaluate_graph([jacobian], {})[0], expected)


def test_an_identity_head_never_becomes_a_tensor():
    x = te.placeholder((4, 5), D, name="x")
    e = te.compute((4, 5), lambda i, j: te.exp(x[i, j]), name="e")
    y = te.compute((4, 5), lambda i, j: e[i, j] * e[i, j], name="y")
    [jacobian] = differentiate(y, [x])
    names = [op.name for op in Graph([jacobian]).ops]
    assert names == ["x", "e", "dy_dx"]
    assert estimate_cost(jacobian).iterations == 20 + 20 * 20


def test_matrix_form_of_a_quadratic_gradient():
    a, x = te.placeholder((4, 4), D, name="A"), te.placeholder((4,), D, name="x")
    k, m = te.reduce_axis((0, 4), "k"), te.reduce_axis((0, 4), "m")
    y = te.compute((), lambda: te.sum(x[k] * a[k, m] * x[m], axis=[k, m]), name="y")
    [dx] = differentiate(y, [x])
    [hessian] = differentiate(dx, [x])
    value = np.random.default_rng(0).standard_normal((4, 4))
    [result] = evaluate_graph([hessian], {a: value, x: np.zeros(4)})
    assert np.allclose(result, value + value.T)


def conv_gradients(stride, padding, dilation):
    x = te.placeholder((1, 2, 8, 8), D, name="X")
    w = te.placeholder((3, 2, 3, 3), D, name="W")
    y = topi.nn.conv2d(x, w, stride, padding, dilation)
    return differentiate(y, [x, w], te.placeholder(y.shape, D, name="head"))


@pytest.mark.parametrize(
    ("name", "stride", "padding", "dilation"),
    [("conv", 1, 1, 1), ("conv_stride2", 2, 1, 1), ("conv_dilation2", 1, 0, 2)],
)
def test_printed_convolution_gradients(golden, name, stride, padding, dilation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradients = conv_gradients(stride, padding, dilation)
    golden(f"gradient_{name}.txt", show(list(gradients)))


def padded_window(condition, otherwise=0.0):
    """``y[i] = Σ_k exp(if condition then x[i + k - 1] else otherwise)``."""
    x, size = te.placeholder((16,), D, name="x"), 16
    k = te.reduce_axis((0, 3), "k")

    def body(i):
        inside = condition(i + k - 1, size)
        return te.sum(te.exp(te.if_then_else(inside, x[i + k - 1], otherwise)), axis=k)

    return x, te.compute((size,), body, name="y")


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (lambda p, n: te.all(p >= 0, p < n), "exp(x[i0])"),
        (lambda p, n: te.all(p >= 0, p <= n - 1), "exp(x[i0])"),
        (lambda p, n: te.all(tirx.Not(p < 0), tirx.Not(p >= n)), "exp(x[i0])"),
        (lambda p, n: te.all(p >= 0, p < n, p != 7), "exp(if i0 != 7 then x[i0] else 0.0)"),
    ],
)
def test_no_condition_is_left_that_the_reads_settle(condition, left):
    x, y = padded_window(condition)
    [dx] = differentiate(y, [x], te.placeholder(y.shape, D, name="head"))
    assert show([dx]).count("if") == 1 + left.count("if")
    assert left in show([dx])


def test_comparisons_of_unsigned_numbers_stay():
    """TVM subtracts them, and checks that the result is not negative."""
    x, w = te.placeholder((1,), D, name="x"), te.placeholder((2,), D, name="w")

    def body(i):
        small = tirx.Cast("uint16", i) < tirx.const(7, "uint16")
        return tirx.Select(small, w[0], w[1]) * x[0]

    y = te.compute((1,), body, name="y")
    [dx] = differentiate(y, [x], te.placeholder(y.shape, D, name="head"))
    values = {w: np.array([3.0, 4.0]), tensor_named(dx, "head"): np.ones(1)}
    [value] = evaluate_graph([dx], values)
    assert np.allclose(value, 3.0)


def tensor_named(result, name):
    return next(t for t in Graph([result]).placeholders() if t.op.name == name)
