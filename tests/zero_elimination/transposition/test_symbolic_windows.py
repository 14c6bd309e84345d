"""Reductions over windows that symbolic sizes bound: prefixes, suffixes, adaptive windows.

Values are those of numpy, gradients its differences, in exact arithmetic: no case has a square of
an element that is a factor of another one.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff import build, differentiate, estimate_cost
from tvm_autodiff.expr.rewrite import variables_of

D = "float64"
SIZES = ((5, 4), (1, 1), (3, 7), (7, 2), (0, 2))


class Symbols:
    """Sizes of one dtype, and tensors over them."""

    def __init__(self, dtype: str) -> None:
        self.n, self.m = te.var("n", dtype), te.var("m", dtype)
        self.x = te.placeholder((self.n,), D, name="x")
        self.z = te.placeholder((self.n, self.m), D, name="z")
        self.rows = te.placeholder((self.n,), "int32", name="rows")

    def number(self, value):
        return te.const(value, str(self.n.ty))


def windows(shape, bounds, body):
    """A sum over one axis for each pair of bounds at the axes of the output."""

    def stage(*i):
        axes = [te.reduce_axis(pair, f"k{place}") for place, pair in enumerate(bounds(*i))]
        return te.sum(body(*i, *axes), axis=axes)

    return te.compute(shape, stage, name="y")


def nested(s):
    def stage(i):
        k = te.reduce_axis((s.number(0), i + 1), "k")
        m = te.reduce_axis((s.number(0), k.var + 1), "m")
        return te.sum(s.x[k] * s.x[m], axis=[k, m])

    return te.compute((s.n,), stage, name="y")


def ceiling(a, b):
    return -(-a // b)


#: name → (the stage, an element of it in numpy)
CASES = {
    "prefixes": (
        lambda s: windows((s.n,), lambda i: [(s.number(0), i + 1)], lambda i, k: s.x[k]),
        lambda x, n, m, i: x[: i + 1].sum(),
    ),
    "suffixes": (
        lambda s: windows((s.n,), lambda i: [(i, s.n)], lambda i, k: s.x[k] * s.x[k]),
        lambda x, n, m, i: (x[i:] ** 2).sum(),
    ),
    "behind a place": (
        lambda s: windows(
            (s.n,), lambda i: [(te.max(i - 2, s.number(0)), i + 1)], lambda i, k: s.x[k] * s.x[k]
        ),
        lambda x, n, m, i: (x[max(i - 2, 0) : i + 1] ** 2).sum(),
    ),
    "around a place": (
        lambda s: windows(
            (s.n,),
            lambda i: [(te.max(i - s.m, s.number(0)), te.min(i + s.m + 1, s.n))],
            lambda i, k: s.x[k],
        ),
        lambda x, n, m, i: x[max(i - m, 0) : i + m + 1].sum(),
    ),
    "up to nothing": (
        lambda s: windows((s.n,), lambda i: [(-i, s.number(1))], lambda i, k: s.x[i + k] * s.x[-k]),
        lambda x, n, m, i: sum(x[i - k] * x[k] for k in range(i + 1)),
    ),
    "adaptive, of three": (
        lambda s: windows(
            (s.number(3),),
            lambda i: [(i * s.n // 3, ((i + 1) * s.n + 2) // 3)],
            lambda i, k: s.x[k],
        ),
        lambda x, n, m, i: x[i * n // 3 : ceiling((i + 1) * n, 3)].sum(),
    ),
    "adaptive": (
        lambda s: windows(
            (s.m,),
            lambda i: [(i * s.n // s.m, ((i + 1) * s.n + s.m - 1) // s.m)],
            lambda i, k: s.x[k] * s.x[k],
        ),
        lambda x, n, m, i: (x[i * n // m : ceiling((i + 1) * n, m)] ** 2).sum(),
    ),
    "reads that do not follow": (
        lambda s: windows((s.n,), lambda i: [(i, s.n)], lambda i, k: s.x[i] * s.x[0]),
        lambda x, n, m, i: (n - i) * x[i] * x[0],
    ),
    "two windows": (
        lambda s: windows(
            (s.n,), lambda i: [(s.number(0), i + 1), (i, s.n)], lambda i, k, m: s.x[k] * s.x[m]
        ),
        lambda x, n, m, i: x[: i + 1].sum() * x[i:].sum(),
    ),
    "a window that follows a window": (
        nested,
        lambda x, n, m, i: sum(x[k] * x[: k + 1].sum() for k in range(i + 1)),
    ),
    "rows and columns": (
        lambda s: windows(
            (s.n, s.m), lambda i, j: [(s.number(0), i + 1), (j, s.m)], lambda i, j, k, m: s.z[k, m]
        ),
        lambda x, n, m, i, j: x[: i + 1, j:].sum(),
    ),
    "as long as the longer part": (
        lambda s: windows(
            (s.n,), lambda i: [(s.number(0), te.max(i, s.n - i))], lambda i, k: s.x[i] * s.x[k]
        ),
        lambda x, n, m, i: x[i] * x[: max(i, n - i)].sum(),
    ),
    "as long as the longer part of a half": (
        lambda s: windows(
            (s.n,), lambda i: [(s.number(0), te.max(i, s.n // 2 - i))], lambda i, k: s.x[i]
        ),
        lambda x, n, m, i: max(i, n // 2 - i) * x[i],
    ),
    "as long as a square": (
        lambda s: windows((s.n,), lambda i: [(s.number(0), i * i)], lambda i, k: s.x[i]),
        lambda x, n, m, i: i * i * x[i],
    ),
    "as long as a choice": (
        lambda s: windows(
            (s.n,), lambda i: [(s.number(0), tirx.Select(i < s.m, i, s.n - i))], lambda i, k: s.x[i]
        ),
        lambda x, n, m, i: (i if i < m else n - i) * x[i],
    ),
    "at rows that are data": (
        lambda s: windows(
            (s.n,), lambda i: [(s.number(0), te.min(i * i, s.m))], lambda i, k: s.z[s.rows[i], k]
        ),
        lambda x, n, m, i: x[n - 1 - i, : min(i * i, m)].sum(),
    ),
}  # fmt: skip


def reference(name, array, n, m, shape):
    element = CASES[name][1]
    found = np.zeros(shape)
    for place in np.ndindex(*shape):
        found[place] = element(array, n, m, *place)
    return found


def slopes(function, array):
    """The derivative of a function of degree two at most, places of its value first."""
    found = np.zeros((*function(array).shape, *array.shape))
    for place in np.ndindex(array.shape):
        ends = []
        for step in (1, -1):
            moved = array.copy()
            moved[place] += step
            ends.append(function(moved))
        found[(..., *place)] = (ends[0] - ends[1]) / 2
    return found


class Problem:
    def __init__(self, name, dtype="int32"):
        self.name, self.sizes = name, Symbols(dtype)
        self.y = CASES[name][0](self.sizes)
        read = [*self.y.op.input_tensors]
        self.wanted = self.sizes.z if self.sizes.z in read else self.sizes.x
        self.head = te.placeholder(self.y.shape, D, name="head")

    def at(self, n, m):
        """Arrays of the wanted tensor, the rows, the cotangent; value and derivative."""
        rng = np.random.default_rng([n, m])
        values = {self.sizes.n: n, self.sizes.m: m}
        shape = tuple(values.get(dim, dim) for dim in self.y.shape)
        array = rng.integers(-3, 4, tuple(values[dim] for dim in self.wanted.shape)).astype(D)
        weights = rng.integers(-3, 4, tuple(map(int, shape))).astype(D)

        def function(x):
            return reference(self.name, x, n, m, weights.shape)

        rows = np.arange(n)[::-1].astype("int32")
        given = [(self.wanted, array), (self.sizes.rows, rows), (self.head, weights)]
        return given, values, function(array), slopes(function, array)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype):
    problem = Problem(name, dtype)
    [adjoint] = differentiate(problem.y, [problem.wanted], problem.head)
    for n, m in SIZES:
        given, values, value, slope = problem.at(n, m)
        found, got = evaluate_graph([problem.y, adjoint], given, values, strict=True)
        np.testing.assert_array_equal(found, value)
        weights = given[-1][1]
        np.testing.assert_array_equal(got, np.tensordot(weights, slope, axes=weights.ndim))


@pytest.mark.parametrize("name", CASES)
def test_jacobians(name):
    problem = Problem(name)
    [jacobian] = differentiate(problem.y, [problem.wanted])
    for n, m in SIZES:
        given, values, _, slope = problem.at(n, m)
        [got] = evaluate_graph([jacobian], given, values, strict=True)
        np.testing.assert_array_equal(got, slope)


@pytest.mark.parametrize(
    "name", ["suffixes", "around a place", "adaptive", "two windows", "at rows that are data"]
)
def test_built(name):
    problem = Problem(name)
    [adjoint] = differentiate(problem.y, [problem.wanted], problem.head)
    inputs = [problem.wanted, problem.sizes.z, problem.sizes.rows, problem.head]
    inputs = inputs[1:] if problem.wanted is problem.sizes.z else inputs
    function = build(inputs, [adjoint], cache=False)
    for n, m in SIZES:
        given, _, _, slope = problem.at(n, m)
        known = {tensor.op.name: array for tensor, array in given}
        arrays = [known.get(tensor.op.name, np.zeros((n, m))) for tensor in inputs]
        [got] = function(*arrays)
        weights = known["head"]
        want = np.tensordot(weights, slope, axes=weights.ndim)
        np.testing.assert_array_equal(np.asarray(got), want)


def test_sizes_bound_the_axes_of_a_gradient():
    """What sizes bound is gathered, what they do not is one loop over the points."""
    ways = {}
    for name in ("suffixes", "adaptive", "as long as a square"):
        problem = Problem(name)
        ways[name] = differentiate(problem.y, problem.wanted, problem.head).explain()
    assert "loop over updates" not in ways["suffixes"] + ways["adaptive"]
    assert "loop over updates" in ways["as long as a square"]


def test_costs_are_those_of_the_sizes():
    problem = Problem("suffixes")
    cost = estimate_cost(problem.y, {problem.sizes.n: 6})
    assert cost.iterations == 6 * 7 // 2
    unknown = estimate_cost(problem.y).iterations
    assert {var.name for var in variables_of(unknown)} == {"n", "k0"}


def test_dimensions_made_from_extents_are_never_negative():
    """Windows of half of the rows, read at data: below two rows there are none of them."""
    s = Symbols("int32")
    place = te.placeholder((s.m,), "int32", name="place")
    y = windows((s.n,), lambda i: [(0, i // 2)], lambda i, k: s.x[place[k]] * s.x[i])
    head = te.placeholder((s.n,), D, name="head")
    [adjoint] = differentiate(y, [s.x], head)
    for n in (0, 1, 2, 6):
        x, weights, places = np.arange(1.0, n + 1), np.arange(2.0, n + 2), np.arange(n) * 2 % 3
        want = np.zeros(n)
        for i in range(n):
            for k in range(i // 2):
                want[places[k]] += weights[i] * x[i]
                want[i] += weights[i] * x[places[k]]
        given = [(s.x, x), (place, places.astype("int32")), (head, weights)]
        [got] = evaluate_graph([adjoint], given, {s.n: n, s.m: n}, strict=True)
        np.testing.assert_array_equal(got, want)


def test_products_over_less_than_nothing_are_one():
    s = Symbols("int32")
    times = te.comm_reducer(lambda a, b: a * b, lambda t: te.const(1, t), name="times")
    k = te.reduce_axis((0, s.n - 1), "k")
    y = te.compute((s.m,), lambda i: times(s.z[k, i], axis=k), name="y")
    head = te.placeholder((s.m,), D, name="head")
    [adjoint] = differentiate(y, [s.z], head)
    for n in (0, 1, 4):
        z, weights = np.arange(1.0, 2 * n + 1).reshape(n, 2), np.array([3.0, 5.0])
        given = [(s.z, z), (head, weights)]
        value, got = evaluate_graph([y, adjoint], given, {s.n: n, s.m: 2}, strict=True)
        np.testing.assert_array_equal(value, z[: max(n - 1, 0)].prod(axis=0))
        want = np.zeros((n, 2))
        for row in range(n - 1):
            want[row] = weights * np.delete(z[: n - 1], row, axis=0).prod(axis=0)
        np.testing.assert_array_equal(got, want)
