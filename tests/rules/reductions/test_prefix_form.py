"""Prefix reductions are differentiated as scans: exact at zeros, in both modes, twice, fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import check_numbers
from tvm_autodiff import estimate_cost
from tvm_autodiff.rules.reductions.prefix_form import prefix_form

N, ROWS = 7, 3
PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
#: x ⊕ y = x + y + x*y, with identity 0
COMPOUND = te.comm_reducer(lambda a, b: a + b + a * b, lambda t: tirx.const(0, t), name="compound")
#: the maximum and the sum of exponentials: a running logarithm of a sum
NORMALISED = te.comm_reducer(
    lambda a, b: (
        te.max(a[0], b[0]),
        a[1] * te.exp(a[0] - te.max(a[0], b[0])) + b[1] * te.exp(b[0] - te.max(a[0], b[0])),
    ),
    lambda t, u: (tirx.const(-100, t), tirx.const(0, u)),
    name="normalised",
)

#: name → a condition on an element and a place
CONDITIONS: dict[str, Callable[[Any, Any], Any]] = {
    "k <= i": lambda k, i: k <= i,
    "k < i": lambda k, i: k < i,
    "k >= i": lambda k, i: k >= i,
    "k > i": lambda k, i: k > i,
    "i > k": lambda k, i: i > k,
    "k < i + 1": lambda k, i: k < i + 1,
    "k - i <= -1": lambda k, i: k - i <= -1,
    "all": lambda k, i: te.all(k <= i, k % 3 != 1),
}


def masked(condition: str, reducer: Any = PRODUCT, identity: float = 1.0, size: Any = N) -> Any:
    """``out[r, i] = ⊕_k if condition(k, i) then x[r, k] else identity``."""
    x, k = te.placeholder((ROWS, size), "float64", "x"), te.reduce_axis((0, size), "k")
    holds, other = CONDITIONS[condition], tirx.const(identity, "float64")

    def body(r: Any, i: Any) -> Any:
        return reducer(te.if_then_else(holds(k.var, i), x[r, k], other), axis=k)

    return x, te.compute((ROWS, size), body, name="P")


def bounded(end: int) -> Any:
    """``out[i] = Π_{k < i + end} x[k]``."""
    x = te.placeholder((N,), "float64", "x")

    def body(i: Any) -> Any:
        k = te.reduce_axis((0, i + end), "k")
        return PRODUCT(x[k], axis=k)

    return x, te.compute((N,), body, name="P")


def columns() -> Any:
    """Along the first axis, of a function of the elements and of the rows."""
    x, k = te.placeholder((N, ROWS), "float64", "x"), te.reduce_axis((0, N), "k")
    one = tirx.const(1.0, "float64")

    def body(i: Any, r: Any) -> Any:
        factor = one - x[k, r] * (r + 1).astype("float64")
        return PRODUCT(te.if_then_else(k <= i, factor, one), axis=k)

    return x, te.compute((N, ROWS), body, name="P")


def beyond() -> Any:
    """Elements that are read one further, where no place needs the last one."""
    x, k = te.placeholder((N - 1,), "float64", "x"), te.reduce_axis((0, N), "k")
    one = tirx.const(1.0, "float64")
    body = lambda i: PRODUCT(te.if_then_else(k > i, x[k - 1], one), axis=k)  # noqa: E731
    return x, te.compute((N,), body, name="P")


def pair() -> Any:
    x, k = te.placeholder((ROWS, N), "float64", "x"), te.reduce_axis((0, N), "k")

    def body(r: Any, i: Any) -> Any:
        least, zero = tirx.const(-100, "float64"), tirx.const(0, "float64")
        part = te.if_then_else(k <= i, x[r, k], least)
        return NORMALISED((part, te.if_then_else(k <= i, tirx.const(1, "float64"), zero)), axis=k)

    best, total = te.compute((ROWS, N), body, name="P")
    return x, te.compute((ROWS, N), lambda r, i: best[r, i] + te.log(total[r, i]), name="L")


PROGRAMS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: masked(name) for name in CONDITIONS},
    "compound": lambda: masked("k <= i", COMPOUND, 0.0),
    "bounds": lambda: bounded(0),
    "bounds with the place": lambda: bounded(1),
    "columns": columns,
    "beyond": beyond,
}


def values_of(x: Any, seed: int = 0) -> np.ndarray:
    """Numbers with zeros, one and two in a row."""
    shape = [int(dim) for dim in x.shape]
    drawn = np.random.default_rng(seed).normal(size=shape)
    for place in (1, 2, 8):
        drawn.reshape(-1)[place : place + 1] = 0
    return drawn


@pytest.mark.parametrize("name", [*PROGRAMS, "pair"])
def test_gradients(name: str) -> None:
    x, out = pair() if name == "pair" else PROGRAMS[name]()
    if name != "pair":
        assert prefix_form(out.op) is not None
    order = 2 if name in ("k < i", "compound") else 1
    check_numbers(out, [x], order, {x: values_of(x)})
    ad.check_grads(out, [x], ("forward",), order, values={x: values_of(x)})


@pytest.mark.parametrize("name", PROGRAMS)
def test_forms_are_equal(name: str) -> None:
    x, out = PROGRAMS[name]()
    [form] = prefix_form(out.op)
    want, got = evaluate_graph([out, form], [(x, values_of(x))], {})
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 9])
def test_symbolic_sizes(size: int) -> None:
    n = te.var("n")
    x, out = masked("k < i", size=n)
    head = te.placeholder(out.shape, "float64", "head")
    [gradient] = ad.differentiate(out, [x], head)
    built = ad.build([x, head], [gradient])
    rng = np.random.default_rng(0)
    numbers, heads = rng.normal(size=(ROWS, size)), rng.normal(size=(ROWS, size))
    numbers[0, :1] = 0
    expected = np.zeros_like(numbers)
    for k in range(size):
        for i in range(k + 1, size):
            rest = np.delete(numbers[:, :i], k, axis=1).prod(axis=1)
            expected[:, k] += heads[:, i] * rest
    [got] = built(numbers, heads)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_one_step_for_each_element() -> None:
    x, out = masked("k <= i", size=200)
    [gradient] = ad.differentiate(out, [x], te.placeholder(out.shape, "float64", "head"))
    assert estimate_cost(gradient).iterations <= 10 * ROWS * 200


@pytest.mark.parametrize("form", ["bounds", "mask"])
def test_equal_cotangents_of_two_values(form: str) -> None:
    """They are one tensor, which the scan back reads twice."""
    composed = te.comm_reducer(
        lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]),
        lambda a, b: (tirx.const(1, a), tirx.const(0, b)),
    )
    x, a, head = (te.placeholder((N,), "float64", name) for name in ("x", "a", "head"))
    every = te.reduce_axis((0, N), "k")

    def body(i: Any) -> Any:
        if form == "bounds":
            k = te.reduce_axis((0, i + 1), "k")
            return composed((x[k], a[k]), axis=k)
        parts = ((x[every], 1), (a[every], 0))
        return composed(
            [te.if_then_else(every <= i, v, tirx.const(c, "float64")) for v, c in parts],
            axis=every,
        )

    p, q = te.compute((N,), body, name="y")
    z = te.compute((N,), lambda i: p[i] + q[i], name="z")
    built = ad.build([x, a, head], [z, *ad.differentiate(z, [x, a], head)])
    numbers, added, heads = np.random.default_rng(0).normal(size=(3, N))
    value, by_x, by_a = built(numbers, added, heads)
    factor, state, expected = 1.0, 0.0, np.zeros(N)
    jacobians = np.zeros((2, N, N))  # of the factor and the state, by x and by a
    by_factor, by_state = np.zeros((2, N)), np.zeros((2, N))
    for i in range(N):
        by_factor, by_state = by_factor * numbers[i], by_state * numbers[i]
        by_factor[0, i], by_state[0, i], by_state[1, i] = factor, state, 1.0
        factor, state = factor * numbers[i], numbers[i] * state + added[i]
        expected[i], jacobians[:, i] = factor + state, by_factor + by_state
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(by_x, heads @ jacobians[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(by_a, heads @ jacobians[1], rtol=1e-12, atol=1e-12)


#: what keeps its own rule
OTHERS: dict[str, Callable[[], Any]] = {
    "a sum": lambda: masked("k <= i", te.sum, 0.0),
    "a maximum": lambda: masked("k <= i", te.max, float(np.finfo(np.float64).min)),
    "another number elsewhere": lambda: masked("k <= i", PRODUCT, 2.0),
}


def test_places_that_wrap() -> None:
    """``uint8(k) <= i`` holds for k = 256 again."""
    x, k = te.placeholder((260,), "float64", "x"), te.reduce_axis((0, 260), "k")
    one = tirx.const(1.0, "float64")
    body = lambda i: PRODUCT(  # noqa: E731
        te.if_then_else(k.var.astype("uint8").astype("int32") <= i, x[k], one), axis=k
    )
    out = te.compute((260,), body, name="P")
    assert prefix_form(out.op) is None


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    _, out = OTHERS[name]()
    assert prefix_form(out.op) is None
