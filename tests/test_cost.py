"""Costs counted from expressions, by hand."""

from __future__ import annotations

import pytest
from tvm import te, tirx, topi

from tvm_autodiff import Cost, InvalidArgumentError, estimate_cost
from tvm_autodiff.expr.nodes import const_value
from tvm_autodiff.graph.counting import multiplications_in

A = te.placeholder((4, 5), name="A")
i, x = te.var("i"), te.var("x", "float32")


def over_rows(make):
    k = te.reduce_axis((0, 5), name="k")
    return te.compute((4,), lambda i: make(i, k), name="R")


def pair():
    both = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda s, t: (tirx.const(0, s), tirx.const(0, t)),
        name="both",
    )
    k = te.reduce_axis((0, 5), name="k")
    return te.compute((4,), lambda i: both((A[i, k], A[i, k] * A[i, k]), axis=k), name="P")[0]


CASES = [
    ("an input costs nothing", lambda: A, Cost(0, 0, 0)),
    ("a copy", lambda: te.compute((4, 5), lambda i, j: A[i, j]), Cost(20, 0, 20)),
    ("a scalar", lambda: te.compute((), lambda: A[0, 0] * A[1, 1]), Cost(1, 1, 1)),
    ("row sums", lambda: over_rows(lambda i, k: te.sum(A[i, k], axis=k)), Cost(20, 0, 4)),
    (
        "where= is evaluated for every element",
        lambda: over_rows(lambda i, k: te.sum(A[i, k], axis=k, where=k % 2 > 0)),
        Cost(20, 20, 4),
    ),
    ("products multiply", lambda: topi.prod(A, axis=1), Cost(20, 20, 4)),
    ("a tuple stage runs once and stores twice", pair, Cost(20, 20, 8)),
    ("stages add up", lambda: topi.exp(topi.exp(A)), Cost(40, 40, 40)),
]


@pytest.mark.parametrize(("make", "cost"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_cost(make, cost):
    assert estimate_cost(make()) == cost


COUNTS = [
    (i // 2 + i % 3, 2),
    (te.exp(x) * x + x, 2),
    (te.if_then_else(i > 0, x / 2.0, x), 1),
    (tirx.Let(x, te.exp(x), x * x), 2),
    (tirx.Min(x, tirx.Max(x, x)), 0),
    (x.astype("float64"), 0),
]


@pytest.mark.parametrize(("expr", "count"), COUNTS, ids=[str(n) for n in range(len(COUNTS))])
def test_multiplications(expr, count):
    assert multiplications_in(expr) == count


def test_a_shared_stage_counts_once():
    squares = te.compute((4, 5), lambda i, j: A[i, j] * A[i, j])
    assert estimate_cost([topi.exp(squares), topi.tanh(squares)]) == Cost(60, 60, 60)


def test_symbolic_extents_stay_symbolic_or_get_values():
    n = te.var("n")
    X = te.placeholder((n, 3), name="X")
    Y = te.compute((n, 3), lambda i, j: X[i, j] * 2.0)
    assert estimate_cost(Y, {n: 7}) == Cost(21, 21, 21)
    assert const_value(estimate_cost(Y).iterations) is None


def test_what_is_no_tensor_is_refused():
    with pytest.raises(InvalidArgumentError, match="te tensors"):
        estimate_cost([1.0])
