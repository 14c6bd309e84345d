"""Vectors picked from memory and put back hold the elements that scalars would."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from tvm_autodiff.codegen.loop_nest import Places, allocated, function, local, parameter, sequence
from tvm_autodiff.codegen.stages.primfunc import relax_alignment
from tvm_autodiff.codegen.vectors import filled_with, picked, whole, widened_read, widened_store
from tvm_autodiff.expr.nodes import load


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("stride", [2, 3])
def test_every_other_element_and_back(stride, lanes):
    """``y[s*i] = x[s*i + s - 1], y[s*i + 1..] = x[s*i]``."""
    X, Y = (te.placeholder((2, stride * lanes), name=name) for name in "XY")
    places = Places()
    x, y = parameter(X, "x"), parameter(Y, "y")
    places.put(X, x)
    places.put(Y, y)
    row = te.const(1, "int32")
    starts = [te.const(number * lanes, "int32") for number in range(stride)]
    wide = [widened_read(places.read(load(X, [row, start])), lanes) for start in starts]
    parts = [local(f"t{residue}", [lanes], "float32") for residue in range(stride)]
    residues = [stride - 1, *[0] * (stride - 1)]
    before = [
        filled_with(part, picked(wide, [lane * stride + residue for lane in range(lanes)]))
        for part, residue in zip(parts, residues, strict=True)
    ]
    after = []
    for number, start in enumerate(starts):
        positions = range(number * lanes, (number + 1) * lanes)
        numbers = [p % stride * lanes + p // stride for p in positions]
        store = places.write(Y, te.const(0.0, "float32"), [row, start])
        after.append(widened_store(store, picked([whole(p) for p in parts], numbers), lanes))
    func = relax_alignment(function([x, y], allocated(parts, sequence([*before, *after]))))
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    data = np.arange(2 * stride * lanes, dtype="float32").reshape(2, -1)
    result = np.zeros_like(data)
    tvm.compile(module, target="llvm")["main"](data, result)
    blocks = data[1].reshape(lanes, stride)
    np.testing.assert_array_equal(result[1], blocks[:, residues].ravel())
    np.testing.assert_array_equal(result[0], 0)
