"""Stages read back from functions: equal to those that TVM made the functions of."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi
from tvm.script import tirx as T

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph, key_of
from tests.topi_operators import GROUPS
from tvm_autodiff.codegen.stages.recovered import UnrecoveredError, recovered

CASES = {case.name: case for cases in GROUPS.values() for case in cases}


def read_back(inputs, output):
    """The tensor of a function that TVM makes of another one, over the same inputs."""
    func = te.create_prim_func([*inputs, output], "int64")
    [found] = recovered(func, inputs)
    return found


#: operators of which te makes an extern
NOT_RECOVERED = {
    *("nn.lstm", "stft", "dft", "cumsum", "cumprod"),
    *("sort", "argsort", "topk", "scatter_elements", "scatter_nd", "index_put", "searchsorted"),
}


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_RECOVERED])
def test_operators_of_topi(name):
    placeholders, output = CASES[name].tensors()
    found = read_back(placeholders, output)
    assert found.dtype == output.dtype
    if ad.show(found) == ad.show(output):
        return
    arrays = dict(zip(map(key_of, placeholders), CASES[name].arrays(), strict=True))
    [got] = evaluate_graph([found], [(x, arrays[key_of(x)]) for x in placeholders])
    [want] = evaluate_graph([output], [(x, arrays[key_of(x)]) for x in placeholders])
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_stages_are_those_that_were_written():
    n = te.var("n", "int64")
    x, w = te.placeholder((n, 8), name="x"), te.placeholder((3,), name="w")
    k = te.reduce_axis((0, 3), "k")
    conv = te.compute((n, 6), lambda i, j: te.sum(x[i, j + k] * w[k], axis=k), name="conv")
    out = te.compute((n, 6), lambda i, j: te.max(conv[i, 5 - j], 0.0), name="out")
    assert ad.show(read_back([x, w], out)) == ad.show(out)


def test_scalars_stand_for_expressions():
    n, x = tirx.Var("n", "int64"), te.placeholder((6,), name="x")
    part = te.compute((n,), lambda i: x[i] * 2.0, name="part")
    func = te.create_prim_func([x, n, part], "int64")
    [found] = recovered(func, [x, tirx.const(4, "int64")])
    assert ad.show(found) == "inputs  x: float32[6]\npart[i] = x[i]*2.0  float32[4]"


def test_a_size_that_only_the_result_has():
    n, m = tirx.Var("n", "int64"), te.var("m", "int64")
    x = te.placeholder((2 * n,), name="x")
    func = te.create_prim_func([x, te.compute((n,), lambda i: x[2 * i], name="even")], "int64")
    given = te.placeholder((6 * m,), name="x")
    [found] = recovered(func, [given], [(3 * m,)])
    assert ad.show(found) == "inputs  x: float32[6*m]\neven[i] = x[i*2]  float32[3*m]"


def test_several_results():
    x = te.placeholder((4, 3), name="x")
    total = topi.sum(x, axis=1)
    func = te.create_prim_func([x, total, topi.exp(total)], "int64")
    got = evaluate_graph(recovered(func, [x]), [(x, np.ones((4, 3), "float32"))])
    np.testing.assert_allclose(got, [np.full(4, 3.0), np.full(4, np.exp(3.0))], rtol=1e-6)


@T.prim_func(s_tir=True)
def in_place(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("first"):
            v = T.axis.spatial(4, i)
            y[v] = x[v]
    for i in range(4):
        with T.sblock("again"):
            v = T.axis.spatial(4, i)
            y[v] = y[v] * 2.0


@T.prim_func(s_tir=True)
def half(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(2):
        with T.sblock("half"):
            v = T.axis.spatial(2, i)
            y[v] = x[v]


@T.prim_func(s_tir=True)
def mirrored(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("mirrored"):
            v = T.axis.spatial(4, i)
            y[3 - v] = x[v]


@T.prim_func(s_tir=True)
def started(x: T.Buffer((4,), "float32"), y: T.Buffer((), "float32")):
    for i in range(4):
        with T.sblock("started"):
            v = T.axis.reduce(4, i)
            with T.init():
                y[()] = T.float32(5.0)
            y[()] = y[()] + x[v]


@T.prim_func(s_tir=True)
def conditional(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("conditional"):
            v = T.axis.spatial(4, i)
            T.where(i < 3)
            y[v] = x[v]


@T.prim_func(s_tir=True)
def ordered(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("ordered"):
            v = T.axis.scan(4, i)
            y[v] = x[v]


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (in_place, "block again writes y a second time"),
        (half, "block half writes parts of y"),
        (mirrored, "block mirrored writes parts of y"),
        (started, "block started does not start with the identity of its reducer"),
        (conditional, "block conditional runs under a condition"),
        (ordered, "block ordered is computed in an order of v"),
    ],
)
def test_what_te_does_not_make(func, why):
    with pytest.raises(UnrecoveredError, match=why):
        recovered(func, [te.placeholder((4,), name="x")])


def test_a_selection_comes_back_as_one():
    x = te.placeholder((4, 8), name="x")
    found = read_back([x], topi.argmax(x, axis=1))
    head = te.placeholder((4,), name="head")
    best = te.compute((4,), lambda i: x[i, found[i]], name="best")
    [gradient] = ad.differentiate(best, [x], head)
    array = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    array[1, 2] = array[1, 5] = 9.0  # the first of equal elements
    got = evaluate_graph([gradient], [(x, array), (head, np.ones(4, "float32"))])[0]
    np.testing.assert_array_equal(got.argmax(1), array.argmax(1))
    np.testing.assert_array_equal(got.sum(1), 1.0)


@T.prim_func(s_tir=True)
def two_at_once(
    x: T.Buffer((4,), "float32"), y: T.Buffer((), "float32"), z: T.Buffer((), "float32")
):
    for i in range(4):
        with T.sblock("two"):
            v = T.axis.reduce(4, i)
            with T.init():
                y[()] = T.float32(0.0)
                z[()] = T.float32(0.0)
            y[()] = T.Select(z[()] > x[v], y[()], x[v] + T.float32(1.0))
            z[()] = z[()] + y[()] * x[v]


def test_components_that_depend_on_each_other_are_no_sums():
    with pytest.raises(UnrecoveredError, match="has an unknown reducer"):
        recovered(two_at_once, [te.placeholder((4,), name="x")])
