"""Quotients and remainders that ranges decide: by cases, and against all values."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tvm_autodiff.expr.integers.decided_divisions import with_decided_divisions
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder

t, i = te.var("t"), te.var("i")
RANGES = {"t": (0, 23), "i": (0, 4)}

#: an expression of t in 0..23 and i in 0..4, and whether divisions are left
CASES = {
    "a quotient": (t // 24 + i, False),
    "a remainder": (t % 24 + i, False),
    "of a sum": ((t + i * 24) // 24, True),
    "beyond the first": ((t + 24) // 24 * 3 + (t + 25 - 1) % 24, False),
    "of negative numbers": ((t - 24) // 24 + (t - 24) % 24, False),
    "that is not decided": (t // 23 + t % 12, True),
    "one of two": (t // 24 + t // 6, True),
    "under a clamp": (tirx.Max(tirx.Min(i + t // 24, 3), 0), True),
}


@pytest.mark.parametrize("name", CASES)
def test_divisions(name):
    given, left = CASES[name]
    found = with_decided_divisions(given, lambda var: RANGES[var.name])
    names = {op_name(node) for node in postorder(found)}
    assert bool(names & {"floordiv", "floormod"}) == left
    for value in range(24):
        for other in range(5):
            numbers = {"t": value, "i": other}
            assert value_of(found, numbers) == value_of(given, numbers)


def value_of(expr, numbers):
    """An integer expression of variables with values."""
    text = str(expr).replace("T.Cast", "").replace("T.max", "max").replace("T.min", "min")
    return eval(text, {"max": max, "min": min, "T": None}, numbers)
