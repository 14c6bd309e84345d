"""Scans whose step is a choice run in vectors: a selection that is no plain argmax, backward."""

from __future__ import annotations

import numpy as np
from tvm import te, tirx

import tvm_autodiff as ad


def test_last_maximum_and_its_place():
    rows, columns = 5, 33

    def combine(a, b):
        return tuple(te.if_then_else(a[1] > b[1], a[n], b[n]) for n in (0, 1))

    last = te.comm_reducer(combine, lambda t0, t1: (tirx.const(-1, t0), te.min_value(t1)))
    x, k = te.placeholder((rows, columns), name="x"), te.reduce_axis((0, columns), "k")
    head = te.placeholder((rows,), name="head")
    place, value = te.compute((rows,), lambda i: last((k, x[i, k]), axis=k), name="last")
    step = ad.build([x, head], [place, *ad.differentiate(value, [x], head)], cache=False)
    assert "TVM rejects" not in (step.notice or "")
    array = np.random.default_rng(2).integers(-2, 3, (rows, columns)).astype("float32")
    cotangent = np.arange(1, rows + 1, dtype="float32")
    found, gradient = step(array, cotangent)
    np.testing.assert_array_equal(array[np.arange(rows), found], array.max(1))
    wanted = np.zeros((rows, columns))
    wanted[np.arange(rows), found] = cotangent
    np.testing.assert_array_equal(gradient, wanted)
