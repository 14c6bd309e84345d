"""Expensive functions of few distinct values become stages; others stay where they are."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.costly import is_expensive
from tvm_autodiff.expr.rewrite import contains
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import shape_of, sources_of
from tvm_autodiff.schedule.rewrites.values.distinct_values import with_distinct_values

x = te.placeholder((32, 24), "float64", name="x")
b = te.placeholder((8, 32, 24), "float64", name="b")
w = te.placeholder((12,), "float64", name="w")
k = te.reduce_axis((0, 24), "k")
q = te.reduce_axis((0, 25), "q")
r = te.reduce_axis((0, 32), "r")


def encoded(n, t, j):
    angle = t.astype("float64") * w[j // 2]
    return b[n, t, j] + te.if_then_else(j % 2 == 0, te.sin(angle), te.cos(angle))


def of_quotients(i, j):
    level = te.power(tirx.const(2.0, "float64"), (j % 12 // 2).astype("float64"))
    return te.sin(x[i, j // 12] * level)


def guarded(n, t, j):  # w has 12 elements
    return b[n, t, j] * te.if_then_else(j < 12, te.exp(w[j]), 0.5)


#: the stage, and the shapes of what is taken out of it
CASES = {
    "batch": (lambda: te.compute((8, 32, 24), encoded), [(32, 12), (32, 12)]),
    "quotients": (lambda: te.compute((32, 24), of_quotients), [(32, 2, 6)]),
    "roots of groups": (
        lambda: te.compute((8, 32, 24), lambda n, t, j: b[n, t, j] * te.rsqrt(x[n, j // 4])),
        [(8, 6)],
    ),
    "data of other loops": (
        lambda: te.compute((8, 32, 24), lambda n, t, j: b[n, t, j] * te.exp(x[t, j])),
        [(32, 24)],
    ),
    "data of all loops": (
        lambda: te.compute((8, 32, 24), lambda n, t, j: x[t, j] * te.exp(b[n, t, j])),
        [],
    ),
    "an index alone, in a sum": (
        lambda: te.compute(
            (8, 32),
            lambda n, f: te.sum(b[n, 0, k] * te.cos((k * f).astype("float64")), axis=k),
        ),
        [(32, 24)],
    ),
    "a parameter of a row and a summed place": (
        lambda: te.compute(
            (12, 32),
            lambda n, t: te.sum(x[t, k] * te.cos(w[n] * k.astype("float64")), axis=k),
        ),
        [(12, 24)],
    ),
    "of all results and a summed place": (
        lambda: te.compute(
            (12,), lambda n: te.sum(x[r, k] * te.cos(w[n] * k.astype("float64")), axis=[r, k])
        ),
        [(12, 24)],
    ),
    # an inner loop does not change it: nothing is computed twice
    "prefix": (lambda: te.compute((8, 32, 24), lambda n, t, j: te.exp(b[n, t, 0]) + x[t, j]), []),
    "every element": (lambda: te.compute((8, 32, 24), lambda n, t, j: te.exp(b[n, t, j])), []),
    "little work": (lambda: te.compute((2, 4), lambda i, j: te.exp(w[j]) * x[i, j]), []),
    "an operand of a sum": (
        lambda: te.compute((8, 32), lambda n, t: te.sum(b[n, t, k] * te.exp(x[t, k]), axis=k)),
        [],
    ),
    "a parameter, in a sum": (
        lambda: te.compute(
            (8, 32),
            lambda n, t: te.sum(b[n, t, k] * te.sin(w[3] * (t - k).astype("float64")), axis=k),
        ),
        [(32, 24)],
    ),
    # 32x24 elements are read, and 2x32 written
    "more than the largest tensor": (
        lambda: te.compute(
            (2, 32),
            lambda n, t: te.sum(x[t, q // 2] * te.sin((t - q).astype("float64")) * n, axis=q),
        ),
        [(32, 25)],
    ),
    "more than what is read and written": (
        lambda: te.compute(
            (2,),
            lambda n: te.sum(n * te.sin(w[3] * (r * 24 + k).astype("float64")), axis=[r, k]),
        ),
        [],
    ),
    "a number": (lambda: te.compute((8, 32, 24), lambda n, t, j: b[n, t, j] * te.exp(w[3])), [()]),
    "a guard": (lambda: te.compute((8, 32, 24), guarded), []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_taken_out(name):
    make, shapes = CASES[name]
    y = make()
    [got] = with_distinct_values([y])
    stages = [op for op in topological([got]) if op.name.endswith("_values")]
    assert sorted(shape_of(op.output(0)) for op in stages) == sorted(shapes)
    rng = np.random.default_rng(0)
    given = {t: rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in (x, b, w)}
    [want], [found] = evaluate_graph([y], given), evaluate_graph([got], given)
    np.testing.assert_allclose(found, want, rtol=1e-13)


def test_values_of_so_many_places_as_a_call_has():
    n = te.var("n")
    rows = te.placeholder((8, n, 24), "float64", name="rows")

    def body(i, t, j):
        return rows[i, t, j] * te.cos(t.astype("float64") * w[j // 2])

    y = te.compute((8, n, 24), body, name="y")
    [got] = with_distinct_values([y])
    [stage] = [op for op in topological([got]) if op.name.endswith("_values")]
    assert [str(extent) for extent in shape_of(stage.output(0))] == ["n", "12"]
    rng = np.random.default_rng(0)
    given = {rows: rng.random((8, 5, 24)), w: rng.random(12)}
    [want], [found] = evaluate_graph([y], given, {n: 5}), evaluate_graph([got], given, {n: 5})
    np.testing.assert_allclose(found, want, rtol=1e-13)


def test_equal_values_are_one_stage():
    y = te.compute((8, 32, 24), encoded, name="y")
    z = te.compute((8, 32, 24), lambda n, t, j: encoded(n, t, j) * b[n, 0, 0], name="z")
    outputs = with_distinct_values([y, z])
    names = [op.name for op in topological(outputs) if op.name.endswith("_values")]
    assert names == ["y_values"] * 2  # the sine and the cosine


def test_compiled_with_its_gradient():
    y = te.compute((32, 24), of_quotients, name="y")
    head = te.placeholder((32, 24), "float64", name="head")
    [dx] = ad.differentiate(y, [x], head)
    rng = np.random.default_rng(1)
    a, h = rng.standard_normal((32, 24)), rng.standard_normal((32, 24))
    value, gradient = ad.build([x, head], [y, dx], cache=False)(a, h)
    level = 2.0 ** np.arange(6).repeat(2)
    angle = a[:, :2, None] * level
    np.testing.assert_allclose(value, np.sin(angle).reshape(32, 24), rtol=1e-13)
    want = np.zeros_like(a)
    want[:, :2] = (h.reshape(32, 2, 12) * np.cos(angle) * level).sum(2)
    np.testing.assert_allclose(gradient, want, rtol=1e-12, atol=1e-13)


def test_a_gradient_reads_the_values_of_the_value():
    """Also behind the stage of a factor that several terms share."""

    points = te.placeholder((128, 4), "float64", name="points")

    def both(i, j):
        level = te.power(tirx.const(2.0, "float64"), (j % 12 // 2).astype("float64"))
        angle = points[i, j // 12] * level
        return te.if_then_else(j % 2 == 0, te.sin(angle), te.cos(angle))

    y = te.compute((128, 48), both, name="y")
    head = te.placeholder((128, 48), "float64", name="head")
    outputs = [y, *ad.differentiate(y, [points], head)]
    found = with_distinct_values(outputs)
    assert not contains(sources_of(found[1].op), is_expensive)
    rng = np.random.default_rng(2)
    given = {t: rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in (points, head)}
    for new, old in zip(*(evaluate_graph(some, given) for some in (found, outputs)), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-13)
