"""Parts of expressions that are far larger as trees than as graphs: what is stored, and values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff import build
from tvm_autodiff.expr.rewrite import tree_size
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_compute, shape_of, sources_of
from tvm_autodiff.schedule.rewrites.values.stored_parts import with_stored_parts

N, M = 6, 5
x = te.placeholder((N, M), "float64", name="x")
at = te.placeholder((N,), "float64", name="at")


def reflected(value, high):
    """A coordinate, reflected at both ends."""
    value = te.if_then_else(value < 0.0, -value, value)
    return te.if_then_else(value > high, 2.0 * high - value, value)


def interpolated(i, j):
    """Interpolations at reflected places."""
    total = te.const(0.0, "float64")
    for term in range(12):
        place = reflected(reflected(at[i] * float(term + 1), N - 1.0), N - 2.0)
        low = te.floor(place).astype("int32")
        weight = place - te.floor(place)
        inside = te.all(low >= 0, low < N)
        near = te.if_then_else(inside, x[low, j], 0.0)
        after = te.all(low + 1 >= 0, low + 1 < N)
        far = te.if_then_else(after, x[low + 1, j], 0.0)
        total = total + near * (1.0 - weight) + far * weight
    return total


def summed():
    k = te.reduce_axis((0, M), "k")
    return te.compute((N,), lambda i: te.sum(interpolated(i, k), axis=k), name="y")


LARGE = {
    "elementwise": lambda: te.compute((N, M), interpolated, name="y"),
    "summed": summed,
}


def sizes(tensors):
    """The largest tree of each stage."""
    stages = [op for op in Graph(tensors).ops if is_compute(op)]
    return [max(map(tree_size, sources_of(op))) for op in stages]


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_trees_are_stored(name):
    stage = LARGE[name]()
    [found] = with_stored_parts([stage])
    assert max(sizes([stage])) > 4 * max(sizes([found]))
    rng = np.random.default_rng(0)
    given = {x: rng.uniform(-3.0, 8.0, (N, M)), at: rng.uniform(-9.0, 14.0, N)}
    [wanted], [got] = evaluate_graph([stage], given), evaluate_graph([found], given, strict=True)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    np.testing.assert_allclose(build([x, at], stage)(*given.values()), wanted, rtol=1e-12)


def test_a_part_has_the_axes_that_it_depends_on():
    [found] = with_stored_parts([LARGE["elementwise"]()])
    shapes = {shape_of(op.output(0)) for op in Graph([found]).ops if is_compute(op)}
    assert (N,) in shapes


@pytest.mark.parametrize("reduced", [False, True])
def test_small_graphs_stay_whole_where_each_node_is_written_once(reduced):
    """Doublings are a large tree; the rules for sums write trees."""

    def doubled(i, j):
        value = x[i, j]
        for _ in range(10):
            value = value * 0.5 + value * value * 0.25
        return value

    k = te.reduce_axis((0, M), "k")
    stage = te.compute(
        *(((N,), lambda i: te.sum(doubled(i, k), axis=k)) if reduced else ((N, M), doubled))
    )
    assert max(sizes([stage])) > 24_000
    [got] = with_stored_parts([stage])
    assert got.same_as(stage) != reduced
    given = {x: np.linspace(0.0, 1.0, N * M).reshape(N, M)}
    [want], [found] = evaluate_graph([stage], given), evaluate_graph([got], given)
    np.testing.assert_allclose(found, want, rtol=1e-12)
