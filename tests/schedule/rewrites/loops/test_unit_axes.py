"""Stages lose axes of one element that are read at a constant only; what they hold stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import axis_range, is_placeholder, shape_of
from tvm_autodiff.operators import scatter_add
from tvm_autodiff.schedule.fusion.groups import FusionGroup
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.loops.unit_axes import without_unit_axes
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

N, M, K = 5, 3, 4
x = te.placeholder((N, M, K), "float64", "x")
one = te.placeholder((1, N, 1), "float64", "one")
b = te.reduce_axis((0, N), "b")


def norm(axis: int = 2) -> Any:
    """Over the mean square of an axis, which is kept."""
    return x / topi.sqrt(topi.sum(x * x, axis=axis, keepdims=True))


def argmax() -> Any:
    """Two values and places of rows, of which the output reads the values."""
    pair = te.comm_reducer(
        lambda p, q: (te.max(p[0], q[0]), te.if_then_else(p[0] >= q[0], p[1], q[1])),
        lambda s, t: (te.min_value(s), te.const(-1, t)),
    )
    k = te.reduce_axis((0, K), "k")
    found = te.compute(
        (N, M, 1), lambda i, j, _: pair((x[i, j, k], k.var), axis=k), name="pairs"
    )
    return te.compute((N, M), lambda i, j: found[0][i, j, 0] * 2.0, name="y")


def weights() -> list[Any]:
    """A gradient of shape (1, n, 1) and what a step makes of it."""
    gradient = te.compute(
        (1, N, 1), lambda i, j, k: te.sum(one[i, b, k] * x[j, 0, 0], axis=b), name="gradient"
    )
    return [te.compute(one.shape, lambda *i: one(*i) - gradient(*i), name="new")]


def offset() -> Any:
    """A reduction whose bounds contain the axis of one element."""
    part = te.compute(
        (N, 1),
        lambda i, e: te.sum(x[i, 0, (k := te.reduce_axis((e, e + 3), "k"))] * 1.0, axis=k),
        name="part",
    )
    return te.compute((N, K), lambda i, j: part[i, 0] + x[i, 0, j], name="y")


def scattered() -> Any:
    """A stage whose code reads a whole tensor."""
    rows = te.compute((N, 1), lambda i, e: x[i, e, 0] * 2.0, name="rows")
    places = te.compute((N,), lambda i: (i * 2) % N, name="places")
    return scatter_add(rows, places, (N, 1))


def around_a_scatter() -> Any:
    """A scatter of what reads a kept axis, and what reads the scatter."""
    root = topi.sqrt(topi.sum(x * x, axis=2, keepdims=True))
    rows = te.compute((N,), lambda i: x[i, 0, 0] / root[i, 0, 0], name="rows")
    places = te.compute((N,), lambda i: (i * 2) % N, name="places")
    found = scatter_add(rows, places, (N,))
    return te.compute((N,), lambda i: found[i] * 2.0, name="y")


def share() -> Any:
    """Over a sum over all axes, which are kept."""
    total = topi.sum(one, keepdims=True)
    return te.compute((N,), lambda i: one[0, i, 0] / total[0, 0, 0], name="y")


#: name → outputs, and the shapes of the stages afterwards
CASES: dict[str, tuple[Callable[[], Any], list[tuple[int, ...]]]] = {
    "kept axes": (norm, [(N, M, K), (N, M), (N, M), (N, M, K)]),
    "a kept axis inside": (lambda: norm(1), [(N, M, K), (N, K), (N, K), (N, M, K)]),
    "outputs": (lambda: topi.sum(x, axis=2, keepdims=True), [(N, M, 1)]),
    "axes of an output": (weights, [(1, N, 1), (1, N, 1)]),
    "a batch of one": (
        lambda: topi.nn.relu(topi.tanh(topi.exp(one))),
        [(1, N, 1), (1, N, 1), (1, N, 1)],
    ),
    "several outputs": (argmax, [(N, M), (N, M)]),
    "no axis left": (share, [(), (N,)]),
    "axes of one element on both sides": (
        lambda: one / topi.sum(one, keepdims=True),
        [(1, 1), (1, N, 1)],
    ),
    "a bound": (offset, [(N,), (N, K)]),
    "around a scatter": (
        around_a_scatter,
        [(N,), (N, M, K), (N, M), (N, M), (N,), (N,), (N,)],
    ),
    "read as a whole": (scattered, [(N,), (N, 1), (N, 1)]),
}


def test_a_bound_that_held_only_such_an_axis_is_a_literal() -> None:
    """``Σ_{k < e + 3} for the e of one element → Σ_{k < 3}``."""

    def term(i: Any, e: Any) -> Any:
        k = te.reduce_axis((0, e + 3), "k")
        return te.sum(x[i, 0, k], axis=k)

    part = te.compute((N, 1), term, name="part")
    made = without_unit_axes([te.compute((N,), lambda i: part[i, 0] * 2.0, name="y")])
    [total, _] = [op for op in topological(made) if not is_placeholder(op)]
    assert [axis_range(axis) for axis in total.reduce_axis] == [(0, 3)]


def listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


@pytest.mark.parametrize("name", CASES)
def test_values_and_shapes(name: str) -> None:
    make, want = CASES[name]
    plain = normal_form(listed(make()))
    made = without_unit_axes(plain)
    shapes = [shape_of(op.output(0)) for op in topological(made) if not is_placeholder(op)]
    assert shapes == want
    assert [shape_of(tensor) for tensor in made] == [shape_of(tensor) for tensor in plain]
    rng = np.random.default_rng(0)
    values = [(t, rng.normal(size=[int(n) for n in t.shape])) for t in (x, one)]
    for left, right in zip(plain, made, strict=True):
        before, after = evaluate_graph([left, right], values, {})
        np.testing.assert_array_equal(after, before)


def test_a_normalisation_that_keeps_its_axes_is_one_pass_over_its_rows() -> None:
    """Forward and backward, but for the gradient of the weights."""
    long = te.placeholder((40, 22, 136), "float32", "x")
    scale, head = (te.placeholder((40, 22, 136), "float32", name) for name in ("w", "h"))
    root = topi.sqrt(topi.sum(long * long, axis=2, keepdims=True) + 1e-5)
    gradients = ad.differentiate(long / root * scale, [long, scale], head)
    kernels, _ = cut(without_unit_axes(normal_form(gradients)), False)
    assert len(kernels) == 1
    assert isinstance(kernels[0], FusionGroup)
    assert kernels[0].extents == (40, 22)
