"""Vectors of conditions as numbers, which TVM cannot bind to a variable."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_autodiff as ad
from tvm_autodiff.codegen.host.direct_calls import PIPELINE
from tvm_autodiff.codegen.loop_nest import bind, function, sequence

LANES = 4


def run(tirx_pipeline, dtype):
    """``v = x[0..4] > 0 as numbers; out[0..4] = v``, compiled and called."""
    x, out = tirx.decl_buffer((LANES,), "float32", "x"), tirx.decl_buffer((LANES,), dtype, "out")
    every = tirx.Ramp(0, 1, LANES)
    zero = tirx.Broadcast(tirx.const(0.0, "float32"), LANES)
    value = tirx.Cast(f"{dtype}x{LANES}", tirx.GT(tirx.BufferLoad(x, [every]), zero))
    var = tirx.Var("v", f"{dtype}x{LANES}")
    body = sequence([bind(var, value), tirx.BufferStore(out, var, [every])])
    module = tvm.IRModule({"main": function([x, out], body).with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target="llvm", tir_pipeline=tirx_pipeline)
    result = tvm.runtime.empty((LANES,), dtype)
    compiled(tvm.runtime.tensor(np.array([1, -1, 0, 3], "float32")), result)
    return result.numpy()


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "float32", "float64", "float16"])
def test_bound_to_a_variable(dtype):
    np.testing.assert_array_equal(run(PIPELINE, dtype), np.array([1, 0, 0, 1], dtype))


def test_tvm_alone_refuses_it():
    """When this passes without an error, the pass has served its time."""
    with pytest.raises(Exception, match="IntImm can only take scalar"):
        run("s_tir", "int32")


@pytest.mark.parametrize(("rows", "columns"), [(6, 8), (5, 13), (3, 64)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_rows_run_in_vectors(rows, columns, dtype):
    """Zeros are counted, which is a condition as a number."""
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t))
    x = te.placeholder((rows, columns), dtype, name="x")
    head, k = te.placeholder((rows,), dtype, name="head"), te.reduce_axis((0, columns), "k")
    y = te.compute((rows,), lambda i: product(x[i, k], axis=k), name="y")
    [gradient] = ad.differentiate(y, [x], head)
    step = ad.build([x, head], gradient, cache=False)
    assert "TVM rejects" not in (step.notice or "")
    rng = np.random.default_rng(columns)
    array, cotangent = rng.uniform(0.5, 1.5, (rows, columns)), rng.uniform(-1, 1, rows)
    array[1, 2] = array[2, 0] = array[2, 5] = 0
    others = [np.prod(np.delete(array, j, 1), 1) * cotangent for j in range(columns)]
    got = step(array.astype(dtype), cotangent.astype(dtype))
    np.testing.assert_allclose(got, np.stack(others, 1), rtol=1e-4 if dtype == "float32" else 1e-12)
