"""Sums over short groups of neighbouring channels."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.schedule.rewrites.sums.grouped_columns import with_grouped_columns

N, ROWS, G, C = 2, 19, 3, 5
x = te.placeholder((N, ROWS, G * C), "float64", "x")
m, w = te.placeholder((N, G), "float64", "m"), te.placeholder((G * C,), "float64", "w")
y, v = te.placeholder((N, ROWS, G), "float64", "y"), te.placeholder((C,), "float64", "v")


def total(value, reduce=te.sum, rows=ROWS, inside=C):
    i, c = te.reduce_axis((0, rows), "i"), te.reduce_axis((0, inside), "c")
    return te.compute((N, G), lambda n, g: reduce(value(n, g, i, c), axis=[i, c]), "total")


def square(n, g, i, c):
    d = x[n, i, g * C + c] - m[n, g + te.indexdiv(c, C)]
    return d * d * w[g * C + c] + v[c]


#: name → the sum, and whether it is split
CASES = {
    "squares of differences": (total(square), True),
    "a maximum": (total(lambda n, g, i, c: te.abs(x[n, i, g * C + c]), te.max), True),
    "a value of each row": (total(lambda n, g, i, c: x[n, i, g * C + c] * y[n, i, g]), False),
    "a condition": (
        total(lambda n, g, i, c: tirx.Select(c < 3, x[n, i, g * C + c], m[n, g])),
        False,
    ),
    "gaps": (total(lambda n, g, i, c: x[n, i, g * C + c], inside=C - 1), False),
    "few rows": (total(lambda n, g, i, c: x[n, i, g * C + c], rows=15), False),
    "columns": (total(lambda n, g, i, c: x[n, i, c * G + g]), False),
}


@pytest.mark.parametrize("name", CASES)
def test_split(name):
    before, split = CASES[name]
    [after] = with_grouped_columns([before])
    assert (tensor_key(after) != tensor_key(before)) == split
    if split:
        rng = np.random.default_rng(0)
        values = {t: rng.standard_normal([int(n) for n in t.shape]) for t in (x, m, w, y, v)}
        [want], [got] = evaluate_graph([before], values), evaluate_graph([after], values)
        np.testing.assert_allclose(got, want, rtol=1e-12)
        [part] = after.op.input_tensors
        assert list(map(int, part.shape)) == [N, G * C]


def test_symbolic_sizes():
    n, rows = te.var("n"), te.var("rows")
    read = te.placeholder((n, rows, G * C), "float64", "read")
    i, c = te.reduce_axis((0, rows), "i"), te.reduce_axis((0, C), "c")
    before = te.compute((n, G), lambda b, g: te.sum(read[b, i, g * C + c], axis=[i, c]), "sums")
    [after] = with_grouped_columns([before])
    [part] = after.op.input_tensors
    assert int(part.shape[1]) == G * C
    values = {read: np.random.default_rng(0).standard_normal((2, 3, G * C))}
    [want], [got] = (evaluate_graph([t], values, {n: 2, rows: 3}) for t in (before, after))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_loop_that_another_bounds_is_not_split():
    i, c = te.reduce_axis((0, ROWS), "i"), te.reduce_axis((0, C), "c")
    axes = [i, te.reduce_axis((0, i + 1), "repeated"), c]
    before = te.compute((N, G), lambda n, g: te.sum(x[n, i, g * C + c], axis=axes), "ragged")
    [after] = with_grouped_columns([before])
    assert tensor_key(after) == tensor_key(before)
