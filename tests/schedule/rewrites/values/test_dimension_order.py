"""Intermediate tensors with another dimension last: which are, in what order, and equal values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.rewrites.values.dimension_order import with_ordered_dimensions

D = "float64"
N = 70
X, Y = te.placeholder((N, N), D, name="x"), te.placeholder((N, N, 3), D, name="y")
SIZE = te.var("n")
Z = te.placeholder((SIZE, SIZE + 4), D, name="z")


def clamped(place: Any) -> Any:
    return te.max(te.min(place, N - 1), 0)


def shifts() -> Any:
    """The neighbours of each place, in a stage of their own."""
    return te.compute((N, N, 5), lambda i, j, k: te.exp(X[i, clamped(j + k - 2)]), name="t")


def summed(t: Any, shape: Sequence[Any], reduced: Sequence[Any], place: Callable[..., Any]) -> Any:
    """``y[axes] = Σ t[place(axes, summed)]``."""
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(reduced)]
    body = lambda *i: te.sum(t[tuple(place(*i, *axes))], axis=axes)  # noqa: E731
    return te.compute(shape, body, name="s")


def along(t: Any) -> Any:
    return summed(t, (N, N), (5,), lambda i, j, k: (i, j, k))


def chain() -> list[Any]:
    t = shifts()
    u = te.compute((N, N, 5), lambda i, j, k: t[i, j, k] * t[i, j, k], name="u")
    return [along(u)]


def readers_of(*makes: Callable[[Any], Any]) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        t = shifts()
        return [one(t) for one in makes]

    return make


def of_argument() -> list[Any]:
    t = te.compute((N, N, 3), lambda i, j, k: te.exp(Y[i, j, k]), name="t")
    return [summed(t, (N, N), (3,), lambda i, j, k: (i, j, k))]


def product() -> list[Any]:
    t = te.compute((N, N), lambda i, j: te.exp(X[i, j]), name="t")
    k = te.reduce_axis((0, N), "k")
    return [te.compute((N, N), lambda i, j: te.sum(t[i, k] * X[k, j], axis=k), name="y")]


def outer() -> list[Any]:
    """Two factors of one axis each, read in columns."""
    t = te.compute((N, N), lambda i, j: te.exp(X[0, i] - X[1, j]), name="t")
    return [te.compute((N, N), lambda i, j: t[j, i] * X[i, j], name="y")]


def transposed(t: Any) -> Any:
    return te.compute((N, 5, N), lambda i, k, j: t[j, i, k] * 2.0, name="y")


def harmonics() -> list[Any]:
    """An arccosine for each place, which each of the values reads."""
    t = te.compute((N, 9), lambda i, k: te.cos(te.acos(X[0, i]) * k.astype(D)), name="t")
    return [summed(t, (N,), (9,), lambda i, k: (i, k))]


def components(t: Any) -> Any:
    return summed(t, (5,), (N, N), lambda k, i, j: (i, j, k))


def rows(t: Any) -> Any:
    return te.compute((N, 5), lambda i, k: t[i, 0, k] + t[i, 1, k], name="y")


def symbolic() -> list[Any]:
    t = te.compute((SIZE, SIZE, 5), lambda i, j, k: te.exp(Z[i, j + k]), name="t")
    return [summed(t, (SIZE, SIZE), (5,), lambda i, j, k: (i, j, k))]


#: name → the outputs, and which dimensions the intermediate tensors have in which order
CASES: dict[str, tuple[Callable[[], list[Any]], list[list[int]]]] = {
    "a window last": (readers_of(along), [[0, 2, 1]]),
    "and a square of it": (chain, [[0, 2, 1], [0, 2, 1]]),
    "two readers": (readers_of(along, components), [[0, 2, 1]]),
    "a sum of all": (readers_of(components), [[0, 2, 1]]),
    "a border as well": (readers_of(along, rows), [[0, 2, 1]]),
    "symbolic": (symbolic, [[0, 2, 1]]),
    "columns": (outer, [[1, 0]]),
    "what it reads lies otherwise": (of_argument, [[0, 1, 2]]),
    "the first dimension": (readers_of(transposed), [[0, 1, 2]]),
    "a product": (product, [[0, 1]]),
    "a function along the other dimension": (harmonics, [[0, 1]]),
    "a border alone": (readers_of(rows), [[0, 1, 2]]),
    "a result": (lambda: [shifts()], []),
}


@pytest.mark.parametrize("name", CASES)
def test_order_and_values(name: str) -> None:
    make, orders = CASES[name]
    outputs = make()
    found = with_ordered_dimensions(outputs)
    before, after = (
        [op.output(0) for op in Graph(tensors).ops if str(op.name) in "tu"]
        for tensors in (outputs, found)
    )
    if orders:
        pairs = zip(before, orders, strict=True)
        want = [[str(shape_of(old)[n]) for n in order] for old, order in pairs]
        assert [list(map(str, shape_of(new))) for new in after] == want
    assert [list(map(str, shape_of(t))) for t in found] == [
        list(map(str, shape_of(t))) for t in outputs
    ]
    rng = np.random.default_rng(0)
    size = 11
    values = [(X, rng.uniform(-1, 1, size=(N, N))), (Y, rng.normal(size=(N, N, 3)))]
    values.append((Z, rng.normal(size=(size, size + 4))))
    want, got = (evaluate_graph(tensors, values, {SIZE: size}) for tensors in (outputs, found))
    for left, right in zip(want, got, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-14)
