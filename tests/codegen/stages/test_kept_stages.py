"""Stages that functions keep as text: they come back over other tensors and other sizes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import ir, te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.codegen.stages.kept_stages import ATTRIBUTE, keeping_stages
from tvm_autodiff.codegen.stages.primfunc import stage_function
from tvm_autodiff.codegen.stages.recovered import UnrecoveredError, recovered
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import is_placeholder

RNG = np.random.default_rng(0)


def segments(n):
    values, rows = te.placeholder((n, 3), name="values"), te.placeholder((n,), "int32", name="rows")
    return [values, rows], ad.segment_sum(values, rows, 4)


def products(n):
    x = te.placeholder((n, 5), name="values")
    k = te.reduce_axis((0, 5), "k")
    combine = te.comm_reducer(lambda a, b: a + b + a * b, lambda dtype: tirx.const(0, dtype))
    out = te.compute((n,), lambda i: combine(x[i, k], axis=k), name="out")
    head = te.placeholder((n,), name="head")
    return [x, head], ad.differentiate(out, [x], head)[0]


ARRAYS = {
    segments: lambda n: [
        RNG.standard_normal((n, 3)).astype("float32"),
        RNG.integers(0, 4, n).astype("int32"),
    ],
    products: lambda n: [RNG.standard_normal(s).astype("float32") for s in ((n, 5), (n,))],
}


@pytest.mark.parametrize("make", ARRAYS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_stages_come_back(make, symbolic):
    _, output = make(te.var("n", "int64") if symbolic else 6)
    ops = [op for op in topological([output]) if not is_placeholder(op)]
    launch = keeping_stages(stage_function(ops, [output], wide=True))
    with pytest.raises(UnrecoveredError):
        recovered(launch.func.without_attr(ATTRIBUTE), [*launch.inputs, *launch.scalars])
    func = ir.load_json(ir.save_json(launch.func))
    arguments, wanted = make(6)
    places = {tensor.op.name: tensor for tensor in arguments}
    scalars = [tirx.const(6, "int64") for _ in launch.scalars]
    given = [places[tensor.op.name] for tensor in launch.inputs]
    pairs = list(zip(arguments, ARRAYS[make](6), strict=True))
    [got] = evaluate_graph(recovered(func, [*given, *scalars]), pairs)
    [want] = evaluate_graph([wanted], pairs)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_loops_are_not_written_down():
    xs = te.placeholder((7, 3), name="xs")

    def step(state, x):
        new = te.compute((3,), lambda i: 0.5 * state[i] + x[i], name="new")
        return new, None

    start = te.compute((3,), lambda i: tirx.const(0.0, "float32"), name="start")
    last, _ = ad.scan(step, start, xs)
    ops = [op for op in topological([last]) if not is_placeholder(op)]
    launch = stage_function(ops, [last])
    assert keeping_stages(launch) is launch
