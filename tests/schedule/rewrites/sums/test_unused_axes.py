"""Reductions over axes that their source does not read: what is left, and equal values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff import build, differentiate
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import axis_range, bodies, is_compute, reduced_axes
from tvm_autodiff.schedule.rewrites.sums.unused_axes import without_repeated_elements
from tvm_autodiff.schedule.rewrites.table import BEFORE_KERNELS, rewritten

N, K, L = 3, 5, 4
x = te.placeholder((N, K), "float64", name="x")
size = te.var("size")


def reduced(body, reduce=te.sum, extent=L, dtype="float64"):
    k, m = te.reduce_axis((0, K), "k"), te.reduce_axis((0, extent), "m")
    return te.compute(
        (N,), lambda i: reduce(body(i, k, m).astype(dtype), axis=[k, m]), name="y"
    )


def rows(bound):
    """A sum whose second range is that of a function of k."""
    k = te.reduce_axis((0, K), "k")
    m = te.reduce_axis((0, bound(k)), "m")
    return te.compute((N,), lambda i: te.sum(x[i, k], axis=[k, m]), name="y")


def alone():
    m = te.reduce_axis((2, L), "m")  # from 2, L elements
    return te.compute((N,), lambda i: te.sum(x[i, 0], axis=m), name="y")


def pair():
    k, m = te.reduce_axis((0, K), "k"), te.reduce_axis((0, L), "m")
    both = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda a, b: (te.const(0, a), te.const(0, b)),
        name="both",
    )
    return te.compute((N,), lambda i: both((x[i, k], x[i, k] * 2.0), axis=[k, m]), name="y")


#: name → (stage, extents of the reduce axes that are left)
CASES = {
    "a sum": (lambda: reduced(lambda i, k, m: x[i, k]), [K]),
    "the outer axis": (lambda: reduced(lambda i, k, m: x[i, m]), [L]),
    "a maximum": (lambda: reduced(lambda i, k, m: x[i, k], te.max), [K]),
    "a minimum": (lambda: reduced(lambda i, k, m: x[i, k], te.min), [K]),
    "no axis is left": (alone, []),
    "all are read": (lambda: reduced(lambda i, k, m: x[i, (k + m) % K]), [K, L]),
    "in a condition": (
        lambda: reduced(lambda i, k, m: te.if_then_else(m < 2, x[i, k], 0.0)),
        [K, L],
    ),
    "by the range of another": (lambda: rows(lambda k: k + 1), [K, None]),
    "no elements": (lambda: reduced(lambda i, k, m: x[i, k], extent=0), [K, 0]),
    "a size of the call": (lambda: reduced(lambda i, k, m: x[i, k], extent=size), [K, None]),
    "16 bits": (lambda: reduced(lambda i, k, m: x[i, k], dtype="float16"), [K, L]),
    "several sums": (pair, [K]),
}


def extents(outputs):
    """The extents of all reduce axes; None is one that is no number."""
    found = [axis for op in Graph(outputs).ops if is_compute(op) for axis in reduced_axes(op)]
    return [n if isinstance(n := axis_range(axis)[1], int) else None for axis in found]


@pytest.mark.parametrize("name", CASES)
def test_what_is_left(name):
    make, left = CASES[name]
    y = make()
    outputs = list(y) if isinstance(y, (list, tuple)) else [y]
    changed = without_repeated_elements(outputs)
    assert extents(changed) == left
    if name == "a size of the call":
        return
    given = {x: np.random.default_rng(0).uniform(-1.0, 1.0, (N, K))}
    wanted, got = evaluate_graph(outputs, given), evaluate_graph(changed, given)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_exact_math_adds_each_element():
    y = reduced(lambda i, k, m: x[i, k])
    assert extents(rewritten([y], BEFORE_KERNELS, exact_math=True)) == [K, L]
    assert extents(rewritten([y], BEFORE_KERNELS)) == [K]


def test_the_gradient_of_a_mean_over_a_broadcast_has_no_loop():
    w = te.placeholder((N, K), "float64", name="w")
    i, k, m = (te.reduce_axis((0, n)) for n in (N, K, L))
    wide = te.compute((N, K, L), lambda i, k, m: te.exp(x[i, k]), name="wide")
    loss = te.compute((), lambda: te.sum(wide[i, k, m] * w[i, k], axis=[i, k, m]), name="loss")
    [dx] = differentiate(loss, [x])
    assert extents(rewritten([dx], BEFORE_KERNELS)) == []
    rng = np.random.default_rng(1)
    given = [rng.standard_normal((N, K)) for _ in range(2)]
    np.testing.assert_allclose(
        build([x, w], dx)(*given), L * np.exp(given[0]) * given[1], rtol=1e-12
    )


@pytest.mark.parametrize(("node", "sign"), [(tirx.Max, -1.0), (tirx.Min, 1.0)])
def test_a_reducer_that_begins_with_zero_keeps_it(node, sign):
    """Where no axis is left, the number that the reducer begins with still counts."""
    from_zero = te.comm_reducer(lambda a, b: node(a, b), lambda t: tirx.const(0, t))
    m = te.reduce_axis((0, L), "m")
    y = te.compute((N,), lambda i: from_zero(x[i, 0], axis=m), name="y")
    data = sign * np.arange(1.0, N * K + 1).reshape(N, K)
    [got] = evaluate_graph(without_repeated_elements([y]), {x: data})
    np.testing.assert_array_equal(got, np.zeros(N))
    np.testing.assert_array_equal(build([x], y)(data), np.zeros(N))


@pytest.mark.parametrize("reduce", [te.max, te.min])
def test_the_least_number_does_not_count(reduce):
    m = te.reduce_axis((0, L), "m")
    y = te.compute((N,), lambda i: reduce(x[i, 0], axis=m), name="y")
    [got] = without_repeated_elements([y])
    assert op_name(bodies(got.op)[0]) == "load"
