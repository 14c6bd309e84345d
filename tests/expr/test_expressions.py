"""Vocabulary, folding constructors, rewriting and lets: nodes, build, fold, rewrite, lets."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate
from tvm_autodiff.expr import build
from tvm_autodiff.expr.fold import fold
from tvm_autodiff.expr.nodes import (
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
    same_node,
    with_operands,
)
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.expr.rewrite import (
    BranchRewriter,
    contains_load,
    depends_on,
    expand_lets,
    postorder,
    substitute,
    tree_size,
    variables_of,
)
from tvm_autodiff.expr.sharing.lets import bind_shared, merge_equal

x, y = te.var("x", "float32"), te.var("y", "float32")
i, j = te.var("i"), te.var("j")
A = te.placeholder((4, 5), name="A")

NAMES = [
    (x + y, "add"),
    (x - y, "sub"),
    (x * y, "mul"),
    (x / y, "div"),
    (tirx.truncdiv(i, j), "truncdiv"),
    (tirx.truncmod(i, j), "truncmod"),
    (i // j, "floordiv"),
    (i % j, "floormod"),
    (tirx.Min(x, y), "min"),
    (tirx.Max(x, y), "max"),
    (i < j, "lt"),
    (i >= j, "ge"),
    (tirx.all(i < j, j < 3), "and"),
    (tirx.any(i < j, j < 3), "or"),
    (tirx.Not(i < j), "not"),
    (tirx.Select(i < j, x, y), "select"),
    (te.if_then_else(i < j, x, y), "if_then_else"),
    (x.astype("float64"), "cast"),
    (tirx.Let(x, y, x), "let"),
    (te.power(x, y), "power"),
    (te.abs(x), "abs"),
    (te.ceil(x), "ceil"),
    (te.exp(x), "exp"),
    (tirx.likely(i < j), "likely"),
    (A(i, j), "load"),
    (tirx.const(2.0, "float32"), "const"),
    (x, "var"),
]


@pytest.mark.parametrize(("expr", "name"), NAMES, ids=[name for _, name in NAMES])
def test_every_node_has_its_name_and_is_rebuilt_over_its_operands(expr, name):
    assert op_name(expr) == name
    again = with_operands(expr, operands(expr))
    assert op_name(again) == name
    assert dtype_of(again) == dtype_of(expr)
    assert text(again) == text(expr)


zero, one = build.const(0, "float32"), build.const(1, "float32")
FOLDS = [
    (build.add(x, zero), "x"),
    (build.add(zero, x), "x"),
    (build.add(x, build.neg(y)), "x - y"),
    (build.sub(x, zero), "x"),
    (build.sub(zero, x), "-x"),
    (build.mul(x, one), "x"),
    (build.mul(zero, x), "0.0"),
    (build.mul(build.const(2, "float32"), build.const(3, "float32")), "6.0"),
    (build.neg(build.neg(x)), "x"),
    (build.neg(one), "-1.0"),
    (build.div(x, one), "x"),
    (build.div(zero, x), "0.0"),
    (build.select(build.true(), x, y), "x"),
    (build.if_then_else(build.negate(build.true()), x, y), "y"),
    (build.cast("float32", x), "x"),
    (build.cast("float64", one), "1.0"),
    (build.all_of([build.true(), i < j]), "i < j"),
    (build.all_of([]), "true"),
    (build.any_of([]), "false"),
    (build.negate(i < j), "i >= j"),
    (build.negate(build.negate(x < y)), "x < y"),
    (build.sum_of([x, zero, y]), "x + y"),
    (fold(tirx.Mul(one, tirx.Add(x, zero))), "x"),
]


@pytest.mark.parametrize(("expr", "expected"), FOLDS, ids=[e for _, e in FOLDS])
def test_constructors_fold(expr, expected):
    assert text(expr) == expected


def test_the_negation_of_a_float_comparison_holds_for_nan():
    # not (x < y) is true for NaN, x >= y is not
    assert op_name(build.negate(x < y)) == "not"


def test_conjuncts_come_left_to_right_without_marks():
    condition = tirx.all(i < 1, tirx.likely(j < 2), i < 3)
    assert [text(part) for part in build.conjuncts(condition)] == ["i < 1", "j < 2", "i < 3"]


def test_postorder_visits_what_is_shared_once():
    square = x * x
    assert [op_name(node) for node in postorder(square + square)] == ["var", "mul", "add"]


def test_walks_survive_depth_and_doubling():
    deep = x
    for _ in range(20_000):
        deep = te.sin(deep)
    assert len(postorder(substitute(deep, {x: y}))) == 20_001
    doubled = x
    for _ in range(200):
        doubled = tirx.Add(doubled, doubled)
    assert tree_size(substitute(doubled, {x: y})) == 2**201 - 1
    assert len(postorder(doubled)) == 201


def test_substitution_reaches_indices_and_is_simultaneous():
    assert text(substitute(A(i, j), {i: j, j: i})) == "A[j, i]"


def test_what_occurs_in_an_expression():
    expr = A(i, 2) + x
    assert [var.name for var in variables_of(expr)] == ["i", "x"]
    assert contains_load(expr)
    assert depends_on(expr, [i])
    assert not depends_on(expr, [j])


def test_equal_parts_become_one_node():
    [merged] = merge_equal([A(i, j) * A(i, j) + A(j, i)])
    product, other = operands(merged)
    left, right = operands(product)
    assert same_node(left, right)
    assert node_id(other) != node_id(left)


def test_minus_one_and_minus_two_are_different_literals():
    left, right = build.const(-1, "int32"), build.const(-2, "int32")
    assert node_id(left) != node_id(right)


def doubled_under_branch(levels: int):
    inner = A(i, 0)
    for _ in range(levels):
        inner = te.sin(inner) * tirx.Add(inner, inner)
    return tirx.Add(te.if_then_else(i >= 1, inner, x), x)


def test_lets_keep_the_value_and_stay_inside_the_branch():
    expr = doubled_under_branch(8)
    bound = bind_shared(expr)
    assert tree_size(bound) < tree_size(expr) / 20
    assert op_name(bound) == "add", "the let of a guarded read must not leave the guard"
    array = np.linspace(0.1, 1.0, 20).reshape(4, 5)
    for place in range(2):
        values = {i: place, x: 0.25}
        expected = evaluate(expr, values, {A: array})
        assert np.allclose(evaluate(bound, values, {A: array}), expected)
        assert np.allclose(evaluate(expand_lets(bound), values, {A: array}), expected)


def test_small_expressions_get_no_lets():
    expr = te.exp(x) * te.exp(x)
    assert same_node(bind_shared(expr), expr)


def test_let_values_are_expanded_once_each():
    t = te.var("t", "float32")
    expr = tirx.Let(t, te.exp(x), t * t)
    expanded = expand_lets(expr)
    assert text(expanded) == "exp(x)*exp(x)"
    left, right = operands(expanded)
    assert same_node(left, right)


def test_a_branch_that_is_excluded_is_not_visited():
    visited = []

    def visit(node):
        """``i → 0, 0 < 3 → True``"""
        visited.append(text(node))
        if same_node(node, i):
            return tirx.const(0, "int32")
        sides = [const_value(part) for part in operands(node)] if op_name(node) == "lt" else [None]
        return None if None in sides else tirx.const(sides[0] < sides[1], "bool")

    choice = te.if_then_else(i < 3, te.if_then_else(j < i, x + 1.0, x), te.exp(y) * 2.0)
    assert text(BranchRewriter(visit)(choice)) == "if j < 0 then x + 1.0 else x"
    assert not [one for one in visited if "y" in one]
