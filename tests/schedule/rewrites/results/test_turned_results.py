"""Reductions over another output axis last: which are, and equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.results.turned_results import turned_columns, turned_results

F = "float64"
n, m = te.var("n"), te.var("m")
a, b = te.placeholder((n, 3), F, name="a"), te.placeholder((m, 3), F, name="b")


def pairs(shape: Any, body: Callable[..., Any]) -> Any:
    j = te.reduce_axis((0, m), "j")
    return te.compute(shape, lambda *i: te.sum(body(*i, j), axis=j), name="d")


#: name → the stage, and the place of each axis afterwards
CASES: dict[str, tuple[Callable[[], Any], list[int] | None]] = {
    "components of points": (
        lambda: pairs((n, 3), lambda i, c, j: (a[i, c] - b[j, c]) * b[j, 0]),
        [1, 0],
    ),
    "of two symbolic axes, the last one": (
        lambda: pairs((n, m, 2), lambda i, k, c, j: a[i, c] * b[k, 0] - b[j, c]),
        [0, 2, 1],
    ),
    "as many as a vector": (lambda: pairs((n, 4), lambda i, c, j: a[i, 0] * b[j, 0] * c), None),
    "a symbolic axis last": (lambda: pairs((3, n), lambda c, i, j: a[i, c] - b[j, c]), None),
    "no symbolic axis": (lambda: pairs((2, 3), lambda i, c, j: b[j, c] * b[j, i]), None),
}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_order_and_values(name: str, after: bool) -> None:
    make, order = CASES[name]
    stage = make()
    output = te.compute(stage.shape, lambda *i: te.exp(stage(*i)), name="y") if after else stage
    found = turned_results(Kernel(stage.op, output.op if after else None))
    if order is None:
        assert found is None
        return
    assert found is not None
    whole, reader = found
    shapes = [shape_of(t) for t in (stage, whole.root.output(0), reader.outputs[0])]
    assert [str(extent) for extent in shapes[1]] == [str(shapes[0][place]) for place in order]
    assert list(map(str, shapes[2])) == list(map(str, shapes[0]))
    rng = np.random.default_rng(0)
    values = [(a, rng.normal(size=(5, 3))), (b, rng.normal(size=(4, 3)))]
    want, got = evaluate_graph([output, reader.outputs[0]], values, {n: 5, m: 4})
    np.testing.assert_allclose(got, want, rtol=1e-14)


x = te.placeholder((12, 9, 40), F, name="x")


def columns(shape: Any, body: Callable[..., Any], extent: int = 12) -> Any:
    k = te.reduce_axis((0, extent), "k")
    return te.compute(shape, lambda *i: te.sum(body(*i, k), axis=k), name="d")


#: name → the stage, and the place of each axis afterwards
COLUMNS: dict[str, tuple[Callable[[], Any], list[int] | None]] = {
    "memory lies along the first axis": (
        lambda: columns((40, 9), lambda i, j, k: x[k, j, i] * 2.0),
        [1, 0],
    ),
    "in another order": (
        lambda: columns((9, 40, 2), lambda j, i, c, k: x[k, j, i] + x[0, j, i] * c),
        [0, 2, 1],
    ),
    "along the last axis": (lambda: columns((9, 40), lambda j, i, k: x[k, j, i]), None),
    "along two axes": (lambda: columns((40, 40), lambda i, j, k: x[k, 0, i] * x[k, 1, j]), None),
    "along what is reduced": (lambda: columns((9, 12), lambda j, n, k: x[n, j, k], 40), None),
    "too short": (lambda: columns((3, 9), lambda i, j, k: x[k, j, i]), None),
    "few terms for each result": (lambda: columns((40, 9), lambda i, j, k: x[k, j, i], 2), None),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_another_axis(name: str) -> None:
    make, order = COLUMNS[name]
    stage = make()
    found = turned_columns(Kernel(stage.op))
    if order is None:
        assert found is None
        return
    assert found is not None
    whole, reader = found
    shape = shape_of(stage)
    assert list(shape_of(whole.root.output(0))) == [shape[place] for place in order]
    values = [(x, np.random.default_rng(0).normal(size=(12, 9, 40)))]
    want, got = evaluate_graph([stage, reader.outputs[0]], values)
    np.testing.assert_allclose(got, want, rtol=1e-14)
