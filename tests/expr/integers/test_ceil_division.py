"""Divisions rounded up in the forms that libraries write, by text and by value."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tests.evaluate import evaluate
from tvm_autodiff.expr.integers.ceil_division import fold_ceil_divisions
from tvm_autodiff.expr.printing.text import text

i = te.var("i")
e = (i + 1) * 8

CASES = [
    ("select", tirx.Select((e % 3).equal(0), e // 3, e // 3 + 1), "((i + 1)*8 + 2)//3"),
    ("branch", te.if_then_else((e % 3).equal(0), e // 3, e // 3 + 1), "((i + 1)*8 + 2)//3"),
    ("other numerator", tirx.Select((i % 3).equal(0), e // 3, e // 3 + 1), None),
    ("other divisor", tirx.Select((e % 2).equal(0), e // 3, e // 3 + 1), None),
    ("other remainder", tirx.Select((e % 3).equal(1), e // 3, e // 3 + 1), None),
    ("plus two", tirx.Select((e % 3).equal(0), e // 3, e // 3 + 2), None),
]


@pytest.mark.parametrize(("expr", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_only_the_rounded_up_division_is_folded(expr, expected):
    folded = fold_ceil_divisions(expr)
    assert text(folded) == (text(expr) if expected is None else expected)
    for value in range(-7, 20):
        assert evaluate(folded, {i: value}, {}) == evaluate(expr, {i: value}, {})
