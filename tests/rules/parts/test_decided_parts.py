"""Numbers by which stages decide: which are stages of their own, and equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tests.gradient_case import check_numbers
from tvm_autodiff.graph.graph import tensors_read_by
from tvm_autodiff.rules.parts.decided_parts import decided_parts

x = te.placeholder((6, 4), "float64", name="x")
n = te.placeholder((6,), "float64", name="n")


def computed(name: str, body: Callable[[Any], Any]) -> Any:
    return te.compute((6, 4), lambda i, j: body(x[i, j]), name=name)


q, m = computed("q", lambda v: v * v + 1.0), computed("m", lambda v: v * 0.5)


def variance(i: Any, j: Any) -> Any:
    return q[i, j] / n[i] - m[i, j] * m[i, j]


def select(condition: Any, value: Any) -> Any:
    return tirx.Select(condition, value, te.const(0, "float64"))


#: the body over i < 6 and j < 4, and how many numbers are stages
CASES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "a maximum": (lambda i, j: te.sqrt(te.max(variance(i, j), 0.0) + 1.0), 1),
    "a branch": (lambda i, j: te.if_then_else(variance(i, j) > 0.5, variance(i, j), 0.5), 1),
    "a selection": (lambda i, j: select(variance(i, j) > 0.5, m[i, j]), 1),
    "both sides of a comparison": (
        lambda i, j: select(variance(i, j) > q[i, j] / (m[i, j] + 3.0), m[i, j]),
        2,
    ),
    "of one row": (lambda i, j: te.max(q[i, 0] / n[i] - m[i, 1], x[i, j]), 1),
    "a decision in a side": (lambda i, j: select(j > 0, te.max(variance(i, j), 0.0)), 0),
    "no slow function": (lambda i, j: te.max(q[i, j] - m[i, j] * m[i, j], 0.0), 0),
    "one computed tensor": (lambda i, j: te.max(q[i, j] / n[i] - x[i, j], 0.0), 0),
    "no decision": (lambda i, j: te.sqrt(variance(i, j) * variance(i, j) + 1.0), 0),
    "indices": (lambda i, j: select(j > 1, variance(i, j)), 0),
}


def data() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [(x, rng.uniform(-1.5, 1.5, (6, 4))), (n, rng.uniform(1, 2, 6))]


@pytest.mark.parametrize("name", CASES)
def test_parts_and_values(name: str) -> None:
    body, parts = CASES[name]
    y = te.compute((6, 4), body, name="y")
    found = decided_parts(y.op)
    if not parts:
        assert found is None
        return
    assert found is not None
    read = tensors_read_by(found[0].op)
    assert sum("decided" in tensor.op.name for tensor in read) == parts
    assert decided_parts(found[0].op) is None
    want, got = (evaluate_graph([one], data())[0] for one in (y, found[0]))
    np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    body, _ = CASES[name]
    check_numbers(te.compute((6, 4), body, name="y"), [x, n], values=dict(data()))


def test_symbolic_axes() -> None:
    """Of an empty axis no element may be read: a number that the other axis changes stays."""
    size = te.var("size")
    a = te.placeholder((size, 4), "float64", name="a")
    p = te.compute((size, 4), lambda i, j: a[i, j] * 2.0, name="p")
    r = te.compute((size, 4), lambda i, j: a[i, j] + 2.0, name="r")
    whole = te.compute((size, 4), lambda i, j: te.max(p[i, j] / r[i, j], 0.0))
    row = te.compute((size, 4), lambda i, j: te.max(p[0, j] / r[0, j], 0.0))
    assert decided_parts(whole.op) is not None
    assert decided_parts(row.op) is None
