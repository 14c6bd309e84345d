"""Sizes that are no dimension of an input, in stages of every kind: solved for, passed, no warning.

Values are numpy's, of the definition.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tvm_autodiff.errors import LoweringError, PlainScheduleWarning
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.kinds.kind import kind_of
from tvm_autodiff.graph.kinds.prefix_scan import Scan
from tvm_autodiff.graph.kinds.scatter_add import ScatterAdd
from tvm_autodiff.graph.kinds.update_loops import UpdateLoops

D = "float64"
#: name → (extent of the inputs, of what is made of them, values of the variable to try)
SIZES = {
    "2*p + 1": (lambda p: 2 * p + 1, lambda p: p, (0, 1, 4)),
    "n - 1": (lambda n: n, lambda n: n - 1, (1, 2, 6)),
}


def kinds_in(tensors):
    return {type(kind_of(op)) for op in topological(tensors)}


def quiet_build(inputs, outputs):
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlainScheduleWarning)
        return ad.build(inputs, outputs, cache=False)


def scanned(x, index, size):
    """``Π_k (1 + x[k]) - 1`` of the first elements, by a reducer of one's own."""
    k = te.reduce_axis((0, size), "k")
    reducer = te.comm_reducer(lambda a, b: a * b + a + b, lambda t: tirx.const(0, t))
    first = te.compute((size,), lambda i: x[i], name="first")
    out = te.compute((), lambda: reducer(first[k], axis=k), name="out")
    return list(ad.differentiate(out, [x]))


def scanned_value(x, index, size):
    result = np.zeros(len(x))
    for i in range(size):
        result[i] = np.prod(np.delete(1 + x[:size], i))
    return result


def scattered(x, index, size):
    """``y[i] = x[index[i]]**2`` for the first places, differentiated by a head of ones."""
    place = te.compute((size,), lambda i: index[i], name="place")
    y = te.compute((size,), lambda i: x[place[i]] * x[place[i]], name="y")
    head = te.compute((size,), lambda i: tirx.const(1, D), name="head")
    return list(ad.differentiate(y, [x], head))


def scattered_value(x, index, size):
    result = np.zeros(len(x))
    np.add.at(result, index[:size], 2 * x[index[:size]])
    return result


def looped(x, index, size):
    """``y[i] = Σ_{k<index[i]} x[index[k]]**2`` for the first places."""
    length = te.compute((size,), lambda i: index[i], name="length")

    def row(i):
        k = te.reduce_axis((0, length[i]), "k")
        return te.sum(x[index[k]] * x[index[k]], axis=k)

    y = te.compute((size,), row, name="y")
    head = te.compute((size,), lambda i: tirx.const(1, D), name="head")
    return list(ad.differentiate(y, [x], head))


def looped_value(x, index, size):
    result = np.zeros(len(x))
    for i in range(size):
        places = index[: index[i]]
        np.add.at(result, places, 2 * x[places])
    return result


CASES = {
    Scan: (scanned, scanned_value),
    ScatterAdd: (scattered, scattered_value),
    UpdateLoops: (looped, looped_value),
}


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", SIZES)
def test_values(kind, name):
    extent, inner, values = SIZES[name]
    var = te.var("size")
    x = te.placeholder((extent(var),), D, name="x")
    index = te.placeholder((extent(var),), "int32", name="index")
    make, value = CASES[kind]
    outputs = make(x, index, inner(var))
    assert kind in kinds_in(outputs)
    function = quiet_build([x, index], outputs)
    rng = np.random.default_rng(0)
    for size in values:
        count = extent(size)
        arrays = rng.uniform(0.5, 1.5, count), rng.integers(0, count, count).astype("int32")
        [found] = function(*arrays)
        np.testing.assert_allclose(found, value(*arrays, inner(size)), rtol=1e-12)


def test_an_opaque_stage_is_refused():
    p = te.var("p")
    x = te.placeholder((2 * p + 1,), D, name="x")
    first = te.compute((p,), lambda i: x[i], name="first")

    def body(ins, outs):
        i = tirx.Var("i", "int32")
        store = tirx.BufferStore(outs[0], ins[0][i], [i])
        return tirx.For(i, 0, p, tirx.ForKind.SERIAL, store)

    copied = te.extern([(p,)], [first], body, name="copied", dtype=[D])
    with pytest.raises(LoweringError, match="stage copied is opaque and uses a size"):
        ad.build([x], copied, cache=False)
