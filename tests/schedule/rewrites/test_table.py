"""Each rewrite of the table alone, on programs of every kind: equal values."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.schedule.rewrites.table import BEFORE_KERNELS, INTO_KERNELS, Rewrite, rewritten

x = te.placeholder((6, 8), "float64", name="x")
w = te.placeholder((8, 5), "float64", name="w")
v = te.placeholder((5, 6), "float64", name="v")
s = te.placeholder((), "float64", name="s")
INPUTS = (x, w, v, s)


def group():
    k, n = te.reduce_axis((0, 8), "k"), te.reduce_axis((0, 5), "n")
    return te.compute(
        (6, 6), lambda i, j: te.sum(x[i, k] * w[k, n] * v[n, j] * s() * 2.0, axis=[k, n]), name="y"
    )


def softmax():
    return topi.nn.softmax(topi.matmul(x, w))


def window():
    a = te.reduce_axis((0, 3), "a")
    place = lambda j: te.max(te.min(j, 7), 0)  # noqa: E731
    return te.compute(
        (6, 8),
        lambda i, j: te.sum(te.exp(x[i, place(j + a - 1)] * s()) * w[a, 0] / s(), axis=a),
        name="y",
    )


def running():
    k = te.reduce_axis((0, 8), "k")
    zero = te.const(0.0, "float64")
    return te.compute(
        (6, 8),
        lambda i, j: te.sum(te.if_then_else(k < j, x[i, k] * w[k, 1], zero), axis=k),
        name="y",
    )


def loop():
    def step(state, row):
        return te.compute((8,), lambda j: te.tanh(state[j] + row[j] * s()), name="state"), None

    start = te.compute((8,), lambda j: w[j, 0], name="start")
    return ad.scan(step, start, x)[0]


PROGRAMS = {one.__name__: one for one in (group, softmax, window, running, loop)}
ROWS = {one.apply.__name__: one for one in (*BEFORE_KERNELS, *INTO_KERNELS)}


@functools.cache
def evaluated(name):
    """A program with its gradients, arguments, and values."""
    y = PROGRAMS[name]()
    # not constant, of which the gradient of a softmax is zero, and all of it rounding
    head = te.compute(y.shape, lambda *at: 1.5 - (at[-1] % 3).astype("float64"), name="head")
    tensors = [y, *ad.differentiate(y, list(INPUTS), head)]
    rng = np.random.default_rng(0)
    given = {t: rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in INPUTS}
    return tensors, given, evaluate_graph(tensors, given)


@pytest.mark.filterwarnings("ignore::tvm_autodiff.UnrelatedInputWarning")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("row", ROWS)
def test_each_alone(row, name):
    tensors, given, want = evaluated(name)
    for got, exact in zip(evaluate_graph(ROWS[row].apply(tensors), given), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-12)


def test_exact_math_and_other_targets_leave_rows_out():
    seen: list[str] = []

    def step(name):
        return lambda tensors: (seen.append(name), list(tensors))[1]

    table = (
        Rewrite(step("always")),
        Rewrite(step("inexact"), exact=False),
        Rewrite(step("cpu"), kinds=("llvm",)),
    )
    for kind, exact, names in (
        ("llvm", False, ["always", "inexact", "cpu"]),
        ("llvm", True, ["always", "cpu"]),
        ("cuda", False, ["always", "inexact"]),
        (None, True, ["always", "cpu"]),
    ):
        seen.clear()
        assert rewritten([x], table, kind, exact) == [x]
        assert seen == names
