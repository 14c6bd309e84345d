"""Loops with lanes that bind the value of a function without vectors, which TVM then forgets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_autodiff as ad
from tvm_autodiff.codegen.host.direct_calls import PIPELINE
from tvm_autodiff.codegen.loop_nest import VECTORIZED, bind, function, loop, sequence

LANES = 8
X = np.linspace(0.1, 0.9, LANES).astype("float32")


def named(value, function):
    """``let v = value in function(v)``."""
    var = tirx.Var("v", "float32")
    return tirx.Let(var, value, function(var))


FUNCTIONS = {
    "rsqrt": (lambda x, lane: tirx.rsqrt(x), lambda x: 1 / np.sqrt(x)),
    "atan": (lambda x, lane: tirx.atan(x), np.arctan),
    "of two": (lambda x, lane: tirx.hypot(x, x), lambda x: np.hypot(x, x)),
    "by name": (lambda x, lane: tirx.call_pure_extern("float32", "cbrtf", x), np.cbrt),
    "a branch": (
        lambda x, lane: tirx.if_then_else(lane < 3, x, -x),
        lambda x: np.where(np.arange(LANES) < 3, x, -x),
    ),
    "of a let": (lambda x, lane: named(x * x, tirx.atan), lambda x: np.arctan(x * x)),
    "with vectors": (lambda x, lane: tirx.sqrt(x), np.sqrt),
}


def run(name, pipeline):
    """``for l in vectorised(8): v = f(x[l]); y[l] = v + 1``, compiled and called."""
    write, _ = FUNCTIONS[name]
    x, y = (tirx.decl_buffer((LANES,), "float32", name) for name in ("x", "y"))
    lane, value = tirx.Var("l", "int32"), tirx.Var("v", "float32")
    bound = bind(value, write(tirx.BufferLoad(x, [lane]), lane))
    stored = tirx.BufferStore(y, value + 1.0, [lane])
    body = loop(lane, LANES, sequence([bound, stored]), VECTORIZED)
    module = tvm.IRModule({"main": function([x, y], body).with_attr("global_symbol", "main")})
    result = tvm.runtime.empty((LANES,), "float32")
    tvm.compile(module, target="llvm", tir_pipeline=pipeline)(tvm.runtime.tensor(X), result)
    return result.numpy()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bound_in_a_vectorised_loop(name):
    np.testing.assert_allclose(run(name, PIPELINE), FUNCTIONS[name][1](X) + 1, rtol=1e-6)


def test_tvm_alone_forgets_it():
    """When this fails, the pass has served its time."""
    with np.errstate(all="ignore"):
        assert not np.allclose(run("atan", "s_tir"), np.arctan(X) + 1)


#: functions that have no vectors in float64, or with exact math
NAMES = ("rsqrt", "atan", "erf", "asinh", "acosh", "tanh")


@pytest.mark.parametrize("exact", [False, True], ids=["own", "exact"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_sums_that_share_a_function(name, dtype, exact):
    """Sums of one pass: each new value is bound before the first is stored."""
    n = 70
    x = te.placeholder((n, 2), dtype, name="x")

    def shared(i, j):
        return getattr(te, name)(x[i, 0] * x[j, 1] + 1.5)

    def total(part):
        k = te.reduce_axis((0, n), "k")
        value = lambda i: te.if_then_else(k < i, shared(i, k) * x[k, part], 0.0)  # noqa: E731
        return te.compute((n,), lambda i: te.sum(value(i), axis=k), name=f"sum{part}")

    values = np.random.default_rng(0).uniform(0.1, 1, (n, 2)).astype(dtype)
    got = ad.build([x], [total(0), total(1)], exact_math=exact, cache=False)(values)
    wide = values.astype("float64")
    of_pairs = np.tril(VALUES[name](wide[:, :1] * wide[:, 1] + 1.5), -1)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for part, one in enumerate(got):
        np.testing.assert_allclose(one, of_pairs @ wide[:, part], rtol=tolerance)


VALUES = {
    "rsqrt": lambda u: 1 / np.sqrt(u),
    "atan": np.arctan,
    "erf": lambda u: np.vectorize(math.erf)(u),
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "tanh": np.tanh,
}
