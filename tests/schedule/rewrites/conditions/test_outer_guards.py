"""Conditions that a sum does not change, taken out of it."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff import build
from tvm_autodiff.expr.nodes import COMPARISONS, op_name
from tvm_autodiff.expr.rewrite import depends_on, postorder
from tvm_autodiff.graph.stage import axis_vars, reduction_of
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.conditions.outer_guards import without_outer_guards

N, K = 24, 16
x, y = te.placeholder((N, K), name="x"), te.placeholder((N, K), name="y")
I = te.placeholder((N,), "int32", name="I")  # noqa: E741


def total(value, reduce=te.sum):
    k = te.reduce_axis((0, K), "k")
    return te.compute((N, N), lambda i, j: reduce(value(i, j, k), axis=k), name="s")


def product(i, j, k):
    return x[i, k] * y[j, k]


def guarded(condition, value=product):
    return total(lambda i, j, k: te.if_then_else(condition(i, j, k), value(i, j, k), 0.0))


#: sums that are products without a condition on the results
TAKEN = {
    "alone": guarded(lambda i, j, k: j <= i),
    "beside one of an operand": guarded(lambda i, j, k: te.all(j <= i, k <= j)),
    "a parity": guarded(lambda i, j, k: te.floormod(i + j, 2).equal(0)),
    "a selection": total(lambda i, j, k: tirx.Select(j < i, product(i, j, k), 0.0)),
    "one inside the other": guarded(
        lambda i, j, k: j <= i,
        lambda i, j, k: te.if_then_else(k <= i, product(i, j, k), 0.0),
    ),
}
#: sums that stay
KEPT = {
    "none": total(product),
    "of one operand": guarded(lambda i, j, k: i < 5),
    "of all": guarded(lambda i, j, k: i + j + k < 20),
    "by data": guarded(lambda i, j, k: I[i] < j),
    "a read that needs it": guarded(
        lambda i, j, k: te.all(j <= i, i + j < N), lambda i, j, k: x[i + j, k] * y[j, k] * x[i, k]
    ),
    "a maximum": total(lambda i, j, k: te.if_then_else(j <= i, product(i, j, k), 0.0), te.max),
    "another value": total(lambda i, j, k: te.if_then_else(j <= i, product(i, j, k), 1.0)),
}


def arrays():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((N, K)).astype("float32") for _ in range(2)]


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("epilogue", [False, True])
def test_the_same_sums(name, epilogue):
    s = TAKEN[name]
    reader = te.compute((N, N), lambda a, b: te.exp(s[a, b]) + a, name="r") if epilogue else None
    before = Kernel(s.op, None if reader is None else reader.op)
    after = without_outer_guards(before)
    [source] = reduction_of(after.root).sources
    rows, columns = axis_vars(after.root)
    both = [n for n in postorder(source) if op_name(n) in COMPARISONS and depends_on(n, [rows])]
    assert not any(depends_on(node, [columns]) for node in both)
    given = list(zip((x, y), arrays(), strict=True))
    want, got = (evaluate_graph(kernel.outputs, given)[0] for kernel in (before, after))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KEPT)
def test_the_others_stay(name):
    assert without_outer_guards(Kernel(KEPT[name].op)) is None


@pytest.mark.parametrize("name", ["alone", "beside one of an operand"])
def test_compiled(name):
    given = arrays()
    s = TAKEN[name]
    out = te.compute((N, N), lambda i, j: s[i, j] * 2.0, name="out")
    [want] = evaluate_graph([out], list(zip((x, y), given, strict=True)))
    got = build([x, y], out, cache=False)(*given)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert not got[0, 5]
