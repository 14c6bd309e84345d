"""What slow functions have of neighbours: which parts are stages of their own, equal values."""

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
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.rules.parts.stencil_parts import stencil_parts

N, M = 5, 4
x = te.placeholder((N, M), "float64", name="x")
w = te.placeholder((N, M), "float64", name="w")
c = te.placeholder((3,), "float64", name="c")


def down(i: Any, j: Any) -> Any:
    return x[i + 1, j] - x[i, j]


def right(i: Any, j: Any) -> Any:
    return x[i, j + 1] - x[i, j]


def clamped(i: Any, j: Any) -> Any:
    return x[te.max(i - 1, 0), j] - x[i, j]


def guarded(i: Any, j: Any) -> Any:
    return te.if_then_else(i > 0, x[i - 1, j] - x[i, j], 0.5)


def soft(value: Any) -> Any:
    return te.sqrt(value * value + c[0])


#: the body over i < 4 and j < 3, and how many parts are stages
CASES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "a difference": (lambda i, j: soft(down(i, j)) * 2.0, 1),
    "two differences": (lambda i, j: soft(down(i, j)) + soft(right(i, j)), 2),
    "a sum of both": (lambda i, j: 2.0 * te.sqrt(soft(down(i, j)) + right(i, j)), 2),
    "one in two functions": (lambda i, j: te.exp(down(i, j)) + te.sin(down(i, j)), 1),
    "clamped": (lambda i, j: te.exp(clamped(i, j)) * w[i, j], 1),
    "guarded": (lambda i, j: soft(guarded(i, j)) * 2.0, 1),
    "guarded, beside neighbours": (lambda i, j: 2.0 * te.exp(guarded(i, j) * down(i, j)), 1),
    "a factor of one place": (lambda i, j: 2.0 * te.exp(x[i, j] * down(i, j)), 1),
    "tensors at two places": (lambda i, j: 2.0 * te.exp(x[i, j] * w[i, j + 1]), 1),
    "the result is the function": (lambda i, j: te.exp(down(i, j)), 0),
    "one place": (lambda i, j: 2.0 * te.exp(x[i, j] * w[i, j] * c[1]), 0),
    "products only": (lambda i, j: down(i, j) * right(i, j), 0),
    "a function of one element": (lambda i, j: te.exp(x[i, j]) - te.exp(x[i + 1, j]), 0),
    "a quotient of neighbours": (lambda i, j: x[i, j] / x[i + 1, j] * 2.0, 0),
    "fewer elements than results": (lambda i, j: 2.0 * te.exp(c[0] - c[1]) * x[i, j], 0),
    "in a side": (lambda i, j: te.if_then_else(j > 0, soft(down(i, j)), x[i, j]), 0),
}


def summed(body: Callable[[Any, Any], Any], rows: bool = False) -> Any:
    """The sum of a body over both axes, or along the rows."""
    i, j = te.reduce_axis((0, N - 1), "i"), te.reduce_axis((0, M - 1), "j")
    if rows:
        return te.compute((N - 1,), lambda i: te.sum(body(i, j), axis=j), name="y")
    return te.compute((), lambda: te.sum(body(i, j), axis=[i, j]), name="y")


def mapped(body: Callable[[Any, Any], Any]) -> Any:
    return te.compute((N - 1, M - 1), body, name="y")


#: functions that are all that is summed are computed again for each neighbour
SUMMED = {**CASES, "the result is the function": (CASES["the result is the function"][0], 1)}


def data() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [(tensor, rng.uniform(1, 2, shape_of(tensor))) for tensor in (x, w, c)]


@pytest.mark.parametrize("name", CASES)
def test_parts_of_maps(name: str) -> None:
    body, parts = CASES[name]
    check_parts(mapped(body), stencil_parts, "stencil", parts, data())


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("name", SUMMED)
def test_parts_of_sums(name: str, rows: bool) -> None:
    body, parts = SUMMED[name]
    check_parts(summed(body, rows), stencil_parts, "stencil", parts, data())


def test_a_part_holds_the_guards_of_what_it_reads() -> None:
    """``sqrt((if i > 0 then x[i - 1] - x[i] else 1/2)**2 + c)``: x has no row -1."""
    found = stencil_parts(mapped(CASES["guarded"][0]).op)
    assert found is not None
    [part] = [op for op in Graph(found).ops if "stencil" in op.name]
    assert op_name(part.body[0]) == "if_then_else"


@pytest.mark.parametrize("make", [mapped, summed])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, make: Callable[[Any], Any]) -> None:
    check_numbers(make(CASES[name][0]), [x, w, c], values=dict(data()))


@pytest.mark.parametrize("name", ["two differences", "clamped"])
def test_second_derivatives(name: str) -> None:
    y = summed(CASES[name][0])
    [dx] = ad.differentiate(y, [x])
    head = te.placeholder((N, M), "float64", name="head")
    values = {**dict(data()), head: np.random.default_rng(1).normal(size=(N, M))}
    k, m = te.reduce_axis((0, N), "k"), te.reduce_axis((0, M), "m")
    along = te.compute((), lambda: te.sum(dx[k, m] * head[k, m], axis=[k, m]), name="along")
    check_numbers(along, [x], values=values)


def test_a_derivative_of_a_gradient_has_as_many_terms_as_the_gradient() -> None:
    """And not as many for each of them."""
    y = summed(CASES["two differences"][0])
    [dx] = ad.differentiate(y, [x])
    head = te.placeholder((N, M), "float64", name="head")
    [ddx] = ad.differentiate(dx, [x], head)
    reads = [len(Graph([one]).reads(one.op)) for one in (dx, ddx)]
    assert reads[0] == reads[1] == 2


@pytest.mark.parametrize("size", [1, 2, 7])
def test_sums_of_symbolic_length(size: int) -> None:
    n = te.var("n")
    v, k = te.placeholder((n,), "float64", name="v"), te.reduce_axis((0, n - 1), "k")
    gap = lambda k: v[k + 1] - v[k]  # noqa: E731
    y = te.compute((), lambda: te.sum(te.sqrt(gap(k) * gap(k) + 1.0), axis=k), name="y")
    assert stencil_parts(y.op) is not None
    [dv] = ad.differentiate(y, [v])
    values = np.random.default_rng(0).normal(size=size)
    slope = np.diff(values) / np.sqrt(np.diff(values) ** 2 + 1.0)
    want = np.zeros(size)
    want[1:] += slope
    want[:-1] -= slope
    [got] = evaluate_graph([dv], [(v, values)], {n: size})
    np.testing.assert_allclose(got, want, atol=1e-14)


def test_only_sums_have_parts() -> None:
    k = te.reduce_axis((0, M - 1), "k")
    y = te.compute((N,), lambda i: te.max(te.exp(x[i, k + 1] - x[i, k]), axis=k), name="y")
    assert stencil_parts(y.op) is None
