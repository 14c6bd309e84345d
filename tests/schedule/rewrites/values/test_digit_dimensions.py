"""Dimensions that are computed by digits: which become several, and equal values."""

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
from tvm_autodiff.schedule.rewrites.sums.quotient_sums import with_split_quotients
from tvm_autodiff.schedule.rewrites.values.digit_dimensions import with_digit_dimensions

D = "float64"
X = te.placeholder((12, 12), D, name="x")


def window(width: int = 5, count: int = 25) -> Any:
    """``t[i, q] = exp(x[i + q//w, q%w])``."""
    return te.compute(
        (6, count), lambda i, q: te.exp(X[i + q // width, q % width]), name="t"
    )


def summed(t: Any, count: int = 25) -> Any:
    q = te.reduce_axis((0, count), "q")
    return te.compute((6,), lambda i: te.sum(t[i, q] * X[i, q // 5], axis=q), name="y")


def square(t: Any) -> Any:
    return te.compute(t.shape, lambda i, q: t[i, q] * t[i, q], name="u")


def three_digits() -> list[Any]:
    t = te.compute(
        (6, 27), lambda i, q: te.exp(X[i + q // 9, q // 3 % 3] * X[q % 3, i]), name="t"
    )
    q = te.reduce_axis((0, 27), "q")
    return [te.compute((6,), lambda i: te.max(t[i, q], axis=q), name="y")]


def by_digits() -> list[Any]:
    t = window()
    a, b = te.reduce_axis((0, 5), "a"), te.reduce_axis((0, 5), "b")
    return [te.compute((6,), lambda i: te.sum(t[i, a * 5 + 4 - b] * X[a, b], axis=[a, b]))]


def other_places() -> list[Any]:
    t = window()
    return [te.compute((6, 25), lambda i, q: t[i, (q * 2) % 25], name="y"), summed(t)]


def a_border_as_well() -> list[Any]:
    t = window()
    q = te.reduce_axis((0, 3), "q")
    return [summed(t), te.compute((3,), lambda i: te.sum(t[0, q + i], axis=q), name="z")]


#: name → the outputs, and the extents of each intermediate tensor
CASES: dict[str, tuple[Callable[[], list[Any]], list[list[int]]]] = {
    "a window": (lambda: [summed(window())], [[6, 5, 5]]),
    "and its square": (lambda: [summed(square(window()))], [[6, 5, 5], [6, 5, 5]]),
    "three digits": (three_digits, [[6, 3, 3, 3]]),
    "read by digits": (by_digits, [[6, 5, 5]]),
    "a border as well": (a_border_as_well, [[6, 5, 5]]),
    "no multiple": (lambda: [summed(window(5, 24), 24)], [[6, 24]]),
    "other places": (other_places, [[6, 25]]),
    "a part of it": (lambda: [summed(window(), 24)], [[6, 25]]),
    "a result": (lambda: [window(), summed(window())], [[6, 25], [6, 5, 5]]),
    "no digits": (lambda: [summed(square(X), 12)], [[12, 12]]),
}


@pytest.mark.parametrize("name", CASES)
def test_extents_and_values(name: str) -> None:
    make, extents = CASES[name]
    outputs = make()
    found = with_digit_dimensions(outputs)
    hidden = [op.output(0) for op in Graph(found).ops if str(op.name) in ("t", "u")]
    assert [list(shape_of(tensor)) for tensor in hidden] == extents
    values = [(X, np.random.default_rng(0).normal(size=(12, 12)))]
    want, got = evaluate_graph(outputs, values), evaluate_graph(found, values)
    for left, right in zip(want, got, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-14)


@pytest.mark.parametrize("name", ["a window", "and its square", "three digits"])
def test_sums_follow(name: str) -> None:
    found = with_split_quotients(with_digit_dimensions(CASES[name][0]()))
    sources = [source for op in Graph(found).ops if op.input_tensors for source in sources_of(op)]
    assert not any(op_name(node) in ("floordiv", "floormod") for node in postorder(sources))
