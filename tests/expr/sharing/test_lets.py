"""Lets keep reads under their guards, and expressions small: lets, homes.

The oracle evaluates a let where it stands, one side of each choice and what a conjunction needs,
and raises on a read outside of its tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import OutsideRead, evaluate
from tvm_autodiff.expr.nodes import is_load, node_id, op_name, operands
from tvm_autodiff.expr.rewrite import expand_lets, postorder, tree_size
from tvm_autodiff.expr.sharing.lets import bind_shared

i, j = te.var("i"), te.var("j")
A = te.placeholder((4,), "float64", name="A")
B = te.placeholder((4,), "float64", name="B")
N = te.placeholder((4,), "int32", name="N")
ARRAYS = {
    A: np.linspace(0.1, 0.9, 4),
    B: np.linspace(-0.5, 0.5, 4),
    N: np.array([3, 0, 7, -1], "int32"),
}
GRID = np.meshgrid(np.arange(-3, 8), np.arange(-3, 8), indexing="ij")
ZERO = tirx.const(0.0, "float64")


def branch(condition, then, otherwise=ZERO):
    return te.if_then_else(condition, then, otherwise)


def choice(condition, then, otherwise=ZERO):
    return tirx.Select(condition, then, otherwise)


def inside(index):
    return tirx.all(index >= 0, index < 4)


def long(expr, levels: int = 6):
    """A value whose tree is much larger than its graph."""
    for _ in range(levels):
        expr = te.sin(expr) * (expr + expr)
    return expr


#: expressions whose reads are all guarded
GUARDED = {
    "then and else": lambda a: branch(
        inside(i), te.exp(a), branch(j > 0, branch(inside(i), te.cos(a)))
    ),
    "two branches": lambda a: branch(tirx.all(inside(i), j > 0), te.exp(a))
    + branch(tirx.all(inside(i), j < 3), te.cos(a)),
    "two selects": lambda a: choice(tirx.all(inside(i), j > 0), te.exp(a))
    + choice(tirx.all(inside(i), j < 3), te.cos(a)),
    "nested": lambda a: branch(i >= 0, branch(i < 4, te.exp(a)))
    + branch(i < 4, branch(i >= 0, te.cos(a))),
    "one side of each": lambda a: branch(i < 0, ZERO, branch(i < 4, te.exp(a)))
    * branch(i >= 4, B[1], branch(i >= 0, te.cos(a))),
    "behind a conjunction": lambda a: branch(tirx.all(i >= 0, i < 4, a > 0.3), B[0], B[1])
    + branch(inside(i), te.exp(a)),
    "behind a disjunction": lambda a: branch(tirx.any(i < 0, i >= 4, a > 0.3), B[0], B[1])
    + branch(inside(i), te.exp(a)),
    "in many branches": lambda a: sum(
        (branch(tirx.all(inside(i), j > n), te.exp(a) * float(n)) for n in range(-3, 6)), B[0]
    ),
    "in many nested branches": lambda a: sum(
        (branch(i >= 0, branch(tirx.all(i < 4, j > n), te.exp(a))) for n in range(-3, 6)), B[0]
    ),
    "in many branches on data": lambda a: sum(
        (branch(inside(i), branch(A[i] > n / 9, te.exp(a))) for n in range(9)), B[0]
    ),
    "in a condition of its own": lambda a: sum(
        (branch(inside(i), branch(branch(j > 0, a) > n / 9, te.exp(a))) for n in range(9)), B[0]
    ),
}


def strictly(expr, arrays=ARRAYS):
    return evaluate(expr, {i: GRID[0], j: GRID[1]}, arrays, strict=True, cut_short=True)


@pytest.mark.parametrize("name", GUARDED)
def test_reads_stay_under_their_guards(name: str) -> None:
    expr = GUARDED[name](long(A[i]))
    expected = strictly(expr)
    bound = bind_shared(expr)
    assert tree_size(bound) < tree_size(expr) / 4
    np.testing.assert_array_equal(strictly(bound), expected)
    np.testing.assert_array_equal(strictly(expand_lets(bound)), expected)


def test_the_oracle_sees_a_read_that_left_its_guard() -> None:
    t = te.var("t", "float64")
    strictly(branch(inside(i), tirx.Let(t, A[i], t * t)))
    with pytest.raises(OutsideRead):
        strictly(tirx.Let(t, A[i], branch(inside(i), t * t)))


@pytest.mark.parametrize("divide", [tirx.truncdiv, tirx.floordiv, tirx.floormod])
def test_divisions_by_what_may_be_zero_stay_under_their_guards(divide: Callable) -> None:
    value = long(tirx.Cast("float64", divide(i, j)))
    bound = bind_shared(branch(j > 1, te.exp(value)) + branch(j < -1, te.cos(value)))
    assert op_name(bound) == "add"
    pending, reached = [bound], []
    while pending:
        node = pending.pop()
        reached.append(op_name(node))
        parts = operands(node)
        pending += parts[:1] if op_name(node) == "if_then_else" else parts
    assert not {"truncdiv", "floordiv", "floormod"} & set(reached)


def test_what_reads_nothing_is_bound_once_in_front() -> None:
    value = long(tirx.Cast("float64", i))
    bound = bind_shared(branch(i > 0, te.exp(value)) + branch(j > 0, te.cos(value)))
    assert op_name(bound) == "let"
    assert tree_size(bound) < 100
    np.testing.assert_array_equal(
        strictly(bound), strictly(branch(i > 0, te.exp(value)) + branch(j > 0, te.cos(value)))
    )


def test_what_both_sides_need_is_bound_in_front_of_them() -> None:
    value = long(A[i])
    guarded = branch(inside(i), branch(j > 0, te.exp(value), te.cos(value)))
    bound = bind_shared(guarded)
    assert op_name(operands(bound)[1]) == "let"
    assert sum(map(is_load, tree(bound))) == 1
    np.testing.assert_array_equal(strictly(bound), strictly(guarded))


def tree(expr) -> list:
    """Every node, as often as it is written."""
    found, pending = [], [expr]
    while pending:
        found.append(pending.pop())
        pending += operands(found[-1])
    return found


#: one level of a chain, whose tree doubles
LEVELS = {
    "sides share": lambda e, n: branch(j > n % 3, te.sin(e), te.cos(e)),
    "sides share, selects": lambda e, n: choice(j > n % 3, te.sin(e), te.cos(e)),
    "siblings share": lambda e, n: branch(j > n % 3, te.sin(e)) + branch(i < n % 4, te.cos(e)),
    "siblings on data share": lambda e, n: (
        branch(B[n % 4] > 0, te.sin(e)) + branch(B[(n + 1) % 4] > 0, te.cos(e))
    ),
    "a value and a branch": lambda e, n: te.sin(e) + branch(j > n % 3, te.cos(e)),
    "a condition and its sides": lambda e, n: branch(e > 0.1, te.sin(e), te.cos(e)),
    "a conjunction": lambda e, n: branch(tirx.all(e > -0.5, e < 0.5), te.sin(e), te.cos(e)),
    "nested": lambda e, n: branch(
        j > n % 3, branch(i > 1, te.sin(e), te.tanh(e)), branch(i < n % 4, te.cos(e))
    ),
}


@pytest.mark.parametrize("name", LEVELS)
def test_chains_of_choices_stay_nearly_linear(name: str) -> None:
    sizes = []
    for levels in (20, 40):
        expr = A[i]
        for n in range(levels):
            expr = LEVELS[name](expr, n)
        expr = branch(inside(i), expr)
        bound = bind_shared(expr)
        sizes.append(tree_size(bound))
        loosely = evaluate(expr, {i: GRID[0], j: GRID[1]}, ARRAYS)  # strictly it takes 2^levels
        np.testing.assert_allclose(strictly(bound), loosely, rtol=1e-14)
    assert sizes[0] < 100 * 20
    assert sizes[1] < 2.5 * sizes[0]


@pytest.mark.parametrize("name", [*GUARDED, *LEVELS])
def test_each_variable_is_bound_in_one_place(name: str) -> None:
    """TVM refuses others. A condition is not bound, so that none of its lets may be repeated."""
    if name in GUARDED:
        expr = GUARDED[name](long(A[i]))
    else:
        expr = A[i]
        for n in range(8):
            expr = LEVELS[name](expr, n)
    holds = branch(j > 1, expr, te.exp(expr)) > 0.2
    expr = branch(holds, expr) + branch(tirx.all(i < 2, holds), te.sin(expr))
    bound = bind_shared(branch(inside(i), expr))
    variables = [hash(node.var) for node in tree(bound) if op_name(node) == "let"]
    assert len(variables) == len(set(variables)) > 0


def test_what_uses_a_variable_stays_in_its_let() -> None:
    t = te.var("t", "float64")
    shared = long(t + B[1])
    expr = tirx.Let(t, te.exp(B[0]), shared * te.cos(shared)) + long(B[2], 3)
    bound = bind_shared(expr)
    np.testing.assert_allclose(strictly(bound), strictly(expr), rtol=1e-14)
    free = {node_id(node) for node in postorder(expand_lets(bound)) if op_name(node) == "var"}
    assert not free


def test_what_cannot_fail_is_bound_in_front_of_many_branches():
    """Without guards, however many branches need it."""
    value = long(A(j))
    whole = sum((branch(tirx.EQ(i, n), te.sin(value)) for n in range(8)), start=ZERO)
    bound = bind_shared(whole, lambda node: False)
    assert op_name(bound) == "let"
    assert sum(op_name(node) == "if_then_else" for node in postorder(bound)) == 8
    behind = bind_shared(whole)
    assert sum(op_name(node) == "if_then_else" for node in postorder(behind)) > 8
