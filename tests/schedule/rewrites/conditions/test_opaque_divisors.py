"""Divisors that may be zero are hidden from TVM, which folds them: what is hidden, what runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff import build, differentiate
from tvm_autodiff.expr.integers.intervals import range_intervals
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.schedule.rewrites.conditions.opaque_divisors import with_opaque_divisors

i, n, z = te.var("i"), te.var("n"), te.var("z")
Y = te.placeholder((8,), "float32", "Y")
X, T = te.placeholder((8,), "float32", "X"), te.var("t", "float32")


def f32(value: Any) -> Any:
    return value.astype("float32")


#: an expression over 0 <= i < 8, n > 0 and z of zero, and what TVM gets
BODIES: dict[str, tuple[Any, str]] = {
    "an index": (X[i] / f32(i), "X[i]/itself(float32(i))"),
    "a positive index": (X[i] / f32(i + 1), "X[i]/float32(i + 1)"),
    "a size": (X[i] / f32(n), "X[i]/float32(n)"),
    "one less": (X[i] / f32(n - 1), "X[i]/itself(float32(n - 1))"),
    "an element": (X[i] / X[0], "X[i]/X[0]"),
    "a difference of elements": (X[i] / (X[0] - X[1]), "X[i]/(X[0] - X[1])"),
    "elements of two tensors": (X[i] / (X[0] - Y[0]), "X[i]/(X[0] - Y[0])"),
    "what cancels": (X[i] / (X[0] - X[0]), "X[i]/itself(X[0] - X[0])"),
    "what cancels in a product": (X[i] / (2.0 * (X[i] - X[i])), "X[i]/itself(2.0*(X[i] - X[i]))"),
    "elements along a loop of one step": (X[i] / (X[z] - X[0]), "X[i]/itself(X[z] - X[0])"),
    "a let": (tirx.Let(T, X[i] + 1.0, X[i] / T), "let t = X[i] + 1.0 in X[i]/t"),
    "a literal": (X[i] / 2.0, "X[i]/2.0"),
    "floats": (X[i] / (f32(i) - 1.0), "X[i]/itself(float32(i) - 1.0)"),
    "a remainder": (X(3 % i), "X[3%itself(i)]"),
    "of a positive number": (X(3 % (i + 1)), "X[3%(i + 1)]"),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_hidden(name: str) -> None:
    body, wanted = BODIES[name]
    ranges = range_intervals({i: (0, 8), n: (1, None), z: (0, 1)})
    found = with_opaque_divisors(body, ranges)
    assert text(found) == wanted
    assert text(with_opaque_divisors(found, ranges)) == wanted


def running_mean(x: Any, size: Any) -> Any:
    def mean(i: Any) -> Any:
        k = te.reduce_axis((0, i), "k")
        return te.sum(x[k] / f32(i), axis=k)

    return te.compute((size,), mean, name="mean")


def series(x: Any, size: Any) -> Any:
    k = te.reduce_axis((0, size), "k")
    return te.compute((), lambda: te.sum(te.if_then_else(k > 0, x[k] / f32(k), 0.0), axis=k))


def pairs(x: Any, size: Any) -> Any:
    k = te.reduce_axis((0, size), "k")
    value = lambda i: te.if_then_else(k != i, 1.0 / (x[i] - x[k]), 0.0)  # noqa: E731
    return te.compute((size,), lambda i: te.sum(value(i), axis=k), name="y")


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "quotients": lambda x, m: te.compute(
        (m,), lambda i: te.if_then_else(i > 0, x[i] / f32(i), 0.0), name="y"
    ),
    "a running mean": running_mean,
    "a remainder": lambda x, m: te.compute(
        (m,), lambda i: te.if_then_else(i > 0, x[tirx.floormod(3, i)], 0.0), name="y"
    ),
    "differences": lambda x, m: te.compute(
        (m, m), lambda i, j: te.if_then_else(i != j, x[i] / f32(i - j), 0.0), name="y"
    ),
    "of the size": lambda x, m: te.compute(
        (m,), lambda i: te.if_then_else(m > 1, x[i] * f32(i) / f32(m - 1), 0.0), name="y"
    ),
    "a sum": series,
    "a sum over pairs of elements": pairs,
    "elements times a place": lambda x, m: te.compute(
        (m, m), lambda i, j: te.if_then_else(i > 0, x[j] / (x[j] * f32(i)), 0.0), name="y"
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_of_a_symbolic_size(name: str) -> None:
    size = te.var("size")
    x = te.placeholder((size,), "float32", "x")
    y = PROGRAMS[name](x, size)
    head = te.placeholder(y.shape, "float32", "head")
    inputs, outputs = [x, head], [y, *differentiate(y, [x], head)]
    function = build(inputs, outputs, cache=False)
    rng = np.random.default_rng(0)
    for count in (1, 4, 9):
        shapes = [(count,), tuple(count for _ in y.shape)]
        arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
        given = list(zip(inputs, arrays, strict=True))
        wanted = evaluate_graph(outputs, given, {size: count})
        for got, want in zip(function(*arrays), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
