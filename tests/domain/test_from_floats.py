"""Indices computed in floats: the division found has the index's value at every point."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate
from tvm_autodiff.domain.from_floats import without_floats
from tvm_autodiff.expr.nodes import is_float
from tvm_autodiff.expr.rewrite import contains

i, j = te.var("i"), te.var("j")
wide = te.var("wide", "int64")


def number(value):
    return tirx.const(value, "float32")


def index(value):
    return tirx.Cast("int32", value)


def real(var):
    return tirx.Cast("float32", var)


#: index, points of i
FOUND = [
    (index(te.floor(real(i) * number(0.5))), 12),
    (index(te.floor(real(i) * number(0.5) + number(1e-5))), 12),
    (index(te.floor(real(i) * number(2.0) + number(1e-5))), 4),
    (index(te.floor((real(i) + number(0.5)) * number(5 / 7) - number(0.5))), 7),
    (index(te.floor((real(i) + number(0.5)) * number(5 / 7) - number(0.5))) + 1, 7),
    (index(te.round(real(i) * number(2 / 3))), 9),
    (index(te.ceil(real(i) / number(3.0))), 10),
    (index(number(7.0) - real(i)), 8),
    (te.min(index(te.floor(real(i) * number(0.4))), 3) + j, 12),
    (index(te.floor(real(i) * number(32 / 67))), 67),
    (index(te.floor(real(i))), 1),
]
KEPT = {
    "two variables": (index(te.floor(real(i) * number(0.5) + real(j))), 8),
    "no division": (index(te.floor(real(i) * real(i) * number(0.5))), 8),
    "a function": (index(te.floor(te.sqrt(real(i)))), 20),
    "depends on rounding": (index(te.floor(real(i) * number(1 / 49) * number(49.0))), 80),
    "no index at infinity": (index(number(1.0) / real(i)), 5),
}


@pytest.mark.parametrize("case", range(len(FOUND)))
def test_equals_the_index_everywhere(case):
    before, points = FOUND[case]
    after = without_floats(before, {i: (0, points)})
    assert not contains(after, is_float)
    at = {i: np.arange(points), j: np.asarray(3)}
    assert np.array_equal(evaluate(before, at), evaluate(after, at))


@pytest.mark.parametrize("name", KEPT)
def test_stays(name):
    before, points = KEPT[name]
    after = without_floats(before, {i: (0, points), j: (0, 3)})
    assert contains(after, is_float)


def test_a_symbolic_extent_stays():
    before = index(te.floor(real(i) * number(0.5)))
    assert contains(without_floats(before, {i: (0, te.var("n"))}), is_float)


def test_mixed_widths():
    before = index(te.floor(tirx.Cast("float32", wide) * number(0.5)))
    after = without_floats(before, {wide: (0, 9)})
    assert not contains(after, is_float)
    assert [int(evaluate(after, {wide: n})) for n in range(9)] == [n // 2 for n in range(9)]
