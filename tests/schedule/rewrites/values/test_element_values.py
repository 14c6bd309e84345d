"""`element_values` by cases: which functions are stored for each element; values stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.rewrites.values.element_values import with_element_values

N = 2000
x = te.placeholder((N + 4,), "float64", name="x")
z = te.placeholder((N + 4,), "float64", name="z")
w = te.placeholder((3,), "float64", name="w")
at = te.placeholder((N,), "int32", name="at")
plane = te.placeholder((40, 50), "float64", name="plane")
rates = te.placeholder((40,), "float64", name="rates")
few = te.placeholder((30,), "float64", name="few")
c = te.reduce_axis((0, 46), "c")
k, r = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, N), "r")


def vector(body):
    return te.compute((N,), body, name="y")


def bent(value):
    return tirx.Select(value > 1.0, te.exp(value * w[1]), tirx.const(0.5, "float64"))


def guarded(i):
    inside = te.all(i >= 2, i < N - 2)
    return te.if_then_else(inside, te.exp(x[i - 2]) * te.exp(x[i + 2]), tirx.const(0.0, "float64"))


def beyond(i, j, c):
    """The other side of the branch is for rows that the tensor does not have."""
    return te.exp(te.if_then_else(j < 40, plane[j, te.max(c - j, 0)], 0.5))


#: a stage, and the shapes of what is stored
CASES = {
    "a branch for places outside": (lambda: te.compute((9, 50, 50), beyond, name="y"), []),
    "two places": (lambda: vector(lambda i: te.exp(x[i]) + te.exp(x[i + 1])), [(N + 4,)]),
    "two functions": (
        lambda: vector(lambda i: te.exp(x[i]) * te.exp(x[i + 1]) + te.sin(x[i]) * te.sin(x[i + 2])),
        [(N + 4,), (N + 4,)],
    ),
    "a function of a function": (
        lambda: vector(lambda i: te.log(te.exp(x[i]) + 1.0) - te.log(te.exp(x[i + 3]) + 1.0)),
        [(N + 4,)],
    ),
    "with a parameter and a choice": (
        lambda: vector(lambda i: bent(x[i]) + bent(x[i + 1])),
        [(N + 4,)],
    ),
    "a window": (
        lambda: te.compute((N,), lambda i: te.sum(te.exp(x[i + k]), axis=k), name="y"),
        [(N + 4,)],
    ),
    "a plane": (
        lambda: te.compute(
            (39, 49), lambda i, j: te.tanh(plane[i, j]) * te.tanh(plane[i + 1, j + 1]), name="y"
        ),
        [(40, 50)],
    ),
    "under a condition": (lambda: vector(guarded), [(N + 4,)]),
    "with a parameter for each row": (
        lambda: te.compute(
            (40,), lambda i: te.sum(te.exp(rates[i] * plane[i, c + k]) * plane[i, c], axis=[c, k])
        ),
        [(40, 50)],
    ),
    "with its row and column": (
        lambda: te.compute(
            (40, 46), lambda i, j: te.sum(te.sin(plane[i, j + k] * (i + 1)) * rates[i], axis=k)
        ),
        [(40, 50)],
    ),
    "with a parameter for some rows": (
        lambda: te.compute(
            (30, 46), lambda i, j: te.sum(te.exp(few[i] * plane[i, j + k]), axis=k)
        ),
        [],
    ),
    "with what is read beside it": (
        lambda: te.compute(
            (40, 45), lambda i, j: te.sum(te.exp(plane[i, j + k] * plane[i, j]), axis=k)
        ),
        [],
    ),
    "one place": (lambda: vector(lambda i: te.exp(x[i]) * te.exp(x[i])), []),
    "each element once": (
        lambda: te.compute((N // 2,), lambda i: te.exp(x[2 * i]) + te.exp(x[2 * i + 1])),
        [],
    ),
    "two functions at two places": (lambda: vector(lambda i: te.exp(x[i]) + te.sin(x[i + 1])), []),
    "two tensors": (lambda: vector(lambda i: te.exp(x[i] * z[i]) + te.exp(x[i + 1] * z[i])), []),
    "of the loop": (
        lambda: vector(lambda i: te.exp(x[i] * i) + te.exp(x[i + 1] * i)),
        [],
    ),
    "at what data say": (lambda: vector(lambda i: te.exp(x[at[i]]) + te.exp(x[at[i] + 1])), []),
    "an operand of a product": (
        lambda: te.compute((40,), lambda i: te.sum(te.exp(x[r]) * plane[i, r % 50], axis=r)),
        [],
    ),
    "little work": (lambda: te.compute((2,), lambda i: te.exp(x[i]) + te.exp(x[i + 1])), []),
    "without a function": (lambda: vector(lambda i: x[i] * x[i] + x[i + 1] * x[i + 1]), []),
}


def arrays():
    rng = np.random.default_rng(0)
    floats = (x, z, w, plane, rates, few)
    given = {t: rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in floats}
    return {**given, at: rng.integers(0, N, N).astype("int32")}


@pytest.mark.parametrize("name", CASES)
def test_what_is_stored(name):
    make, shapes = CASES[name]
    y = make()
    [got] = with_element_values([y])
    stored = [op for op in topological([got]) if op.name.endswith("_values")]
    assert sorted(shape_of(op.output(0)) for op in stored) == sorted(shapes)
    [want], [found] = evaluate_graph([y], arrays()), evaluate_graph([got], arrays())
    np.testing.assert_allclose(found, want, rtol=1e-13)


def test_all_stages_read_it():
    """Another stage has the function at one place, and reads what is read of a changed stage."""
    first = vector(lambda i: te.exp(x[i]) + te.exp(x[i + 1]))
    second = te.compute((N,), lambda i: te.exp(x[i]) * first[i], name="second")
    third = te.compute((N - 1,), lambda i: te.sin(second[i]) + te.sin(second[i + 1]), name="third")
    outputs = with_element_values([second, third])
    names = [op.name for op in topological(outputs) if op.name.endswith("_values")]
    assert names == ["x_values", "second_values"]
    wanted, found = (evaluate_graph(some, arrays()) for some in ([second, third], outputs))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize("size", [5, 300])
def test_compiled_with_its_gradient(size):
    """A function of a symbolic number of elements; the gradient reads the stored values."""
    n = te.var("n")
    given = te.placeholder((n,), "float64", name="given")
    y = te.compute((n - 2,), lambda i: te.log(sum(te.exp(given[i + s]) for s in range(3))))
    head = te.placeholder((n - 2,), "float64", name="head")
    built = ad.build([given, head], [y, *ad.differentiate(y, [given], head)], cache=False)
    rng = np.random.default_rng(1)
    a, h = rng.standard_normal(size), rng.standard_normal(size - 2)
    value, gradient = built(a, h)
    sums = np.exp(a[:-2]) + np.exp(a[1:-1]) + np.exp(a[2:])
    want = np.zeros(size)
    for shift in range(3):
        want[shift : size - 2 + shift] += h / sums * np.exp(a[shift : size - 2 + shift])
    np.testing.assert_allclose(value, np.log(sums), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gradient, want, rtol=1e-12)
