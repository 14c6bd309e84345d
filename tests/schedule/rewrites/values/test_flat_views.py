"""Reads at the digits of a place: which become reads of a flat view, and equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import shape_of, sources_of
from tvm_autodiff.schedule.nest.literals import FLOOR_DIVISIONS
from tvm_autodiff.schedule.rewrites.values.flat_views import with_flat_views

D = "float64"
X = te.placeholder((8, 16), D, name="x")
Y = te.placeholder((4, 5, 6), D, name="y")
W = te.placeholder((3,), D, name="w")
I = te.placeholder((7,), "int32", name="at")  # noqa: E741
ARRAYS = {
    tensor: np.random.default_rng(n).normal(size=tuple(map(int, tensor.shape)))
    for n, tensor in enumerate((X, Y, W))
}
ARRAYS[I] = np.array([0, 5, 9, 3, 21, 40, 39], "int32")


def windows(read: Callable[[Any], Any], count: int = 30) -> Any:
    """``s[t] = Σ_k w[k]*x[place(4t - k + 2)]``."""
    k = te.reduce_axis((0, 3), "k")
    return te.compute((count,), lambda t: te.sum(read(t * 4 - k + 2) * W[k], axis=k), name="s")


def rows_and_signal() -> Any:
    k = te.reduce_axis((0, 3), "k")
    return te.compute(
        (2, 10),
        lambda n, t: te.sum(X[(n * 64 + t * 6 + k) // 16, (n * 64 + t * 6 + k) % 16], axis=k),
        name="s",
    )


def by_data() -> Any:
    k = te.reduce_axis((0, 3), "k")
    return te.compute(
        (7,), lambda n: te.sum(X[(I[n] * 3 + k) // 16, (I[n] * 3 + k) % 16], axis=k), name="s"
    )


def narrow() -> Any:
    """Places of a type that does not hold them all."""
    size = tirx.const(16, "int8")
    return te.compute(
        (40,), lambda t: X[t.astype("int8") // size, t.astype("int8") % size] * W[0], name="s"
    )


def both_digits() -> Any:
    """A loop of which another tensor reads a digit."""
    return te.compute((80,), lambda q: X[q // 16, q % 16] * W[q // 16 % 3], name="s")


#: name → the stage, and the extents of the views that it reads
CASES: dict[str, tuple[Callable[[], Any], list[list[int]]]] = {
    "two digits": (lambda: windows(lambda q: X[q // 16, q % 16]), [[128]]),
    "three digits": (lambda: windows(lambda q: Y[q // 30, q // 6 % 5, q % 6], 29), [[120]]),
    "nested digits": (lambda: windows(lambda q: Y[q // 6 // 5, q // 6 % 5, q % 6], 29), [[120]]),
    "the last two": (lambda: windows(lambda q: Y[1, q // 6 % 5, q % 6], 7), [[4, 30]]),
    "beside a row": (lambda: windows(lambda q: X[2 + q // 16, q % 16], 20), [[128]]),
    "rows of a signal": (rows_and_signal, [[128]]),
    "at data": (by_data, [[128]]),
    "other digits": (lambda: windows(lambda q: X[q // 8 % 8, q % 8]), []),
    "of two places": (lambda: windows(lambda q: X[q // 16, (q + 1) % 16]), []),
    "digits that others read": (both_digits, []),
    "of a narrow type": (narrow, []),
    "no digits": (lambda: windows(lambda q: X[q % 8, q % 16]), []),
    "a copy": (lambda: te.compute((128,), lambda q: X[q // 16, q % 16], name="s"), []),
}


def divisions(stage: Any) -> int:
    return sum(op_name(n) in FLOOR_DIVISIONS for n in postorder(sources_of(stage.op)))


@pytest.mark.parametrize("name", CASES)
def test_views_and_values(name: str) -> None:
    make, extents = CASES[name]
    stage = make()
    [found] = with_flat_views([stage])
    views = [op.output(0) for op in Graph([found]).ops if str(op.name).endswith("_flat")]
    assert [list(shape_of(tensor)) for tensor in views] == extents
    assert (divisions(found) < divisions(stage)) == bool(extents)
    values = list(ARRAYS.items())
    [want], [got] = evaluate_graph([stage], values), evaluate_graph([found], values)
    np.testing.assert_allclose(got, want, rtol=1e-14)


def test_a_view_is_made_once() -> None:
    left, right = (windows(lambda q: X[q // 16, q % 16]) for _ in range(2))
    found = with_flat_views([left, right])
    assert sum(str(op.name) == "x_flat" for op in Graph(found).ops) == 1
