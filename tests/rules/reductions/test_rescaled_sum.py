"""Sums that a running extreme rescales: which reducers are, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import check_numbers
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import Combiner, reduction_of
from tvm_autodiff.rules.reductions.rescaled_sum import Rescaled, rescaled

Pair = tuple[Any, ...]


def two(value: float) -> Any:
    return tirx.const(value, "float64")


def plain(a: Pair, b: Pair) -> Pair:
    top = te.max(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)


def other_order(a: Pair, b: Pair) -> Pair:
    top = te.max(b[0], a[0])
    return top, te.exp(b[0] - top) * b[1] + te.exp(a[0] - top) * a[1]


def extreme_apart(a: Pair, b: Pair) -> Pair:
    """The maximum is written down for each use."""
    return (
        te.max(a[0], b[0]),
        a[1] * te.exp(a[0] - te.max(a[0], b[0])) + b[1] * te.exp(b[0] - te.max(a[0], b[0])),
    )


def base_two(a: Pair, b: Pair) -> Pair:
    top = te.max(a[0], b[0])
    left, right = (a[0] - top) * two(0.5), two(0.5) * (b[0] - top)
    return top, a[1] * tirx.exp2(left) + b[1] * tirx.exp2(right)


def least(a: Pair, b: Pair) -> Pair:
    low = te.min(a[0], b[0])
    return low, a[1] * te.exp(low - a[0]) + b[1] * te.exp(low - b[0])


def extreme_last(a: Pair, b: Pair) -> Pair:
    return plain(a[::-1], b[::-1])[::-1]


def one_side(a: Pair, b: Pair) -> Pair:
    top = te.max(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1]


def two_rates(a: Pair, b: Pair) -> Pair:
    top = te.max(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp((b[0] - top) * two(2.0))


def two_extremes(a: Pair, b: Pair) -> Pair:
    top, low = te.max(a[0], b[0]), te.min(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - low)


def shifted(a: Pair, b: Pair) -> Pair:
    top = te.max(a[0], b[0]) + two(1.0)
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)


@dataclass(frozen=True)
class Line:
    """A reducer, its identity, which component is the sum, and how it is rescaled."""

    combine: Callable[[Pair, Pair], Pair]
    identity: tuple[float, float]
    component: int
    expected: Rescaled | None


LOWEST = -1e300
LINES = {
    "plain": Line(plain, (LOWEST, 0), 1, Rescaled(0, "exp", 1.0)),
    "other order": Line(other_order, (LOWEST, 0), 1, Rescaled(0, "exp", 1.0)),
    "extreme apart": Line(extreme_apart, (LOWEST, 0), 1, Rescaled(0, "exp", 1.0)),
    "base two": Line(base_two, (LOWEST, 0), 1, Rescaled(0, "exp2", 0.5)),
    "least": Line(least, (-LOWEST, 0), 1, Rescaled(0, "exp", -1.0)),
    "extreme last": Line(extreme_last, (0, LOWEST), 0, Rescaled(1, "exp", 1.0)),
    "an extreme that is not below all": Line(plain, (0.25, 0), 1, Rescaled(0, "exp", 1.0)),
    "the extreme": Line(plain, (LOWEST, 0), 0, None),
    "a sum that begins at one": Line(plain, (LOWEST, 1), 1, None),
    "one side": Line(one_side, (LOWEST, 0), 1, None),
    "two rates": Line(two_rates, (LOWEST, 0), 1, None),
    "two extremes": Line(two_extremes, (LOWEST, 0), 1, None),
    "shifted": Line(shifted, (LOWEST, 0), 1, None),
}


def tensors(line: Line) -> tuple[list[Any], list[Any]]:
    reduce = te.comm_reducer(
        line.combine, lambda *kinds: tuple(tirx.const(v, "float64") for v in line.identity)
    )
    x, w = (te.placeholder((3, 5), "float64", name=name) for name in "xw")
    k = te.reduce_axis((0, 5), "k")
    parts = (x, w) if line.component == 1 else (w, x)
    outs = te.compute((3,), lambda i: reduce(tuple(p[i, k] for p in parts), axis=k), name="pair")
    return [x, w], list(outs)


@pytest.mark.parametrize("name", LINES)
def test_which_are_rescaled(name: str) -> None:
    line = LINES[name]
    reduction = reduction_of(tensors(line)[1][0].op)
    assert reduction is not None
    combiner: Combiner = reduction.combiner
    found = rescaled(combiner, line.component)
    assert found == line.expected


TAKEN = [name for name, line in LINES.items() if line.expected is not None]


@pytest.mark.parametrize("name", TAKEN)
def test_derivatives(name: str) -> None:
    inputs, outs = tensors(LINES[name])
    out = te.compute((3,), lambda i: te.sin(outs[0][i]) * outs[1][i] + outs[1][i], name="out")
    check_numbers(out, inputs, order=2)


@pytest.mark.parametrize("name", TAKEN)
def test_no_elements_are_scanned(name: str) -> None:
    inputs, outs = tensors(LINES[name])
    made = topological(list(ad.differentiate(outs[LINES[name].component], inputs)))
    assert not [op.name for op in made if "before" in op.name or "after" in op.name]


def attention(x: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    """Softmax of rows times values, and the gradients of its sum of squares."""
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    out = p @ v
    dp = 2 * out @ v.T
    return out, p * (dp - (dp * p).sum(1, keepdims=True)), p.T @ (2 * out)


def test_weighted_means_of_an_online_softmax() -> None:
    """The maximum, the sum of powers, and their product with values, in one reduction."""

    def combine(a: Pair, b: Pair) -> Pair:
        top = te.max(a[0], b[0])
        left, right = te.exp(a[0] - top), te.exp(b[0] - top)
        return top, a[1] * left + b[1] * right, a[2] * left + b[2] * right

    reduce = te.comm_reducer(
        combine, lambda *kinds: tuple(tirx.const(v, "float64") for v in (LOWEST, 0, 0))
    )
    x, v = (te.placeholder(s, "float64", name=n) for s, n in (((4, 6), "x"), ((6, 3), "v")))
    k = te.reduce_axis((0, 6), "k")
    _, total, acc = te.compute(
        (4, 3), lambda i, c: reduce((x[i, k], two(1.0), v[k, c]), axis=k), name="online"
    )
    out = te.compute((4, 3), lambda i, c: acc[i, c] / total[i, c], name="out")
    head = te.placeholder((4, 3), "float64", name="head")
    gradients = ad.differentiate(out, [x, v], head)
    rng = np.random.default_rng(0)
    at = [rng.normal(size=(4, 6)), rng.normal(size=(6, 3))]
    expected = attention(*at)
    given = [*zip([x, v], at, strict=True), (head, 2 * expected[0])]
    for got, wanted in zip(evaluate_graph([out, *gradients], given), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_the_rate_of_a_power_of_two() -> None:
    inputs, [_, total] = tensors(LINES["base two"])
    head = te.placeholder((3,), "float64", name="head")
    _, dw = ad.differentiate(total, inputs, head)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3, 5))
    [got] = evaluate_graph([dw], [*zip(inputs, (x, w), strict=True), (head, np.ones(3))])
    expected = np.exp(0.5 * log(2) * (x - x.max(1, keepdims=True)))
    np.testing.assert_allclose(got, expected, rtol=1e-14)
