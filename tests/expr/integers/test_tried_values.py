"""Bounds by counting: exact where few points decide, nothing where they are too many."""

from __future__ import annotations

import itertools

import pytest
from tvm import te

from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.expr.integers.tried_values import literal_box, surely_holds, tried_bounds

i, j, n = te.var("i"), te.var("j"), te.var("n")
BOX = {i: (0, 16), j: (-3, 10)}
data = te.placeholder((16,), "int32", name="data")

EXPRESSIONS = [
    i * 3 - j + 4,
    (i + 4) // 8 - (i + 12) // 16 * 4,
    i // 4 + j // 8 + 2 - (i * 8 + j * 4 + (j * 7 + 7) % 8 * 3 + 15) // 32,
    te.max(i, j * 2) - te.min(i, 3),
]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_bounds(expr):
    value = compile_integers([expr], [i, j])
    found = [value(*point)[0] for point in itertools.product(range(16), range(-3, 7))]
    assert tried_bounds(expr, BOX) == (min(found), max(found))


@pytest.mark.parametrize("expr", [n + i, data[i] + 1, (i * j) // 3 % 2])
def test_unknown(expr):
    assert tried_bounds(expr, {i: (0, 100), j: (0, 100)}) is None


HOLDS = [
    ((i + 4) // 8 <= (i + 12) // 16 * 4 + 2, True),
    ((i + 4) // 8 < (i + 12) // 16 * 4, False),
    (i + 3 > j - 4, True),
    (i >= j, False),
    (te.const(3, "int32") >= i // 4, True),
    (i == i // 1, False),  # equations are left to the solver
    (te.const(3.0, "float32") > te.const(2.0, "float32"), False),
]


@pytest.mark.parametrize(("condition", "holds"), HOLDS, ids=str)
def test_conditions(condition, holds):
    assert surely_holds(condition, BOX) == holds


def test_only_numbers_make_a_box():
    assert literal_box({i: (0, 16), j: (0, n), n: (0, None)}) == {i: (0, 16)}
