"""Vectors of elements that lie apart: what is read, and which elements become the vector."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import sym, tirx

from tvm_autodiff.codegen.host.direct_calls import PIPELINE
from tvm_autodiff.codegen.loop_nest import function
from tvm_autodiff.codegen.passes.vectors.strided_reads import as_whole_vectors

#: stride, lanes, and whether whole vectors are read
READS = [
    (2, 16, True),
    (2, 8, True),
    (2, 4, True),
    (3, 16, True),
    (3, 8, True),
    (4, 8, True),
    (5, 16, True),
    (8, 16, True),
    (-1, 16, True),
    (-1, 4, True),
    (-2, 8, True),
    (-3, 16, True),
    (1, 16, False),
    (3, 4, False),
    (9, 16, False),
    (-5, 8, False),
]
BEGIN = 64


def strided(stride: int, lanes: int, dtype: str = "float32"):
    buffer = tirx.decl_buffer((256,), dtype, "x")
    return buffer, tirx.BufferLoad(buffer, [tirx.Ramp(BEGIN, stride, lanes)])


@pytest.mark.parametrize(("stride", "lanes", "whole"), READS)
def test_what_is_read(stride, lanes, whole):
    _, read = strided(stride, lanes)
    made = as_whole_vectors(read)
    if not whole:
        assert made.same_as(read)
        return
    simplify = sym.Analyzer().simplify
    starts = [int(simplify(vector.indices[0].base)) for vector in made.vectors]
    places = np.concatenate([np.arange(start, start + lanes) for start in starts])
    wanted = BEGIN + stride * np.arange(lanes)
    np.testing.assert_array_equal(places[[int(n) for n in made.indices]], wanted)
    assert places.min() == wanted.min()
    assert places.max() == wanted.max()


def test_of_conditions_and_by_a_variable_stay():
    buffer, _ = strided(2, 8)
    variable = tirx.BufferLoad(buffer, [tirx.Ramp(0, tirx.Var("n", "int32"), 8)])
    for read in (strided(2, 8, "bool")[1], variable):
        assert as_whole_vectors(read).same_as(read)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "float16"])
@pytest.mark.parametrize(("stride", "lanes"), [(2, 8), (3, 16), (-1, 8), (-2, 4)])
def test_compiled(dtype, stride, lanes):
    x, read = strided(stride, lanes, dtype)
    out = tirx.decl_buffer((lanes,), dtype, "out")
    body = tirx.BufferStore(out, read, [tirx.Ramp(0, 1, lanes)])
    module = tvm.IRModule({"main": function([x, out], body).with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target="llvm", tir_pipeline=PIPELINE)
    values, result = np.arange(256).astype(dtype), tvm.runtime.empty((lanes,), dtype)
    compiled(tvm.runtime.tensor(values), result)
    np.testing.assert_array_equal(result.numpy(), values[BEGIN + stride * np.arange(lanes)])
