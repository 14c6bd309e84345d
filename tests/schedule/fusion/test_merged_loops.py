"""Loops are merged only where no axis is used as a value."""

from __future__ import annotations

import numpy as np
from tvm import te

import tvm_autodiff as ad


def test_an_axis_that_is_compared_with_data_stays():
    place = te.placeholder((2, 3), "int32", name="place")
    first = te.compute((3,), lambda n: place[0, n] + place[1, n], name="first")
    chosen = te.compute(
        (3, 3, 4),
        lambda n, y, x: te.if_then_else(te.all(y == place[0, n], x == place[1, n]), 1.0, 0.0),
        name="chosen",
    )
    where = np.array([[0, 2, 2], [1, 3, 3]], "int32")
    total, found = ad.build(place, [first, chosen])(where)
    np.testing.assert_array_equal(total, where.sum(0))
    want = np.zeros((3, 3, 4))
    want[range(3), where[0], where[1]] = 1
    np.testing.assert_array_equal(found, want)
