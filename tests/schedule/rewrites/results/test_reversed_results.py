"""Reductions from the last result to the first: which are, and equal values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.build import true
from tvm_autodiff.graph.stage import (
    Reduction,
    data_axis,
    reduce_axis,
    reduction_stage,
    shape_of,
    sum_combiner,
)
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.results.reversed_results import reversed_results

F, N, K = "float64", 24, 17
x = te.placeholder((3, N + K), F, name="x")
y = te.placeholder((3, N + K), F, name="y")
ite = te.if_then_else


def total(body, shape=(3, K)):
    k = te.reduce_axis((0, N), "k")
    return te.compute(shape, lambda *i: te.sum(body(*i, k), axis=k), name="d")


#: name → (the stage, whether its results are reversed)
CASES = {
    "weights of a filter": (lambda: total(lambda b, i, k: y[b, k] * x[b, k - i + K - 1]), True),
    "before the begin": (
        lambda: total(lambda b, i, k: ite(k - i >= 0, y[b, k] * x[b, k - i], 0.0)),
        True,
    ),
    "two axes": (
        lambda: total(lambda i, j, k: x[0, k + 2 * K - 2 - i - j] * y[1, k], (K, K)),
        True,
    ),
    "along memory": (lambda: total(lambda b, i, k: y[b, k] * x[b, k + i]), False),
    "along and against": (
        lambda: total(lambda b, i, k: y[b, k + i] * x[b, k - i + K - 1]),
        False,
    ),
    "few results": (lambda: total(lambda b, i, k: y[b, k] * x[b, k - i + 6], (3, 7)), False),
}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_order_and_values(name: str, after: bool) -> None:
    make, reverses = CASES[name]
    stage = make()
    output = te.compute(stage.shape, lambda *i: te.exp(stage(*i)), name="z") if after else stage
    found = reversed_results(Kernel(stage.op, output.op if after else None))
    assert (found is not None) == reverses
    if found is None:
        return
    whole, reader = found
    assert shape_of(whole.root.output(0)) == shape_of(stage)
    assert reversed_results(whole) is None
    rng = np.random.default_rng(0)
    values = [(t, rng.normal(size=(3, N + K)) / 9) for t in (x, y)]
    want, got = evaluate_graph([output, reader.outputs[0]], values)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_sum_whose_end_the_result_tells_is_not_reversed():
    outer = [data_axis("b", 3), data_axis("i", K)]
    b, i = (axis.var for axis in outer)
    k = reduce_axis("k", i + 1)
    found = Reduction(sum_combiner(F), (x(b, k.var - i + K) * y(b, k.var),), (k,), true(), ())
    [ragged] = reduction_stage("ragged", outer, found)
    assert reversed_results(Kernel(ragged.op)) is None
