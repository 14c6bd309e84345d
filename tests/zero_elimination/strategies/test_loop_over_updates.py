"""Loops over updates, beside loops in numpy."""

from __future__ import annotations

import numpy as np
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff import differentiate, show


def test_a_loop_that_is_two_places_of_the_result_is_one_loop():
    """Rows are added whole, innermost; a diagonal has the same axis for its rows and columns."""
    n, h = te.var("n"), te.var("h")
    x = te.placeholder((n, h), "float64", name="x")

    def body(i, j):
        k = te.reduce_axis((0, te.max(j, h - j)), "k")
        inside = te.all(k < n, k < h)
        return te.min(te.if_then_else(inside, x[k, k], te.const(1.0, "float64")), axis=k)

    y = te.compute((h, h + 2), body, name="y")
    head = te.placeholder((h, h + 2), "float64", name="head")
    [dx] = differentiate(y, [x], head)
    assert "dx_updates[k, k] +=" in show(dx)
    rng = np.random.default_rng(0)
    for rows, columns in ((4, 3), (2, 5), (3, 1)):
        values, weights = rng.standard_normal((rows, columns)), rng.random((columns, columns + 2))
        want = np.zeros((rows, columns))
        for place in np.ndindex(*weights.shape):
            count = max(place[1], columns - place[1])
            row = [values[k, k] if k < min(rows, columns) else 1.0 for k in range(count)]
            k = int(np.argmin(row))
            if k < min(rows, columns):
                want[k, k] += weights[place]
        given = [(x, values), (head, weights)]
        [got] = evaluate_graph([dx], given, {n: rows, h: columns}, strict=True)
        np.testing.assert_allclose(got, want, rtol=1e-14)
