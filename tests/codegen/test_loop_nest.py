"""Functions of loops that are written directly."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.ir.prim import Let

from tvm_autodiff.codegen.loop_nest import (
    combination,
    counter,
    element,
    function,
    loop,
    parameter,
    sequence,
    store,
)
from tvm_autodiff.graph.stage import reduction_of


def test_an_expression_may_bind_its_variables_in_several_places():
    """``r[i] = let t = 2.0 in t*a[i]; r[4 + i] = let t = 3.0 in t*a[i]``, one variable ``t``."""
    A, R = te.placeholder((4,), name="A"), te.placeholder((8,), name="R")
    buffers = [parameter(A, "a"), parameter(R, "r")]
    i, t = counter("i", 4), tirx.Var("t", "float32")
    halves = [
        loop(i, 4, store(buffers[1], Let(t, number, t * element(buffers[0], [i])), [place + i]))
        for place, number in ((0, tirx.const(2.0, "float32")), (4, tirx.const(3.0, "float32")))
    ]
    main = function(buffers, sequence(halves)).with_attr("global_symbol", "main")
    result, numbers = np.zeros(8, "float32"), np.arange(4, dtype="float32")
    tvm.compile(tvm.IRModule({"main": main}), target="llvm")["main"](numbers, result)
    np.testing.assert_array_equal(result, [*(2 * numbers), *(3 * numbers)])


#: reducer → statements in front of a combination: names of what it repeats
REDUCERS = {
    "sum": (lambda a, b: a + b, 0),
    "probabilities": (lambda a, b: a + b - a * b, 1),
}


@pytest.mark.parametrize("name", REDUCERS)
def test_operands_that_a_reducer_repeats_are_named(name: str) -> None:
    combine, count = REDUCERS[name]
    reducer = te.comm_reducer(combine, lambda dtype: tirx.const(0, dtype))
    x, k = te.placeholder((9,), name="x"), te.reduce_axis((0, 9), "k")
    reduction = reduction_of(te.compute((), lambda: reducer(x[k] * x[k], axis=k)).op)
    assert reduction is not None
    before, [result] = combination(reduction.combiner, [tirx.const(0.5)], reduction.sources)
    assert len(before) == count
    assert ("element" in str(result)) == bool(count)
