"""Expressions on a box have the values that they have without it, and fewer variables."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings, strategies as st
from tvm import te

from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.expr.nodes import node_id
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.schedule.nest.decided import decided

i, j = te.var("i"), te.var("j")
RANGES = {node_id(i): (0, 6), node_id(j): (0, 4)}

EXPRESSIONS = [
    (i * 4 + j) // 4,
    (i * 4 + j) % 4,
    (i * 3 + j) // 3,
    (i * 3 + 7) % 3,
    (5 - i * 2) // 2,
    (i * 9 + j * 8 + 8) % 9,
    (i * 9 + j * 8 + 8) // 9,
    (j * 5 - i * 4 + 20) // 6,
    te.min(i + j, 10),
    te.min(i, 3 - j),
    te.max(i - 7, j),
    te.if_then_else(te.all(i >= 0, i + j < 11), i * 2, -1),
    te.if_then_else(te.any(i > 6, j > 2), i, j),
    te.if_then_else(te.all(i == 2, i % 2 == 1), i, j),
    te.if_then_else((i * 2 + 1) % 2 == 0, i, j - i),
    te.max(te.min(i * 2 + 1, 11) - te.max(i * 2 - 1, 0), 1),
]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_values_stay(expr):
    before = compile_integers([expr], [i, j])
    after = compile_integers(decided([expr], [i, j], RANGES), [i, j])
    for point in itertools.product(range(7), range(5)):
        assert before(*point) == after(*point), point


@pytest.mark.slow
@given(
    st.lists(st.integers(-70, 70), min_size=3, max_size=3),
    st.sampled_from([2, 3, 4, 8, 12, 16, 32]),
    st.sampled_from(["floordiv", "floormod", "lt", "le", "gt", "ge"]),
)
@settings(max_examples=300)
def test_smaller_forms_have_equal_values(numbers, divisor, name):
    form = i * numbers[0] + j * numbers[1] + numbers[2]
    divided = {"floordiv": form // divisor, "floormod": form % divisor}
    compared = {"lt": form < 0, "le": form <= 0, "gt": form > 0, "ge": form >= 0}
    expr = {**divided, **compared}[name]
    before = compile_integers([expr], [i, j])
    after = compile_integers(decided([expr], [i, j], RANGES), [i, j])
    for point in itertools.product(range(7), range(5)):
        assert before(*point) == after(*point), point


#: what ranges do not decide → the same of fewer variables, or with smaller coefficients
SMALLER = [
    ((i * 4 + j + 3) // 4, "i + (j + 3)//4"),
    ((i * 16 + j + 16) % 64, "(i + 1)%4*16 + j"),
    ((i * 255 + 255) // 256, "i"),
    ((i * 31 + 31) // 4, "i*8 + 7 - i//4"),
    (i * 8 + j < 24, "i < 3"),
    (i * 8 + j > 15, "i >= 2"),
    (i * 8 - j > 7, "i*8 - j > 7"),
    ((i * 6 + 6) % 5, "(i + 1)%5"),
]


@pytest.mark.parametrize(("expr", "wanted"), SMALLER, ids=str)
def test_smaller_forms(expr, wanted):
    assert text(decided([expr], [i, j], RANGES)[0]) == wanted


DECIDED = [
    (te.if_then_else(i + j < 11, i, j), i),
    (te.if_then_else(i > 6, i, j), j),
    (te.if_then_else((i * 2) % 2 == 0, i, j), i),
    ((i * 6 + j + 1) // 6, i),
    (te.min(i, 6), i),
    ((i + 7) % 7, i),
    ((i + 21) // 7 - 3 + j, j),
]


@pytest.mark.parametrize(("expr", "value"), DECIDED, ids=str)
def test_what_is_decided(expr, value):
    [found] = decided([expr], [i, j], RANGES)
    assert node_id(found) == node_id(value)
