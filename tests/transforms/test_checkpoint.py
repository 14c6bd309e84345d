"""`checkpoint`: values and derivatives stay, in all modes; gradients compute the value again."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff import checkpoint
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.marks.checkpoint import generation_of
from tvm_autodiff.graph.marks.value_marks import has_marks

D = "float64"
X = te.placeholder((3, 4), D, "x")
W = te.placeholder((4,), D, "w")
RNG = np.random.default_rng(0)
AT = [(X, RNG.uniform(0.25, 1.25, (3, 4))), (W, RNG.uniform(0.25, 1.25, (4,)))]


def plain(value):
    return value


def of_a_stage(mark):
    t = mark(te.compute((3, 4), lambda i, j: te.exp(X[i, j] * W[j]), "t"))
    return te.compute((3, 4), lambda i, j: t[i, j] * t[2 - i, j], "y")


def of_an_expression(mark):
    return te.compute((3, 4), lambda i, j: mark(te.exp(X[i, j])) * te.sin(W[j] * X[i, j]), "y")


def of_an_input(mark):
    x = mark(X)
    return te.compute((3, 4), lambda i, j: x[i, j] * x[i, 3 - j] * W[j], "y")


def of_reductions(mark):
    k = te.reduce_axis((0, 4), "k")
    s = mark(te.compute((3,), lambda i: te.sum(X[i, k] * W[k], axis=k), "s"))
    n = te.reduce_axis((0, 3), "n")
    m = mark(te.compute((), lambda: te.max(s[n] * s[n], axis=n), "m"))
    return te.compute((3, 4), lambda i, j: X[i, j] * s[i] / m(), "y")


def of_a_scatter(mark):
    """An opaque stage: what it reads is marked in its place."""
    rows = te.compute((4,), lambda j: te.exp(W[j]) * X[1, j], "rows")
    places = te.compute((4,), lambda j: (j * 2) % 3, "places")
    added = mark(ad.scatter_add(rows, places, (3,)))
    return te.compute((3, 4), lambda i, j: te.exp(added[i]) * X[i, j], "y")


def of_a_chain(mark):
    t = X
    for n in range(3):
        t = mark(link(t, n))
    return te.compute((3, 4), lambda i, j: t[i, j] * t[i, j], "y")


def link(t, n):
    return te.compute((3, 4), lambda i, j: te.sin(t[i, 3 - j]) * W[j], f"t{n}")


def of_data(mark):
    """Integers that are computed from data: they are indices where they are read."""
    place = mark(te.compute((3, 4), lambda i, j: (X[i, j] * 2.0).astype("int32"), "place"))
    return te.compute((3, 4), lambda i, j: X[i, place[i, j]] * W[j], "y")


PROGRAMS = {f.__name__: f for f in (
    of_a_stage, of_an_expression, of_an_input, of_reductions, of_a_scatter, of_a_chain, of_data,
)}  # fmt: skip


def everything(make, mark):
    """The value and derivatives of a program, in each mode."""
    y = make(mark)
    v = te.compute((3, 4), lambda i, j: te.cos(X[i, j]), "v")
    u = te.compute((3, 4), lambda i, j: te.exp(X[i, j]), "u")
    [pulled, by_w] = ad.differentiate(y, [X, W], u)
    [tangent] = ad.jvp(y, X, v)
    k, n = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 4), "n")
    total = te.compute((), lambda: te.sum(y[k, n] * te.sin(y[k, n]), axis=[k, n]), "total")
    [second] = ad.hvp(total, X, v)
    [reverse_twice] = ad.differentiate(pulled, X, v)
    return [y, pulled, by_w, tangent, second, reverse_twice]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives_stay(name: str) -> None:
    marked, wanted = (everything(PROGRAMS[name], mark) for mark in (checkpoint, plain))
    assert any(map(has_marks, Graph(marked).ops))
    values = evaluate_graph(wanted, AT)
    for found, value in zip(evaluate_graph(marked, AT), values, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-12)
    for found, value in zip(
        ad.build([X, W], marked, cache=False)(*(a for _, a in AT)), values, strict=True
    ):
        np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-12)


def test_each_sweep_computes_again_what_the_last_one_did() -> None:
    y = of_a_stage(checkpoint)
    [first] = ad.differentiate(y, X, te.placeholder((3, 4), D, "h"))
    [second] = ad.differentiate(first, X, te.placeholder((3, 4), D, "g"))
    found = [max(map(generation_of, Graph([t]).ops)) for t in (y, first, second)]
    assert found == [0, 1, 2]


def test_the_mark_travels() -> None:
    y = of_a_stage(checkpoint)
    xs = te.placeholder((5, 3, 4), D, "xs")
    for results in (
        ad.vmap(y, {X: xs}),
        ad.inline_tensors([y]),
        ad.merge_equal_stages([y]),
        ad.simplify_reductions([y]),
        ad.jvp(y, X, X),
    ):
        listed = results if isinstance(results, (list, tuple)) else [results]
        assert any(map(has_marks, Graph(list(listed)).ops))


def test_linear_maps_stay_linear() -> None:
    t = checkpoint(te.compute((3, 4), lambda i, j: X[2 - i, j] * 2.0, "t"))
    transposed = ad.linear_transpose(te.compute((3, 4), lambda i, j: t[i, 3 - j], "y"), X)
    [found] = evaluate_graph([transposed @ X], AT)
    np.testing.assert_allclose(found, 2 * AT[0][1][::-1, ::-1])


def layers(mark, count: int, n: int):
    """Layers of a product of matrices and tanh, of which only what passes between is not marked."""
    x = te.placeholder((n, n), "float32", "x")
    weights = [te.placeholder((n, n), "float32", f"w{number}") for number in range(2 * count)]
    h = x
    for number, w in enumerate(weights):
        inner = mark if number % 2 == 0 else plain
        h = inner(activation(inner(product(h, w, n, f"s{number}")), n, f"h{number}"))
    return x, weights, h


def activation(s, n, name):
    return te.compute((n, n), lambda i, j: te.tanh(s[i, j]), name)


def product(left, right, n, name):
    k = te.reduce_axis((0, n), "k")
    return te.compute((n, n), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name)


@pytest.mark.slow
def test_one_program_keeps_less() -> None:
    """Value and gradient in one function: what is marked is free between its two uses."""
    n, found = 400, []
    arrays = [RNG.standard_normal((n, n)).astype("float32") / 20 for _ in range(10)]
    for mark in (plain, checkpoint):
        x, weights, y = layers(mark, 4, n)
        head = te.placeholder((n, n), "float32", "head")
        gradients = list(ad.differentiate(y, weights, head))
        function = ad.build([x, *weights, head], [y, *gradients], cache=False)
        found.append((function.memory().temporaries, function(*arrays)))
    (before, wanted), (after, values) = found
    assert after < before
    for value, want in zip(values, wanted, strict=True):
        np.testing.assert_allclose(value, want, rtol=2e-4, atol=2e-5)


def test_a_mark_costs_nothing_in_what_is_built() -> None:
    kernels = []
    for mark in (plain, checkpoint):
        y = of_a_chain(mark)
        profile = ad.build([X, W], y, cache=False).profile(*(a for _, a in AT), repeats=1)
        kernels.append([(k.operations, k.traffic, k.rule) for k in profile.kernels])
    assert kernels[0] == kernels[1]
