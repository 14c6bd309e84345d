"""Bounds by counting: exact where few points decide, nothing where they are too many."""

from __future__ import annotations

import itertools

import pytest
from tvm import te

from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.expr.integers.tried_values import (
    as_bounds,
    literal_box,
    surely_holds,
    tried_bounds,
)

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


#: a condition on i, what else holds, and how many linear conditions it becomes, if it does
INTERVALS = [
    (i // 2 * 3 < i, [], 1),
    ((i // 4).equal(2), [], 2),
    (i * 5 // 16 >= 0, [], 0),
    ((i % 3).equal(0), [], None),
    (i <= (i + 2) // 3 * 2 + 3, [(i + 2) % 3 <= 1], 1),
    (i <= (i + 2) // 3 * 2 + 3, [], None),
    (i <= (i + 2) // 3 * 2 + 3, [(i + 2) % 3 <= 1, j > 0], 1),
    (i // 20 > 0, [], None),  # never: the solver finds out
    (i // 2 > j, [], None),
    (i // n > 2, [], None),
    (data[i] // 2 > 2, [], None),
]


@pytest.mark.parametrize(("condition", "given", "count"), INTERVALS, ids=str)
def test_conditions_as_bounds(condition, given, count):
    found = as_bounds(condition, BOX, given)
    if count is None:
        assert len(found) == 1
        assert found[0].same_as(condition)
        return
    assert len(found) == count
    everywhere = compile_integers([condition, te.all(True, *found), te.all(True, *given)], [i, j])
    for point in itertools.product(range(16), range(-3, 7)):
        old, new, holds = everywhere(*point)
        assert not holds or bool(old) == bool(new)
