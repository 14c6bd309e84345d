"""A result over split axes, written as the tensor that it lies in memory as."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from tvm_autodiff.codegen.passes.merged_axes import with_merged_parameter


def doubled(*shape):
    x = te.placeholder(shape, name="x")
    return x, te.compute(shape, lambda *i: x(*i) * 2.0, name="y")


def summed(*shape):
    """Adds up in its result, which it reads."""
    x = te.placeholder((*shape, 3), name="x")
    k = te.reduce_axis((0, 3), "k")
    return x, te.compute(shape, lambda *i: te.sum(x(*i, k), axis=k), name="y")


TABLE = [
    (doubled, (4, 5), (20,), ((0, 1),)),
    (doubled, (2, 3, 4), (2, 12), ((0,), (1, 2))),
    (doubled, (2, 3, 4, 5), (6, 20), ((0, 1), (2, 3))),
    (doubled, (2, 3, 4), (2, 3, 4), ((0,), (1,), (2,))),
    (summed, (4, 5), (20,), ((0, 1),)),
    (summed, (2, 3, 4), (6, 4), ((0, 1), (2,))),
]


@pytest.mark.parametrize(("stage", "split", "shape", "groups"), TABLE)
def test_same_memory_another_shape(stage, split, shape, groups):
    x, y = stage(*split)
    func = with_merged_parameter(te.create_prim_func([x, y]), 1, shape, groups)
    array = np.random.default_rng(0).random([int(d) for d in x.shape], "float32")
    result = tvm.runtime.empty(shape, "float32")
    tvm.compile(func, target="llvm")["main"](tvm.runtime.tensor(array), result)
    want = array * 2 if stage is doubled else array.sum(-1)
    np.testing.assert_allclose(result.numpy(), want.reshape(shape), rtol=1e-6)
