"""What slow functions of pairs of points are of: which parts are stages, equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import check_numbers
from tests.rules.parts.stored_parts import check_parts
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.rules.parts.pair_parts import pair_parts

N, M = 5, 4
x = te.placeholder((N, 3), "float64", name="x")
z = te.placeholder((M, 3), "float64", name="z")
w = te.placeholder((N, M), "float64", name="w")
c = te.placeholder((3,), "float64", name="c")
v = te.placeholder((40, 3), "float64", name="v")
ends = te.placeholder((M,), "int32", name="ends")


def square(i: Any, j: Any, parts: int = 3) -> Any:
    """Squares of differences of components, and a number that keeps them from zero."""
    total: Any = 0.5
    for k in range(parts):
        total = total + (x[i, k] - z[j, k]) * (x[i, k] - z[j, k])
    return total


def gathered(j: Any) -> Any:
    return sum((x[ends[j], k] - z[j, k]) * (x[ends[j], k] - z[j, k]) for k in range(3))


def if_loops(value: Any) -> Callable[[Any, Any], Any]:
    return lambda i, j: te.if_then_else(i < j, value(i, j), 0.0)


def if_data(value: Any) -> Callable[[Any, Any], Any]:
    return lambda i, j: te.if_then_else(w[i, j] > 1.5, value(i, j), 0.0)


def root(i: Any, j: Any) -> Any:
    return te.exp(te.sqrt(square(i, j)))


def quotient(i: Any, j: Any) -> Any:
    """Of two parts, the first with a slow function, of the components of one point."""
    return (te.cos(x[i, 0]) * x[i, 1] + x[i, 2]) / (x[i, 0] * x[i, 1] + x[i, 2])


def shared(i: Any) -> Any:
    return x[i, 0] * x[i, 1] + x[i, 2]


def early(i: Any, j: Any) -> Any:
    """Reads a row that there is not for each point of the loops."""
    return te.exp(x[i - 1, 0] * z[j, 0] + x[i - 1, 1] * z[j, 1])


#: the body over i < 5 and j < 4, and how many parts are stages
CASES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "a distance": (lambda i, j: 2.0 * te.exp(-square(i, j) * c[0]), 1),
    "two components": (lambda i, j: 2.0 * te.exp(-square(i, j, 2)), 1),
    "two functions of it": (lambda i, j: te.exp(-square(i, j)) - c[1] / square(i, j), 1),
    "a weight of each pair": (lambda i, j: w[i, j] * te.exp(-square(i, j) * w[i, j]), 1),
    "a function inside": (lambda i, j: 2.0 * root(i, j), 1),
    "chosen by loops": (if_loops(lambda i, j: c[0] / square(i, j)), 1),
    "a chosen function inside": (if_loops(root), 1),
    "chosen by data": (if_data(lambda i, j: c[0] / square(i, j)), 0),
    "rows that are not there": (
        lambda i, j: te.if_then_else(i > 0, early(te.max(i, 1), j), 0.0), 0
    ),
    "a quotient": (lambda i, j: 2.0 * quotient(i, j), 2),
    "what two functions share": (lambda i, j: te.exp(shared(i)) + te.sin(shared(i) * c[0]), 1),
    "what both parts share": (lambda i, j: te.exp(shared(i) * x[i, 0]) / (1.0 + shared(i)), 2),
    "chosen by another loop": (lambda i, j: te.if_then_else(j == 1, quotient(i, j), 0.0), 2),
    "chosen by no loop": (lambda i, j: te.if_then_else(j == M, quotient(i, j), 0.0), 1),
    "chosen by its own loop": (lambda i, j: te.if_then_else(i > 1, quotient(i, j), 0.0), 1),
    "neighbours": (
        lambda i, j: w[i, j] / (1.0 + te.exp(w[te.max(i - 1, 0), j] * w[i, te.max(j - 1, 0)])), 0
    ),
    "gathered": (lambda i, j: w[i, j] * te.exp(-gathered(j)), 1),
    "one component": (lambda i, j: 2.0 * te.exp(-square(i, j, 1)), 0),
    "the same of both": (lambda i, j: 2.0 * te.exp(x[i, 0] * c[0] + x[i, 1] * c[1]), 0),
    "places of all loops": (lambda i, j: 2.0 * te.exp(w[i, j] * w[i, j]), 0),
    "products only": (square, 0),
}  # fmt: skip


def summed(body: Callable[[Any, Any], Any], rows: bool = False) -> Any:
    """The sum of a body over both axes, or along the rows."""
    i, j = te.reduce_axis((0, N), "i"), te.reduce_axis((0, M), "j")
    if rows:
        return te.compute((N,), lambda i: te.sum(body(i, j), axis=j), name="y")
    return te.compute((), lambda: te.sum(body(i, j), axis=[i, j]), name="y")


def mapped(body: Callable[[Any, Any], Any]) -> Any:
    return te.compute((N, M), lambda i, j: body(i, j) * 3.0, name="y")


def data() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    floats = [(tensor, rng.uniform(1, 2, shape_of(tensor))) for tensor in (x, z, w, c)]
    return [*floats, (ends, np.array([3, 0, 4, 3], "int32"))]


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_parts_of_sums(name: str, rows: bool) -> None:
    body, parts = CASES[name]
    check_parts(summed(body, rows), pair_parts, "pair", parts, data())


@pytest.mark.parametrize("name", CASES)
def test_parts_of_maps(name: str) -> None:
    body, parts = CASES[name]
    check_parts(mapped(body), pair_parts, "pair", parts, data())


@pytest.mark.parametrize("make", [mapped, summed])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, make: Callable[[Any], Any]) -> None:
    check_numbers(make(CASES[name][0]), [x, z, w, c], values=dict(data()))


def energy(number: Any, body: Callable[[Any, Any], Any]) -> Any:
    i, j = te.reduce_axis((0, number), "i"), te.reduce_axis((0, number), "j")
    return te.compute((), lambda: te.sum(body(i, j), axis=[i, j]), name="energy")


def root_of_distance(v: Any) -> Callable[[Any, Any], Any]:
    def body(i: Any, j: Any) -> Any:
        squares = sum((v[i, k] - v[j, k]) * (v[i, k] - v[j, k]) for k in range(3))
        return te.if_then_else(i < j, te.sqrt(squares), 0.0)

    return body


def slope_of_roots(v: np.ndarray) -> np.ndarray:
    apart = v[:, None] - v[None]
    lengths = np.sqrt((apart**2).sum(-1)) + np.eye(len(v))
    return (apart / lengths[..., None]).sum(1)


def test_a_point_is_at_no_distance_from_itself() -> None:
    """The root of zero has no slope, and the loops do not choose it."""
    y = energy(N, root_of_distance(x))
    assert pair_parts(y.op) is not None
    [dx] = ad.differentiate(y, [x])
    values = dict(data())[x]
    [got] = evaluate_graph([dx], [(x, values)])
    np.testing.assert_allclose(got, slope_of_roots(values), rtol=1e-12)


@pytest.mark.parametrize("size", [0, 1, 4])
@pytest.mark.parametrize("both", [False, True])
def test_symbolic_numbers_of_points(size: int, both: bool) -> None:
    """No tensor has as many elements as the square of a number that is known at the call."""
    n = te.var("n")
    points = te.placeholder((n, 3), "float64", name="points")
    y = energy(n, root_of_distance(points)) if both else distances(points)
    assert (pair_parts(y.op) is None) == both
    [found] = ad.differentiate(y, [points])
    values = np.random.default_rng(0).normal(size=(size, 3))
    [got] = evaluate_graph([found], [(points, values), (z, np.ones((M, 3)))], {n: size})
    apart = values[:, None] - 1.0
    to_one = M * apart[:, 0] / np.sqrt((apart**2).sum(-1) + 1.0)
    np.testing.assert_allclose(got, slope_of_roots(values) if both else to_one, rtol=1e-12)


def distances(points: Any) -> Any:
    """The distances to a fixed number of points."""
    i, j = te.reduce_axis((0, points.shape[0]), "i"), te.reduce_axis((0, M), "j")

    def gap(k: int) -> Any:
        return points[i, k] - z[j, k]

    squares = gap(0) * gap(0) + gap(1) * gap(1) + gap(2) * gap(2) + 1.0
    return te.compute((), lambda: te.sum(te.sqrt(squares), axis=[i, j]), name="distances")


@pytest.mark.parametrize("name", ["two functions of it", "chosen by loops"])
def test_second_derivatives(name: str) -> None:
    y = summed(CASES[name][0])
    [dx] = ad.differentiate(y, [x])
    head = te.placeholder((N, 3), "float64", name="head")
    values = {**dict(data()), head: np.random.default_rng(1).normal(size=(N, 3))}
    k, m = te.reduce_axis((0, N), "k"), te.reduce_axis((0, 3), "m")
    along = te.compute((), lambda: te.sum(dx[k, m] * head[k, m], axis=[k, m]), name="along")
    check_numbers(along, [x, z, c], values=values)


def test_a_derivative_of_a_gradient_takes_as_long_as_a_few_gradients() -> None:
    """And not as long as one for each component of both points."""
    gap = lambda i, j, k: v[i, k] - v[j, k]  # noqa: E731
    square = lambda i, j: sum(gap(i, j, k) * gap(i, j, k) for k in range(3))  # noqa: E731
    y = energy(40, lambda i, j: te.exp(-square(i, j)))
    [dv] = ad.differentiate(y, [v])
    head = te.placeholder((40, 3), "float64", name="head")
    [ddv] = ad.differentiate(dv, [v], head)
    once, twice = (ad.estimate_cost([one]).iterations for one in (dv, ddv))
    assert twice < 6 * once


def test_only_sums_have_parts() -> None:
    k = te.reduce_axis((0, M), "k")
    y = te.compute((N,), lambda i: te.max(te.exp(square(i, k)), axis=k), name="y")
    assert pair_parts(y.op) is None
