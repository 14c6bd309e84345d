"""Reductions with varying bounds: an empty range of any axis gives the identity."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.graph.sizes.never_empty import never_empty
from tvm_autodiff.graph.stage import axis_range, reduction_of

n = te.var("n", "int32")
x = te.placeholder((n, 5), "float32", "x")
length = te.placeholder((4,), "int32", "length")
lengths = te.placeholder((n,), "int32", "lengths")
m = te.reduce_axis((0, n), "m")


def jagged(i):
    k = te.reduce_axis((0, length[i]), "k")
    return te.sum(x[m, k], axis=[k, m])


def triangle(i):
    k = te.reduce_axis((0, i + 1), "k")
    return te.sum(x[m, k], axis=[k, m])


def box(i):
    k = te.reduce_axis((0, 3), "k")
    return te.sum(x[m, k], axis=[k, m])


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("body", [jagged, triangle])
def test_a_symbolic_axis_beside_a_varying_one_may_be_empty(body, size):
    y = te.compute((4,), body, "y")
    inputs = [x, length] if body is jagged else [x]
    values = np.ones((size, 5), "float32")
    arrays = [values, np.array([0, 1, 2, 5], "int32")][: len(inputs)]
    counts = np.array([0, 1, 2, 5] if body is jagged else [1, 2, 3, 4])
    out = np.full(4, 7, "float32")  # what an element that nothing writes would keep
    ad.build(inputs, y, cache=False)(*arrays, out=out)
    np.testing.assert_array_equal(out, counts * size)


def by_rows(i):
    t = te.reduce_axis((0, n // 2), "t")
    k = te.reduce_axis((0, lengths[t * 2 + 1]), "k")
    return te.sum(x[t * 2 + 1, k] + i.astype("float32"), axis=[t, k])


def test_a_length_is_not_read_where_no_row_is():
    [filled] = never_empty([te.compute((4,), by_rows, "y")])
    extents = [axis_range(axis)[1] for axis in reduction_of(filled.op).axes]
    assert [text(extent) for extent in extents] == [
        "max(n//2, 1)",
        "max(if t < n//2 then lengths[t*2 + 1] else 0, 1)",
    ]


def test_a_box_of_symbolic_extent_stays():
    y = te.compute((4,), box, "y")
    [same] = never_empty([y])
    extents = [axis_range(axis)[1] for axis in reduction_of(same.op).axes]
    assert [str(extent) for extent in extents] == ["3", "n"]
