"""Points of sites as arrays, beside loops in Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tvm_autodiff.graph.stage import data_axis, reduce_axis
from tvm_autodiff.sparse.points import points_of


def test_points_are_those_of_loops() -> None:
    i, k = data_axis("i", 7), reduce_axis("k", 4, -1)
    a, b = i.var, k.var
    column = tirx.Select(a % 3 == 1, tirx.floordiv(a * 2 - b, 3), tirx.abs(b - a))
    tests = [tirx.Or(a > 2, b != 0), tirx.Not(tirx.And(a == 5, b == 1))]
    found = points_of([i, k], [a], [column], tests, ((7,), (6,)), {})
    wanted, inside = [], []
    for x, y in itertools.product(range(7), range(-1, 3)):
        place = (x * 2 - y) // 3 if x % 3 == 1 else abs(y - x)
        holds = (x > 2 or y != 0) and not (x == 5 and y == 1) and 0 <= place < 6
        inside.append(holds)
        wanted += [(x, place)] if holds else []
    assert found.box == (7, 4)
    np.testing.assert_array_equal(found.inside, inside)
    assert list(zip(found.rows, found.columns, strict=True)) == wanted


def test_a_bound_that_follows_another_axis() -> None:
    i = data_axis("i", 4)
    k = reduce_axis("k", i.var + 1)
    found = points_of([i, k], [i.var], [k.var], [], ((4,), (4,)), {})
    rows, columns = np.nonzero(np.tri(4))
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.columns, columns)


def test_narrow_types_wrap() -> None:
    i = data_axis("i", 300)
    place = i.var.astype("uint8").astype("int32")
    found = points_of([i], [i.var], [place], [], ((300,), (256,)), {})
    np.testing.assert_array_equal(found.columns, np.arange(300) % 256)


def test_a_conversion_to_bool_is_zero_or_one() -> None:
    i = data_axis("i", 9)
    place = (i.var * 3 - 6).astype("bool").astype("int32")
    found = points_of([i], [i.var], [place], [], ((9,), (2,)), {})
    np.testing.assert_array_equal(found.columns, np.arange(9) != 2)


def test_sizes_have_values() -> None:
    n = te.var("n")
    i = data_axis("i", n)
    found = points_of([i], [i.var], [n - 1 - i.var], [], ((5,), (5,)), {n: 5})
    assert found.columns.tolist() == [4, 3, 2, 1, 0]
    with pytest.raises(ad.InvalidArgumentError, match="symbolic size n"):
        points_of([i], [i.var], [i.var], [], ((5,), (5,)), {})
