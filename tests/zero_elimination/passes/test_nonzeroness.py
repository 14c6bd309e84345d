"""Conditions factored out of expressions: the text of the result, and its value at every point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tvm import te, tirx

from tests.evaluate import evaluate, evaluate_graph
from tvm_autodiff import lift_nonzeroness_condition, show
from tvm_autodiff.errors import InvalidArgumentError
from tvm_autodiff.expr.build import select
from tvm_autodiff.expr.nodes import as_expr, is_load, node_id, op_name, operands, tensor_key
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.zero_elimination.sums.summands import summands

D = "float64"
i, j = te.var("i"), te.var("j")
x, y, z = (te.var(name, D) for name in "xyz")
A = te.placeholder((6,), D, name="A")
ZERO, NONE = te.const(0.0, D), te.const(0)
HALF, ONE, TWO = (te.const(number, D) for number in (0.5, 1.0, 2.0))
a, b, c = i < 3, j < 2, i + j > 1


def where(condition, value, otherwise=ZERO):
    return te.if_then_else(condition, as_expr(value), as_expr(otherwise))


#: expression → text of the result
EXPRESSIONS = [
    (x * y, "x*y"),
    (where(a, x), "if i < 3 then x else 0.0"),
    (where(a, x) * y, "if i < 3 then x*y else 0.0"),
    (where(a, x) * where(b, y), "if i < 3 and j < 2 then x*y else 0.0"),
    (where(a, x) * where(i < 3, y), "if i < 3 then x*y else 0.0"),
    (where(a, where(b, x)), "if i < 3 and j < 2 then x else 0.0"),
    (where(a, ZERO, x), "if i >= 3 then x else 0.0"),
    (where(te.any(a, b), ZERO, x), "if i >= 3 and j >= 2 then x else 0.0"),
    (
        where(tirx.Cast("uint8", i) - te.const(2, "uint8") < te.const(9, "uint8"), x),
        "if uint8(i) - 2 < 9 then x else 0.0",
    ),
    (where(a, x) / y, "if i < 3 then x/y else 0.0"),
    (y / where(a, x, y), "y/(if i < 3 then x else y)"),
    (where(a, x) + where(a, y), "if i < 3 then x + y else 0.0"),
    (where(a, x) - where(a, y), "if i < 3 then x - y else 0.0"),
    (
        where(a, x) + where(b, y),
        "if i < 3 or j < 2 then (if i < 3 then x else 0.0) + (if j < 2 then y else 0.0) else 0.0",
    ),
    (
        where(te.all(a, c), x) + where(te.all(b, c), y),
        "if i + j > 1 and (i < 3 or j < 2) then (if i < 3 then x else 0.0)"
        " + (if j < 2 then y else 0.0) else 0.0",
    ),
    (
        (where(a, x) + where(b, y)) * z,
        "if i < 3 or j < 2 then ((if i < 3 then x else 0.0) + (if j < 2 then y else 0.0))*z"
        " else 0.0",
    ),
    (where(a, x) + y, "(if i < 3 then x else 0.0) + y"),
    (where(a, where(c, x), where(c, y)), "if i + j > 1 then (if i < 3 then x else y) else 0.0"),
    (where(a, x, y), "if i < 3 then x else y"),
    (a.astype(D), "select(i < 3, 1.0, 0.0)"),
    (a.astype(D) * x, "select(i < 3, x, 0.0)"),
    (te.tanh(where(a, x)), "if i < 3 then tanh(x) else 0.0"),
    (te.power(where(a, x), te.const(2.0, D)), "if i < 3 then x**2.0 else 0.0"),
    (te.exp(where(a, x)), "exp(if i < 3 then x else 0.0)"),
    (where(a, x) * 0.0, "0.0"),
    (where(a, A[i]) * where(A[j] > 0.0, y), None),
    (select(a, x, ZERO), None),
    (select(a, where(b, x), ZERO), None),
    (where(a, te.const(2), NONE) * where(b, j, NONE), "if i < 3 and j < 2 then 2*j else 0"),
    (where(a, j, NONE) // 2, "if i < 3 then j//2 else 0"),
]


@pytest.mark.parametrize(("before", "written"), EXPRESSIONS, ids=lambda part: None)
def test_expressions(before, written):
    after = lift_nonzeroness_condition(before)
    if written is not None:
        assert text(after) == written
    assert_equal(before, after)


def assert_equal(before, after):
    points = dict(zip((i, j), np.meshgrid(range(6), range(6)), strict=True))
    values = {**points, x: 1.5, y: -2.0, z: 0.5}
    data = {A: np.array([1.0, -1.0, 2.0, -3.0, 0.0, 4.0])}
    expected, value = evaluate(before, values, data), evaluate(after, values, data)
    np.testing.assert_allclose(np.broadcast_to(value, (6, 6)), np.broadcast_to(expected, (6, 6)))


def test_a_condition_on_data_stays_behind_the_one_that_protects_it():
    after = lift_nonzeroness_condition(where(i < 5, where(A[i + 1] > 0.0, x)) * where(b, y))
    assert text(after) == "if i < 5 and j < 2 then (if A[i + 1] > 0.0 then x*y else 0.0) else 0.0"
    both = where(i < 5, where(A[i + 1] > 0.0, x)) + where(i > -2, where(A[i + 1] > 0.0, y))
    lifted = lift_nonzeroness_condition(both)
    assert all(is_guarded(lifted, node) for node in postorder(lifted) if is_load(node))


def is_guarded(root, wanted):
    """Whether a node only occurs inside branches."""
    pending = [root]
    while pending:
        node = pending.pop()
        if node_id(node) == node_id(wanted):
            return False
        parts = operands(node)
        pending += parts[:1] if op_name(node) == "if_then_else" else parts
    return True


def test_selects_stay_selects_unless_a_branch_is_among_them():
    assert op_name(lift_nonzeroness_condition(select(a, x, ZERO) * y)) == "select"
    assert op_name(lift_nonzeroness_condition(select(a, x, ZERO) * where(b, y))) == "if_then_else"


def test_what_has_no_condition_comes_back_as_it_is():
    for same in (x * y, te.exp(where(a, x)), a, x):
        assert node_id(lift_nonzeroness_condition(same)) == node_id(same)
    plain = te.compute((6,), lambda n: A[n] * 2.0, name="plain")
    assert tensor_key(lift_nonzeroness_condition(plain)) == tensor_key(plain)


def test_elements_and_tensors():
    assert text(lift_nonzeroness_condition(A[i])) == "A[i]"
    stage = te.compute((6,), lambda n: where(n < 3, A[n]) * where(n > 0, A[n]), name="stage")
    k = te.reduce_axis((0, 6), "k")
    summed = te.compute(
        (6,), lambda n: te.sum(where(k < n, A[k]) * where(k > 1, A[n]), axis=k), name="summed"
    )
    for before, body in (
        (stage, "if n < 3 and n > 0 then A[n]*A[n] else 0.0"),
        (summed, "Σ_{k<6} if k < n and k > 1 then A[k]*A[n] else 0.0"),
    ):
        after = lift_nonzeroness_condition(before)
        assert body in show(after)
        values = {A: np.arange(6.0)}
        old, new = evaluate_graph([before], values), evaluate_graph([after], values)
        np.testing.assert_allclose(new, old)


def test_placeholders_have_no_expression():
    with pytest.raises(InvalidArgumentError, match="tensor A is not the output"):
        lift_nonzeroness_condition(A)


def test_deep_expressions():
    deep = where(a, x)
    for number in range(1500):
        deep = deep * y if number % 2 else deep + where(a, z)
    after = lift_nonzeroness_condition(deep)
    assert op_name(after) == "if_then_else"
    assert node_id(operands(operands(after)[0])[0]) == node_id(i)


def test_products_are_multiplied_out_only_so_far():
    value = where(a, x) + where(b, y)
    assert len(summands(value * value)) == 3
    for _ in range(4):
        value = value * (where(c, x) + z)
    assert len(summands(value)) <= 4


@pytest.mark.parametrize(
    ("factor", "count"),
    [
        (where(i < 3, HALF, where(i < 5, TWO, ONE)), 1),  # the weights of a window
        (where(i < j, HALF, ONE), 2),  # each for a triangle
        (where(i < 3, HALF), 1),
        (where(i < 3, HALF, where(i < 5, TWO)), 2),
        (where(i < 3, x, y), 2),
    ],
)
def test_numbers_that_one_loop_chooses_stay_one_number(factor, count):
    assert len(summands(z * factor)) == count


@st.composite
def expressions(draw, depth=4):
    form = draw(st.sampled_from(["leaf", "if", "else", "add", "sub", "mul", "div", "tanh", "bool"]))
    if depth == 0 or form == "leaf":
        return draw(st.sampled_from([x, y, z, ZERO, te.const(1.0, D)]))
    inner = draw(expressions(depth=depth - 1))
    condition = draw(st.sampled_from([a, b, c, te.all(a, b), te.any(b, c), A[i] > 0.0, i < 3]))
    if form in ("if", "else"):
        return where(condition, inner, ZERO if form == "if" else draw(expressions(depth=depth - 1)))
    if form == "bool":
        return condition.astype(D) * inner
    if form == "tanh":
        return te.tanh(inner)
    other = draw(expressions(depth=depth - 1))
    if form == "div":
        return inner / (other * other + 1.0)
    return {"add": inner + other, "sub": inner - other, "mul": inner * other}[form]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(expressions())
def test_random_expressions(before):
    assert_equal(before, lift_nonzeroness_condition(before))
    parts = [
        where(te.all(*[s.expr for s in p.conditions]), p.value) if p.conditions else p.value
        for p in summands(before)
    ]
    assert_equal(before, sum(parts, ZERO))
