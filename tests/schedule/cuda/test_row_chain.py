"""Chains and reductions by blocks of threads give what the CPU gives, and write every element once.

The phases of a block run one after the other with plain loops over threads (`serial`).
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.schedule.cuda.serial import gpu, rules_of, run, scheduled, writes
from tests.schedule.cuda.test_cuda_sources import PROGRAMS, with_gradients
from tvm_autodiff.expr.nodes import is_float
from tvm_autodiff.schedule.cuda.verify import problem_of


def placeholder(name, *shape, dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def softmax(rows, columns, dtype="float32"):
    x = placeholder("x", rows, columns, dtype=dtype)
    return [x], topi.nn.softmax(x)


def layer_norm(rows, columns, dtype="float32"):
    x, g, b = placeholder("x", rows, columns), placeholder("g", columns), placeholder("b", columns)
    return [x, g, b], topi.nn.layer_norm(x, g, b, [1])


def group_norm():
    x, g, b = placeholder("x", 3, 8, 5, 7), placeholder("g", 8), placeholder("b", 8)
    return [x, g, b], topi.nn.group_norm(x, g, b, 2, 1, [2, 3])


def cross_entropy(rows, classes):
    x, y = placeholder("x", rows, classes), placeholder("y", rows, classes)
    return [x, y], topi.negative(topi.sum(topi.multiply(topi.nn.log_softmax(x), y)))


def scores(rows, columns):
    x = placeholder("x", 2, rows, columns)
    masked = te.compute(
        x.shape, lambda b, i, j: te.if_then_else(j <= i, x[b, i, j] * 0.5, -1e9), name="masked"
    )
    return [x], topi.nn.softmax(masked)


def gated(rows, columns):
    x = placeholder("x", rows, 4 * columns)
    i, f, g, o = topi.split(topi.nn.softmax(x), 4, 1)
    return [x], topi.sigmoid(o) * topi.tanh(f) + i * g


def long_product(rows, columns):
    """A reducer that TVM does not know."""
    x, k = placeholder("x", rows, columns), te.reduce_axis((0, columns), "k")
    both = te.comm_reducer(lambda a, b: a + b + a * b, lambda t: tirx.const(0, t))
    return [x], te.compute((rows,), lambda i: both(x[i, k] * 0.01, axis=k), name="both")


#: a program, and how many functions its chains and kernels become, with all gradients
CASES = {
    "softmax": (softmax(33, 70), 1),
    "softmax of a prime": (softmax(7, 1031), 1),
    "softmax of one row": (softmax(1, 300), 1),
    "softmax of float64": (softmax(5, 600, "float64"), 1),
    "softmax of many short rows": (softmax(1056, 40), 1),
    "layer norm": (layer_norm(16, 96), 3),
    "layer norm of long rows": (layer_norm(40, 5000), 3),
    "group norm": (group_norm(), None),
    "cross entropy": (cross_entropy(20, 100), None),
    "masked scores": (scores(24, 24), 1),
    "gates": (gated(12, 64), None),
    "maximum": (PROGRAMS["maximum"](), None),
    "attention": (PROGRAMS["attention"](), None),
}


@pytest.mark.parametrize("name", CASES)
def test_chain_with_gradients(name):
    program, count = CASES[name]
    inputs, outputs = with_gradients(*program)
    assert "row_chain" in rules_of(outputs)
    launches = scheduled(outputs)
    assert count is None or len(launches) == count
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([int(d) for d in t.shape]).astype(str(t.dtype))
        if is_float(t)
        else rng.integers(0, 5, [int(d) for d in t.shape]).astype(str(t.dtype))
        for t in inputs
    ]
    want = ad.build(inputs, outputs, exact_math=True)(*arrays)
    for ours, theirs in zip(run(inputs, outputs, arrays), want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
    for launch, rule in launches:
        assert problem_of(launch.func, gpu()) is None
        if rule == "row_chain" and len(launches) == 1:
            for written in writes(launch, {}):
                np.testing.assert_array_equal(written, np.ones_like(written))


@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_symbolic_rows(rows):
    n = te.var("n")
    inputs, outputs = with_gradients(*softmax(n, 300))
    assert rules_of(outputs) == ["row_chain"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((rows, 300)).astype("float32") for _ in inputs]
    want = ad.build(inputs, outputs, exact_math=True)(*arrays)
    for ours, theirs in zip(run(inputs, outputs, arrays), want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("size", [(3, 33), (37, 150), (260, 64), (2, 20_000)])
def test_any_reducer(size):
    inputs, output = long_product(*size)
    assert rules_of(output) == ["any_reducer"]
    x = np.random.default_rng(0).standard_normal(size).astype("float32")
    want = np.prod(1 + 0.01 * x.astype("float64"), axis=1) - 1
    np.testing.assert_allclose(run(inputs, output, [x]), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(5, 200), (64, 9000)])
def test_place_of_the_maximum_with_its_value(size):
    inputs, outputs = with_gradients(*softmax(*size))
    names = rules_of(outputs)
    assert "fallback" not in names
    x = np.zeros(size, "float32")  # all equal: the first wins
    head = np.random.default_rng(0).standard_normal(size).astype("float32")
    got = run(inputs, outputs, [x, head] if inputs[0].op.name == "x" else [head, x])
    want = ad.build(inputs, outputs)(*([x, head] if inputs[0].op.name == "x" else [head, x]))
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-6)
