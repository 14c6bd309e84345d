"""Conditions of gathered terms stand where the reads in them are protected.

Values are loops in numpy; a read outside of its tensor is an error.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff import differentiate

P, Q = (te.placeholder((5,), "int32", name=name) for name in "PQ")
INTEGERS = [np.array([3, 0, 0, 1, 4], "int32"), np.array([0, 1, 3, 2, 0], "int32")]

#: name → (shape of what is read, extent of the output, where it is read)
CASES = {
    "a place beside data, and data at that place": (
        (6, 5),
        2,
        lambda i, p, q: (p[0] + i, p[i + 3]),
    ),
    "the other way round": ((5, 6), 2, lambda i, p, q: (p[i + 3], p[0] + i)),
    "data at a place that data tells": (
        (6, 6, 5),
        2,
        lambda i, p, q: (p[0] + i, q[p[4 - i]] + i, q[i]),
    ),
    "from the end": ((6, 5), 3, lambda i, p, q: (q[2] - i, p[i + 2])),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds_stand_before_reads_at_what_they_bound(name):
    shape, extent, place = CASES[name]
    x = te.placeholder(shape, "float64", name="x")
    y = te.compute((extent,), lambda i: x[place(i, P, Q)], name="y")
    head = te.placeholder((extent,), "float64", name="head")
    [dx] = differentiate(y, [x], head)
    weights = np.arange(1.0, extent + 1)
    want = np.zeros(shape)
    for i in range(extent):
        want[place(i, *INTEGERS)] += weights[i]
    given = [(x, np.zeros(shape)), (head, weights), *zip((P, Q), INTEGERS, strict=True)]
    [got] = evaluate_graph([dx], given, strict=True)
    np.testing.assert_array_equal(got, want)
