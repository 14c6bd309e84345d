"""Conditions that are choices: what becomes of them, and that nested ones build in time."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.schedule.rewrites.conditions.chosen_conditions import with_conjunctions

a, b, c = (te.var(name) for name in "abc")
YES, NO = b > 0, c > 0

#: name → (an expression, what it becomes)
CASES = {
    "a select": (tirx.Select(a > 0, YES, NO), "a > 0 and b > 0 or a <= 0 and c > 0"),
    "a branch": (tirx.if_then_else(a > 0, YES, NO), "a > 0 and b > 0 or a <= 0 and c > 0"),
    "inside of a choice": (
        tirx.Select(tirx.Select(a > 0, YES, NO), b, c),
        "select(a > 0 and b > 0 or a <= 0 and c > 0, b, c)",
    ),
    "one side": (tirx.Select(a > 0, YES, tirx.const(False, "bool")), "a > 0 and b > 0"),
    "numbers": (tirx.Select(a > 0, b, c), "select(a > 0, b, c)"),
}


@pytest.mark.parametrize("name", CASES)
def test_form(name):
    given, expected = CASES[name]
    assert text(with_conjunctions(given)) == expected


def test_nested_choices_are_no_larger():
    """Each level is a condition more, in as many nodes as before."""

    def nested(levels):
        condition = YES
        for level in range(levels):
            condition = tirx.Select(a > level, condition, b > level)
        return with_conjunctions(condition)

    sizes = [len(postorder(nested(levels))) for levels in (4, 8, 12)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]
    assert not any(op_name(node) == "select" for node in postorder(nested(12)))
