"""Factors of several terms: an expensive one is computed once for each point of the stage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import te, tirx

from tests.gradient_case import check_numbers
from tvm_autodiff import check_grads, differentiate
from tvm_autodiff.expr.costly import is_expensive
from tvm_autodiff.expr.rewrite import expand_lets, postorder
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import axis_range, bodies, is_compute

N, M = 4, 3
x = te.placeholder((N, M), "float64", "x")
v = te.placeholder((N, M), "float64", "v")


def number(value: float) -> tirx.Expr:
    return tirx.const(value, "float64")


def stage(body: Callable, *shape: int) -> te.Tensor:
    return te.compute(shape or (N, M), body, name="y")


def padded(t: te.Tensor, i: tirx.Expr, j: tirx.Expr) -> tirx.Expr:
    inside = te.all(i >= 0, i < N, j >= 0, j < M)
    return te.if_then_else(inside, t[i, j], number(0.0))


def clamped(t: te.Tensor, i: tirx.Expr, j: tirx.Expr) -> tirx.Expr:
    return t[te.max(te.min(i, N - 1), 0), te.max(te.min(j, M - 1), 0)]


def cross(read: Callable, t: te.Tensor, i: tirx.Expr, j: tirx.Expr) -> tirx.Expr:
    around = ((-1, 0), (1, 0), (0, -1), (0, 1))
    return sum((read(t, i + a, j + b) for a, b in around), number(0.0))


def branch(i: tirx.Expr, j: tirx.Expr) -> tirx.Expr:
    """The reads of the factor are in range under the condition alone."""
    value = te.tanh(x[i - 1, j] * x[i, j])
    return te.if_then_else(i >= 1, value, number(0.0))


def three_ways(i: tirx.Expr, j: tirx.Expr) -> tirx.Expr:
    """A guarded read in the factor, which lies above all branches."""
    first = te.if_then_else(i >= 2, x[i - 2, j], v[i, j])
    return te.exp(first * x[i, j] + x[te.min(i + 1, N - 1), j])


def powers(i: tirx.Expr, j: tirx.Expr) -> tirx.Expr:
    """Two terms of one place under conditions: a sum of both computes the factor once."""
    inner = te.if_then_else(j >= 1, x[i, j], v[i, j])
    return te.sin(inner * te.if_then_else(i >= 1, x[i, j], v[i, j]))


def nested(i: tirx.Expr, j: tirx.Expr) -> tirx.Expr:
    value = x[i, j]
    for step in range(120):
        value = number(1.01) * value + te.sin(clamped(x, i + step % 3 - 1, j))
    return value


#: a program, and how many points evaluate an expensive function in the gradient of x alone
CASES = {
    "padded": (stage(lambda i, j: te.tanh(number(0.3) * cross(padded, x, i, j)) + x[i, j]), 1),
    "clamped": (stage(lambda i, j: te.sin(cross(clamped, x, i, j)) + x[i, j]), 1),
    "periodic": (stage(lambda i, j: te.cos(x[(i + 1) % N, j] * x[(i + N - 1) % N, j])), 1),
    "strided": (stage(lambda i, j: te.sin(x[2 * i, j] * x[2 * i + 1, j]), N // 2, M), 0.5),
    "two tensors": (stage(lambda i, j: te.sin(cross(padded, x, i, j) * v[i, j])), 1),
    "a guard in the factor": (stage(lambda i, j: te.sin(three_ways(i, j))), 2),
    # each element sums over several points: a tensor of all points may be large
    "pairs": (te.compute((N, N), lambda i, j: te.sin(x[i, 0] * x[j, 1]), name="y"), None),
    # not evaluated for sure
    "under a branch": (stage(branch), None),
    # nothing to share: the result holds the function's value
    "value": (stage(lambda i, j: te.tanh(number(0.3) * cross(padded, x, i, j))), None),
    "pointwise": (stage(lambda i, j: te.sin(x[i, j] * v[i, j])), None),
    "one place": (stage(powers), None),
    "cheap": (stage(lambda i, j: cross(padded, x, i, j) * x[i, j]), None),
}


def factors(outputs: list[te.Tensor]) -> list:
    """Stages of factors, and of adjoints of what a function has of neighbours (`stencil_parts`)."""
    adjoints = [op for op in Graph(outputs).ops if op.name == "dy_stencil0"]
    return [op for op in Graph(outputs).ops if op.name.endswith("_factor")] or adjoints


def evaluations(outputs: list[te.Tensor], forward: te.Tensor) -> float:
    """Of expensive functions, as a multiple of the points of an array of the inputs' shape."""
    total = 0.0
    for op in Graph(outputs).ops:
        if is_compute(op) and hash(op) != hash(forward.op):
            nodes = postorder([expand_lets(body) for body in bodies(op)])
            points = 1
            for axis in op.axis:
                points *= axis_range(axis)[1]
            total += points * len({str(node) for node in nodes if is_expensive(node)})
    return total / (N * M)


@pytest.mark.parametrize("name", CASES)
def test_expensive_factors_are_stages_where_that_pays(name: str) -> None:
    y, expected = CASES[name]
    head = te.placeholder(y.shape, "float64", "head")
    result = list(differentiate(y, [x], head))
    assert len(factors(result)) == (expected is not None)
    if expected is not None:
        assert evaluations(result, y) == expected


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    check_numbers(CASES[name][0], [x])


def test_factors_read_the_factors_inside_them() -> None:
    made = factors(list(differentiate(stage(nested), [x], te.placeholder((N, M), "float64", "h"))))
    sizes = [len(postorder([expand_lets(body) for body in bodies(op)])) for op in made]
    assert 1 < len(sizes) < 10
    assert max(sizes) < 40


AT = te.placeholder((6, 4), "int32", "at")
P, MASS = te.placeholder((5, 3), "float64", "p"), te.placeholder((5,), "float64", "m")


def neighbours(body: Callable, by: te.Tensor = AT) -> te.Tensor:
    """``y[i] = Σ_k body(p[i], p[at[i, k]])``"""
    k = te.reduce_axis((0, 4), "k")
    return te.compute(
        (5,), lambda i: te.sum(body(lambda a: P[i, a], lambda a: P[by[i, k], a], by[i, k]), axis=k)
    )


def squared(mine: Callable, theirs: Callable) -> tirx.Expr:
    return sum(((mine(a) - theirs(a)) * (mine(a) - theirs(a)) for a in range(3)), number(0.1))


#: a sum over neighbours, and the factors of its gradient by the coordinates: what slow functions
#: are of is a stage before (rules/parts/pair_parts.py)
NEIGHBOURS = {
    "a kernel": (neighbours(lambda p, q, n: MASS[n] * te.exp(-squared(p, q))), 0),
    "a root": (neighbours(lambda p, q, n: te.sqrt(squared(p, q))), 0),
    "cut off": (
        neighbours(lambda p, q, n: te.max(number(2) - squared(p, q), 0.0) * MASS[n] * MASS[n]),
        2,
    ),
    "one coordinate": (neighbours(lambda p, q, n: te.exp(p(0) * q(0))), 0),
    "few operations": (neighbours(lambda p, q, n: p(0) * q(1) + p(1) * q(0)), 0),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_factors_of_neighbours_that_data_name(name: str) -> None:
    y, count = NEIGHBOURS[name]
    head = te.placeholder((5,), "float64", "head")
    assert len(factors(list(differentiate(y, [P], head)))) == count
    table = np.random.default_rng(0).integers(0, 5, (6, 4)).astype("int32")
    check_numbers(y, [P], values={AT: table})


RAGGED = {
    "up to the point": lambda i: (0, i + 1),
    "not from the first": lambda i: (1, 3),
    "by data": lambda i: (0, AT[i, 0] % 3 + 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RAGGED)
def test_sums_over_no_box_store_nothing(name: str) -> None:
    def body(i: tirx.Expr) -> tirx.Expr:
        k = te.reduce_axis(RAGGED[name](i), "k")
        at = AT[i, k % 4]
        return te.sum(te.exp(-squared(lambda a: P[i, a], lambda a: P[at, a])), axis=k)

    y = te.compute((5,), body, name="y")
    assert not factors(list(differentiate(y, [P], te.placeholder((5,), "float64", "head"))))
    table = np.random.default_rng(0).integers(0, 5, (6, 4)).astype("int32")
    check_grads(y, [P], values={AT: table})


def test_second_derivatives() -> None:
    check_grads(CASES["a guard in the factor"][0], [x], order=2)


def test_a_factor_without_the_cotangent_serves_all_rows_of_a_jacobian() -> None:
    y, _ = CASES["padded"]
    head = te.placeholder((3, N, M), "float64", "head")
    [factor] = factors(list(differentiate(y, [x], head)))
    assert len(factor.axis) == 2  # no axis of the rows


def test_the_cotangent_of_a_total_is_no_read() -> None:
    y, _ = CASES["padded"]
    i, j = te.reduce_axis((0, N)), te.reduce_axis((0, M))
    total = te.compute((), lambda: te.sum(y[i, j], axis=[i, j]), name="total")
    [factor] = factors(list(differentiate(total, [x])))
    names = {op.name for op in Graph([factor.output(0)]).ops}
    assert names == {"x", "y_stencil0", "dy_stencil0"}


@pytest.mark.parametrize(("terms", "stored"), [(8, False), (30, True)])
def test_a_factor_of_many_operations_is_stored(terms: int, stored: bool) -> None:
    """``y[i]`` is the reciprocal of a sum over neighbours, whose square multiplies each of them."""
    long = te.placeholder((N + terms,), "float64", "long")
    y = te.compute((N,), lambda i: 1.0 / sum(long[i + k] for k in range(terms)), name="y")
    head = te.placeholder((N,), "float64", "head")
    [gradient] = differentiate(y, [long], head)
    names = [op.name for op in Graph([gradient]).ops if is_compute(op)]
    assert any("factor" in name for name in names) == stored
    check_numbers(y, [long])


@pytest.mark.slow
def test_factors_of_steps_that_are_shared_are_graphs() -> None:
    """Each step reads the one before twice: the tree of 20 of them has a million times the last."""
    rows = te.placeholder((4, 8), "float64", "rows")

    def body(i: tirx.Expr, j: tirx.Expr) -> tirx.Expr:
        first = state = rows[i, j]
        for step in range(20):
            scale = te.if_then_else((j + step) % 3 < 1, number(1.1), number(0.9))
            state = te.sin(state * first + rows[i, (j + step) % 8]) * scale + state * 0.5
        return state

    y = te.compute((4, 8), body, name="y")
    [gradient] = differentiate(y, [rows], te.placeholder((4, 8), "float64", "head"))
    stages = [op for op in Graph([gradient]).ops if is_compute(op)]
    assert sum(len(postorder(list(bodies(op)))) for op in stages) < 20_000
