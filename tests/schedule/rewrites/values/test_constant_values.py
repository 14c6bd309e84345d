"""`constant_values` by cases: which functions of loops alone become tables; values stay."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.rewrites.values.constant_values import with_constant_values

x = te.placeholder((8, 40), "float64", name="x")
w = te.placeholder((40,), "float64", name="w")
many = te.placeholder((100, 40), "float64", name="many")
n, m = te.reduce_axis((0, 40), "n"), te.reduce_axis((0, 8), "m")
size = te.var("size")
rows = te.placeholder((size, 40), "float64", name="rows")


def real(index):
    return index.astype("float64")


def transform(function, count=8):
    """``y[b, k] = Σ_n x[b, n]*function(n, k)``."""
    data = x if count == 8 else many
    return te.compute(
        (count, 30), lambda b, k: te.sum(data[b, n] * function(n, k), axis=n), name="y"
    )


def place(n):
    return te.floor(real(n) * 0.7 + 0.3).astype("int32")


def hat(n, k):
    """Not zero where ``n + 0.5`` is near to ``(k + 0.5)*4/3``."""
    return te.max(1.0 - te.abs(real(n) + 0.5 - (real(k) + 0.5) * (4 / 3)), te.const(0, "float64"))


def angle(n, k):
    return real(n) * real(k) * (2 * math.pi / 40)


#: what is computed, and the shapes of the tables
CASES = {
    "a transform": (lambda: transform(lambda n, k: te.cos(angle(n, k))), [(30, 40)]),
    "sine and cosine": (
        lambda: transform(lambda n, k: te.cos(angle(n, k)) + x[0, n] * te.sin(angle(n, k))),
        [(30, 40), (30, 40)],
    ),
    "a whole expression": (
        lambda: transform(lambda n, k: 0.5 - 0.5 * te.cos(angle(n, k))),
        [(30, 40)],
    ),
    "a product of functions of one axis each": (
        lambda: transform(lambda n, k: te.cos(real(n) * 0.1) * te.sin(real(k) * 0.2)),
        [(30,), (40,)],
    ),
    "at a quotient": (lambda: transform(lambda n, k: te.sin(real(k // 3) * real(n))), [(10, 40)]),
    "each value once": (
        lambda: te.compute((8, 40), lambda i, j: x[i, j] * te.log(real(i * 40 + j + 1))),
        [(8, 40)],
    ),
    "exponentials of one axis": (
        lambda: transform(lambda n, k: te.exp(real(n) * -0.1)),
        [(40,)],
    ),
    "exponentials of several axes": (lambda: transform(lambda n, k: te.exp(real(k - n))), []),
    "of data": (lambda: transform(lambda n, k: te.cos(w[n] * real(k))), []),
    "of a parameter": (lambda: transform(lambda n, k: te.cos(w[3] * real(k))), []),
    "of a symbolic size": (
        lambda: te.compute((size, 40), lambda i, j: rows[i, j] * te.sin(real(i) * real(j))),
        [],
    ),
    "of the other axis of a symbolic size": (
        lambda: te.compute((size, 40), lambda i, j: rows[i, j] * te.sin(real(j))),
        [(40,)],
    ),
    "weights of a resampling": (lambda: transform(hat, 100), [(30, 40)]),
    "more weights than data": (lambda: transform(hat, 8), []),
    "weights that one axis chooses": (
        lambda: transform(lambda n, k: te.if_then_else(n == 2, 0.5, te.if_then_else(n < 9, 2, 1))),
        [(40,)],
    ),
    "a mask": (lambda: transform(lambda n, k: te.if_then_else(n <= k, 1.0, 0.0), 100), []),
    "a polynomial of several axes": (
        lambda: transform(lambda n, k: (real(n) + 0.5 - real(k) * 0.25) / 3.0, 100),
        [],
    ),
    "places and conditions": (
        lambda: te.compute(
            (100,),
            lambda b: te.sum(
                te.if_then_else(te.floor(real(n) * 0.3) < 9.0, many[b, place(n)], 0.0), axis=n
            ),
        ),
        [],
    ),
    "weights without a sum": (
        lambda: te.compute((100, 40), lambda i, j: many[i, j] * (real(j) * 0.5 + 1.0)),
        [],
    ),
    "little work": (lambda: te.compute((3,), lambda i: x[i, 0] * te.sin(real(i))), []),
    "nothing read": (lambda: te.compute((8, 40), lambda i, j: te.sin(real(i) * real(j))), []),
    "a table beyond the cache": (
        lambda: te.compute(
            (4000, 40), lambda i, j: w[j] * te.sin(real(i) * real(j)), name="large"
        ),
        [],
    ),
    "a quotient by zero behind a guard": (
        lambda: te.compute(
            (8, 40),
            lambda i, j: te.if_then_else(j > 0, x[i, j] * te.sin(real(i % te.max(j, 0))), 0.0),
        ),
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_tables(name):
    make, shapes = CASES[name]
    y = make()
    [got] = with_constant_values([y])
    tables = [op for op in topological([got]) if op.name.endswith("_values")]
    assert sorted(shape_of(op.output(0)) for op in tables) == sorted(shapes)
    rng = np.random.default_rng(0)
    given = {x: rng.uniform(0.5, 1.5, (8, 40)), w: rng.uniform(0.5, 1.5, 40)}
    given[many] = rng.uniform(0.5, 1.5, (100, 40))
    given[rows] = rng.uniform(0.5, 1.5, (5, 40))
    [want], [found] = (evaluate_graph([one], given, {size: 5}) for one in (y, got))
    np.testing.assert_allclose(found, want, rtol=1e-13)


def test_equal_tables_are_one():
    """Also where the loops have other names."""
    first = transform(lambda n, k: te.cos(angle(n, k)))
    second = te.compute((30, 40), lambda a, c: x[0, c] * te.cos(angle(c, a)), name="z")
    tables = [op for op in topological(with_constant_values([first, second])) if "_val" in op.name]
    assert len(tables) == 1
