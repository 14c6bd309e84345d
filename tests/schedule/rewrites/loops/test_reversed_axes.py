"""Reduce axes that run from their end, so that coefficients in remainders are small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.linear_terms import linear_terms
from tvm_autodiff.expr.nodes import op_name, operands
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.stage import sources_of
from tvm_autodiff.schedule.rewrites.loops.reversed_axes import with_reversed_axes
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

B, N = 3, 37
x, w = te.placeholder((B, N), "float64", "x"), te.placeholder((N,), "float64", "w")
h = te.placeholder((B, N), "float64", "h")
k, b = te.reduce_axis((0, N), "k"), te.reduce_axis((0, B), "b")


def summed(place: Callable[[Any, Any], Any], reducer: Any = te.sum) -> Any:
    return te.compute((B, N), lambda r, i: reducer(w[k] * x[r, place(i, k.var)], axis=k), name="y")


def gradient(by: Any) -> Any:
    return ad.differentiate(summed(lambda i, k: (i - k + N) % N), [by], h)[0]


#: name → the output, and the largest coefficient in its remainders afterwards
CASES: dict[str, tuple[Callable[[], Any], int]] = {
    "a convolution": (lambda: summed(lambda i, k: (i - k + N) % N), 1),
    "of maxima": (lambda: summed(lambda i, k: (i - k + N) % N, te.max), 1),
    "two steps": (lambda: summed(lambda i, k: (i - k * 2 + 2 * N) % N), 2),
    "its gradient": (lambda: gradient(x), 1),
    "by the weights": (lambda: gradient(w), 1),
    "a correlation": (lambda: summed(lambda i, k: (i + k) % N), 1),
    "from the end": (lambda: summed(lambda i, k: (N - 1 - i + N - k) % N), 1),
}


def largest_coefficient(output: Any) -> int:
    found = [0]
    for node in postorder(list(sources_of(output.op))):
        if op_name(node) == "floormod":
            found += [factor for _, factor in linear_terms(operands(node)[0])[0]]
    return max(found)


@pytest.mark.parametrize("name", CASES)
def test_values_and_coefficients(name: str) -> None:
    make, most = CASES[name]
    [plain] = normal_form([make()])
    [made] = with_reversed_axes([plain])
    assert largest_coefficient(made) == most
    rng = np.random.default_rng(0)
    values = [(one, rng.normal(size=[int(n) for n in one.shape])) for one in (x, w, h)]
    want, got = evaluate_graph([plain, made], values, {})
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["a correlation", "from the end"])
def test_what_has_small_coefficients_stays(name: str) -> None:
    [plain] = normal_form([CASES[name][0]()])
    assert with_reversed_axes([plain])[0].same_as(plain)


m = te.var("m")
taps = te.placeholder((m,), "float64", "taps")
signal = te.placeholder((m + N,), "float64", "signal")


def over_taps(place: Callable[[Any, Any], Any]) -> Any:
    t = te.reduce_axis((0, m), "t")
    return te.compute((N,), lambda i: te.sum(taps[t] * signal[place(i, t.var)], axis=t), name="y")


#: name → an index over so many taps as a call has, and whether they are taken from the last one on
SYMBOLIC: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "against the results": (lambda i, t: i - t + m, True),
    "against twice the results": (lambda i, t: 2 * i - t + m - N, True),
    "along the results": (lambda i, t: i + t, False),
    "backward both": (lambda i, t: N - 1 - i + m - t, False),
    "alone": (lambda i, t: m - t, False),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_axes(name: str) -> None:
    place, reverses = SYMBOLIC[name]
    [plain] = normal_form([over_taps(place)])
    [made] = with_reversed_axes([plain])
    assert made.same_as(plain) is not reverses
    rng = np.random.default_rng(0)
    values = [(taps, rng.normal(size=41)), (signal, rng.normal(size=41 + N))]
    want, got = evaluate_graph([plain, made], values, {m: 41})
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_bounds_that_vary_stay() -> None:
    def part(i: Any) -> Any:
        t = te.reduce_axis((0, i + 1), "t")
        return te.sum(w[t] * x[0, i - t], axis=t)

    [plain] = normal_form([te.compute((N,), part, name="y")])
    assert with_reversed_axes([plain])[0].same_as(plain)


def test_a_few_results_are_summed_in_the_order_of_memory() -> None:
    taps = te.compute(
        (4,), lambda i: te.sum(w[k] * x[b, (k * 2 - i + N) % N], axis=[b, k]), name="taps"
    )
    [plain] = normal_form([taps])
    assert with_reversed_axes([plain])[0].same_as(plain)


def test_the_order_of_maps_that_do_not_commute_stays() -> None:
    composed = te.comm_reducer(
        lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]),
        lambda a, b: (te.const(1, a), te.const(0, b)),
    )
    maps = te.compute(
        (B, N), lambda r, i: composed((w[k], x[r, (i - k + N) % N]), axis=k), name="y"
    )
    [plain] = normal_form([maps[1]])
    assert with_reversed_axes([plain])[0].same_as(plain)
