"""Sums into flat places: over which digits they run, and equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import shape_of, sources_of
from tvm_autodiff.schedule.nest.literals import FLOOR_DIVISIONS
from tvm_autodiff.schedule.rewrites.values.digit_results import with_digit_results

D = "float64"
X, Y = te.placeholder((9, 12), D, name="x"), te.placeholder((9, 12), D, name="y")
ARRAYS = {
    tensor: np.random.default_rng(n).normal(size=(9, 12)) for n, tensor in enumerate((X, Y))
}


def summed(body: Callable[[Any, Any], Any], count: int = 24, terms: int = 4) -> Any:
    k = te.reduce_axis((0, terms), "k")
    return te.compute((count,), lambda q: te.sum(body(q, k), axis=k), name="s")


def window(q: Any, k: Any) -> Any:
    """Over an image of 3 by 8 in a larger one."""
    return te.if_then_else(q % 8 >= k, X[q // 8, k] * Y[q // 8 + k, q % 8], 0.0)


def relu(s: Any) -> Any:
    return te.compute(s.shape, lambda q: te.max(s[q], 0.0), name="relu")


def read_twice(s: Any) -> list[Any]:
    return [relu(s), te.compute(s.shape, lambda q: s[23 - q], name="turned")]


def maximum() -> Any:
    k = te.reduce_axis((0, 4), "k")
    return te.compute((24,), lambda q: te.max(X[q // 8, k] + Y[k, q % 8], axis=k), name="s")


def three(q: Any, k: Any) -> Any:
    return X[q // 8, q // 2 % 4 + k] * Y[k, q % 2]


def in_turns(q: Any, k: Any) -> Any:
    return X[q // 3, k] * Y[k, q % 3]


def shifted(q: Any, k: Any) -> Any:
    return X[(q + 1) // 2, k] * Y[k, (q + 1) % 2]


#: name → the outputs, and the extents of the sum over digits
CASES: dict[str, tuple[Callable[[], list[Any]], list[int] | None]] = {
    "an image": (lambda: [summed(window)], [3, 8]),
    "three digits": (lambda: [summed(three)], [3, 4, 2]),
    "a maximum": (lambda: [maximum()], [3, 8]),
    "ended by its reader": (lambda: [relu(summed(window))], None),
    "three digits, ended": (lambda: [relu(summed(three))], [3, 4, 2]),
    "with other readers": (lambda: read_twice(summed(window)), [3, 8]),
    "in turns": (lambda: [summed(in_turns)], None),
    "long ones in turns": (lambda: [summed(in_turns, terms=9)], [8, 3]),
    "long ones in turns, ended": (lambda: [relu(summed(in_turns, terms=9))], [8, 3]),
    "digits that wrap around": (
        lambda: [summed(lambda q, k: X[q // 8, k] * Y[k, (q % 8 + k) % 8])],
        None,
    ),
    "no multiple": (lambda: [summed(window, 23)], None),
    "after a shift": (lambda: [summed(lambda q, k: X[(q + 1) // 6, k], 23)], None),
    "a shift that digits decide": (lambda: [summed(shifted, 12, terms=9)], [6, 2]),
    "a shift that they do not": (
        lambda: [summed(lambda q, k: X[(q + 1) // 3, k], terms=9)],
        None,
    ),
    "no digits": (lambda: [summed(lambda q, k: X[q, k], 9)], None),
}


@pytest.mark.parametrize("name", CASES)
def test_digits_and_values(name: str) -> None:
    make, extents = CASES[name]
    outputs = make()
    found = with_digit_results(outputs)
    sums = [op.output(0) for op in Graph(found).ops if str(op.name) == "s_digits"]
    assert [list(shape_of(tensor)) for tensor in sums] == ([] if extents is None else [extents])
    for tensor in sums:
        nodes = postorder(sources_of(tensor.op))
        assert not any(op_name(node) in FLOOR_DIVISIONS for node in nodes)
    values = list(ARRAYS.items())
    want, got = evaluate_graph(outputs, values), evaluate_graph(found, values)
    for left, right in zip(want, got, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-14)
