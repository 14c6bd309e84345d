"""Gradients lowered by TVM alone: what `differentiate` returns holds nothing that it would drop."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from tvm_autodiff import build, differentiate
from tvm_autodiff.expr.nodes import always
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_compute, reduction_of

D = "float64"
A = te.placeholder((3, 5), D, name="A")
HEAD = te.placeholder((3,), D, name="head")


def reduced(combine, identity, **options):
    k = te.reduce_axis((0, 5), "k")
    reducer = te.comm_reducer(combine, lambda t: tirx.const(identity, t), name="reducer")
    return lambda: te.compute((3,), lambda i: reducer(A[i, k], axis=k, **options), name="y")


CASES = {
    "sum": lambda: topi.sum(A, axis=1),
    "max": lambda: topi.max(A, axis=1),
    "product": reduced(lambda a, b: a * b, 1),
    "user-made": reduced(lambda a, b: a * b + a + b, 0),
}


@pytest.mark.parametrize("name", ["sum", "max", "product", "user-made"])
def test_tvm_alone_lowers_gradients_rightly(name):
    y = CASES[name]()
    [dA] = differentiate(y, A, HEAD)
    needed = Graph([dA]).placeholders()
    rng = np.random.default_rng(0)
    values = {"A": rng.uniform(0.5, 1.5, (3, 5)), "head": rng.standard_normal(3)}
    arrays = [values[tensor.op.name] for tensor in needed]
    result = np.zeros((3, 5))
    compiled = tvm.compile(te.create_prim_func([*needed, dA]), target="llvm")
    compiled(*arrays, result)
    assert np.allclose(result, build(needed, dA)(*arrays))


@pytest.mark.parametrize("name", ["max", "product", "user-made"])
def test_no_stage_has_a_where_condition_of_ours(name):
    [dA] = differentiate(CASES[name](), A, HEAD)
    [second] = differentiate(dA, A, te.placeholder((3, 5), D, name="head2"))
    for op in Graph([dA, second]).ops:
        reduction = reduction_of(op) if is_compute(op) else None
        assert reduction is None or always(reduction.condition), op.name
