"""Sums under equations whose solution is data: what they cost, and that they are right.

A segment sum ``out[n] = Σ_e if idx[e] == n then v[e]`` scatters forward and gathers backward,
however the equation is written; data outside of the result contribute nothing.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from tvm import te, tirx

from tests.differences import whole_slopes
from tests.evaluate import evaluate_graph
from tvm_autodiff import DenseSumWarning, build, differentiate, simplify_reductions
from tvm_autodiff.expr.nodes import is_load, op_name
from tvm_autodiff.expr.rewrite import contains, postorder
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import bodies, is_compute, reduction_of

D = "float64"
E, N, W = 12, 7, 3
RNG = np.random.default_rng(0)


def integers(name, values, dtype="int32"):
    array = np.array(values, dtype)
    return te.placeholder(array.shape, dtype, name=name), array


def floats(name, *shape):
    return te.placeholder(shape, D, name=name), RNG.integers(-3, 4, shape).astype(D)


IDX = [0, 3, 3, -1, 9, 6, 0, 2**30, 2, -(2**31), 5, 5]  # some are outside of [0, N)
idx, IDX_ = integers("idx", IDX)
jdx, JDX_ = integers("jdx", [2, 0, 1, 2, -7, 3, 0, 1, 1, 0, 2, 2])
src, SRC_ = integers("src", RNG.integers(0, N, E))
near, NEAR_ = integers("near", RNG.integers(0, E, E))
idx64, IDX64_ = integers("idx64", [*IDX[:-2], 5 + 2**32, 5], "int64")
idx8, IDX8_ = integers("idx8", np.array(IDX).clip(-128, 127), "int8")
byte, BYTE_ = integers("byte", [0, 3, 3, 255, 9, 6, 0, 200, 2, 128, 5, 5], "uint8")
perm, PERM_ = integers("perm", [4, 0, -2, 6, 1, 11, 1])
v, V_ = floats("v", E)
u, U_ = floats("u", N)
vd, VD_ = floats("vd", E, W)
dv, DV_ = floats("dv", W, E)
x, X_ = floats("x", N, W)
c, C_ = floats("c", N, W, 4)
DATA = {
    idx: IDX_, jdx: JDX_, src: SRC_, near: NEAR_, idx64: IDX64_, idx8: IDX8_, byte: BYTE_,
    perm: PERM_, v: V_, u: U_, vd: VD_, dv: DV_, x: X_, c: C_,
}  # fmt: skip
e, f = te.reduce_axis((0, E), "e"), te.reduce_axis((0, W), "f")
b = te.reduce_axis((0, N), "b")
ZERO = te.const(0.0, D)


def summed(shape, body, axis=e):
    return te.compute(shape, lambda *i: te.sum(body(*i), axis=axis), name="y")


def when(condition, value):
    return te.if_then_else(condition, value, ZERO)


def where(shape, condition, value):
    def body(*i):
        return te.sum(value(*i), axis=e, where=condition(*i))

    return te.compute(shape, body, name="y")


def one(condition):
    return condition.astype(D)


#: name → (the sum, by what it is differentiated)
CASES = {
    "a branch": (lambda: summed((N,), lambda n: when(idx[e] == n, v[e])), [v]),
    "a select": (
        lambda: summed((N,), lambda n: tirx.Select(idx(e) == n, v(e), ZERO)),
        [v],
    ),
    "where=": (lambda: where((N,), lambda n: idx[e] == n, lambda n: v[e]), [v]),
    "a factor": (lambda: summed((N,), lambda n: v[e] * one(idx[e] == n)), [v]),
    "a factor on the left": (lambda: summed((N,), lambda n: one(idx[e] == n) * v[e]), [v]),
    "a chosen factor": (
        lambda: summed((N,), lambda n: v[e] * tirx.Select(idx(e) == n, te.const(1.0, D), ZERO)),
        [v],
    ),
    "the axis first": (lambda: summed((N,), lambda n: when(n == idx[e], v[e])), [v]),
    "not unequal": (lambda: summed((N,), lambda n: when(tirx.Not(idx[e] != n), v[e])), [v]),
    "the other branch": (
        lambda: summed((N,), lambda n: te.if_then_else(idx[e] != n, ZERO, v[e])),
        [v],
    ),
    "bounds on both sides": (
        lambda: summed((N,), lambda n: when(te.all(idx[e] >= n, idx[e] <= n), v[e])),
        [v],
    ),
    "a strict bound": (
        lambda: summed((N,), lambda n: when(te.all(n <= idx[e], idx[e] < n + 1), v[e])),
        [v],
    ),
    "neither less nor more": (
        lambda: summed((N,), lambda n: when(tirx.Not(te.any(idx[e] < n, idx[e] > n)), v[e])),
        [v],
    ),
    "rows": (lambda: summed((N, W), lambda n, j: when(idx[e] == n, vd[e, j])), [vd]),
    "columns": (lambda: summed((W, N), lambda j, n: when(idx[e] == n, vd[e, j])), [vd]),
    "columns of columns": (lambda: summed((W, N), lambda j, n: when(idx[e] == n, dv[j, e])), [dv]),
    "rows of columns": (lambda: summed((N, W), lambda n, j: when(idx[e] == n, dv[j, e])), [dv]),
    "shifted": (lambda: summed((N,), lambda n: when(idx[e] + 2 == n, v[e])), [v]),
    "turned round": (lambda: summed((N,), lambda n: when(5 - idx[e] == n, v[e])), [v]),
    "scaled data": (lambda: summed((N,), lambda n: when(2 * jdx[e] + 1 == n, v[e])), [v]),
    "a scaled axis": (lambda: summed((N,), lambda n: when(idx[e] == 3 * n, v[e])), [v]),
    "a quotient": (lambda: summed((N,), lambda n: when(jdx[e] == n // 2, v[e])), [v]),
    "a remainder": (lambda: summed((N,), lambda n: when(jdx[e] == n % 4, v[e])), [v]),
    "data of both": (lambda: summed((N,), lambda n: when(idx[e] == n - jdx[e], v[e])), [v]),
    "int64": (lambda: summed((N,), lambda n: when(idx64[e] == n.astype("int64"), v[e])), [v]),
    "int8": (lambda: summed((N,), lambda n: when(idx8[e].astype("int32") == n, v[e])), [v]),
    "uint8": (lambda: summed((N,), lambda n: when(byte[e].astype("int32") == n, v[e])), [v]),
    "uint8 below 256": (
        lambda: summed((N,), lambda n: when(byte[e] == n.astype("uint8"), v[e])),
        [v],
    ),
    "two positions": (
        lambda: summed((N, 4), lambda n, m: when(tirx.all(idx[e] == n, jdx[e] == m), v[e])),
        [v],
    ),
    "two factors": (
        lambda: summed((N, 4), lambda n, m: one(idx[e] == n) * one(jdx[e] == m) * v[e]),
        [v],
    ),
    "a condition on the sum": (
        lambda: summed((N,), lambda n: when(tirx.all(e > 2, idx[e] == n), v[e])),
        [v],
    ),
    "a condition on the element": (
        lambda: summed((N,), lambda n: when(tirx.all(n < 4, idx[e] == n), v[e])),
        [v],
    ),
    "a guarded position": (
        lambda: summed((N,), lambda n: when(e < E - 1, when(idx[te.min(e + 1, 99)] == n, v[e]))),
        [v],
    ),
    "a position of a position": (
        lambda: summed((N,), lambda n: when(idx[near[e]] == n, v[e])),
        [v],
    ),
    "a join": (lambda: summed((N,), lambda n: when(perm[n] == jdx[e], v[e])), []),
    "messages": (lambda: summed((N, W), lambda n, j: when(idx[e] == n, x[src[e], j])), [x]),
    "weighted messages": (
        lambda: summed((N, W), lambda n, j: when(idx[e] == n, x[src[e], j] * v[e] * u[n])),
        [x, v, u],
    ),
    "a further sum": (
        lambda: summed((N,), lambda n: when(idx[e] == n, vd[e, f] * vd[e, f]), [e, f]),
        [vd],
    ),
    "a further sum that the element needs": (
        lambda: summed((N,), lambda n: when(idx[e] == n, vd[e, f] * x[n, f]), [e, f]),
        [vd, x],
    ),
    "one-hot rows": (lambda: summed((E, W), lambda i, j: when(idx[i] == b, x[b, j]), b), [x]),
    "one-hot factor": (lambda: summed((E, W), lambda i, j: one(idx[i] == b) * x[b, j], b), [x]),
    "one-hot in the middle": (
        lambda: summed((N, E, 4), lambda n, i, k: when(jdx[i] == f, c[n, f, k]), f),
        [c],
    ),
    "two masks": (
        lambda: summed((N,), lambda n: when(idx[e] == n, v[e]) + when(jdx[e] == n, v[e] * v[e])),
        [v],
    ),
    "minus": (lambda: summed((N,), lambda n: v[e] * (one(idx[e] == n) - one(jdx[e] == n))), [v]),
    "a difference": (
        lambda: summed((N, W), lambda n, j: when(jdx[e] == n - j, v[e])),
        [v],
    ),
}


def sums_with_a_mask(tensors):
    """Names of the sums over something that an equation with reads leaves zero nearly always."""
    return [
        op.name
        for op in topological(tensors)
        if is_compute(op) and reduction_of(op) is not None
        for node in postorder(bodies(op))
        if op_name(node) == "eq" and contains(node, is_load)
    ]


def values_of(tensors, data=DATA):
    return evaluate_graph(tensors, dict(data), strict=True)


@pytest.mark.parametrize("name", CASES)
def test_forward(name):
    y = CASES[name][0]()
    [simple] = simplify_reductions(y)
    assert bool(sums_with_a_mask([simple])) == (name == "a join")
    np.testing.assert_array_equal(*values_of([simple, y]))


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case[1]])
def test_gradient(name):
    make, wanted = CASES[name]
    y = make()
    weights = RNG.integers(-3, 4, tuple(map(int, y.shape))).astype(D)
    head = te.placeholder(y.shape, D, name="head")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adjoints = list(differentiate(y, wanted, head))
    assert not sums_with_a_mask(adjoints)
    found = evaluate_graph(adjoints, {**DATA, head: weights}, strict=True)
    for got, want in zip(found, whole_slopes(y, wanted, DATA, weights), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_cannot_be_solved_is_told():
    y = CASES["a join"][0]()
    head = te.placeholder(y.shape, D, name="head")
    with pytest.warns(DenseSumWarning, match=r"perm\[.*\] == jdx"):
        result = differentiate(y, [v], head)
    assert "not solved: perm" in result.explain()
    weights = RNG.integers(-3, 4, N).astype(D)
    [got] = evaluate_graph(list(result), {**DATA, head: weights}, strict=True)
    np.testing.assert_array_equal(got, whole_slopes(y, [v], DATA, weights)[0])


@pytest.mark.parametrize(
    "name", ["a factor", "columns of columns", "messages", "one-hot in the middle"]
)
def test_build_scatters_and_gathers(name):
    y = CASES[name][0]()
    inputs = [t for t in DATA if any(t.op.same_as(read.op) for read in y.op.input_tensors)]
    function = build(inputs, y, cache=False)
    got = function(*(DATA[t] for t in inputs))
    np.testing.assert_array_equal(got, values_of([y])[0])


def test_a_condition_stays_before_the_reads_that_it_protects():
    """``e < n`` keeps the read of ``places[e]`` inside, so it may not come after it."""
    places, values = te.placeholder((4,), "int32", name="places"), te.placeholder((9,), D, name="a")
    k = te.reduce_axis((0, 9), "k")
    y = te.compute(
        (5,), lambda n: te.sum(when(k < n, when(places[k] == n, values[k])), axis=k), name="y"
    )
    head = te.placeholder((5,), D, name="head")
    with pytest.warns(DenseSumWarning):
        [da] = differentiate(y, [values], head)
    [simple] = simplify_reductions(y)
    data = {places: np.array([1, 4, 4, 2], "int32"), values: np.arange(9.0), head: np.arange(5.0)}
    got, forward, plain = evaluate_graph([da, simple, y], data, strict=True)
    np.testing.assert_array_equal(got, [1, 4, 4, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(forward, plain)


@functools.cache
def of_symbolic_sizes():
    """A segment sum of squares and its gradient, built once."""
    n, m = te.var("n"), te.var("m")
    at, a = te.placeholder((m,), "int32", name="at"), te.placeholder((m, 4), D, name="a")
    head, k = te.placeholder((n, 4), D, name="head"), te.reduce_axis((0, m), "k")
    y = te.compute((n, 4), lambda i, j: te.sum(when(at[k] == i, a[k, j] * a[k, j]), axis=k))
    [da] = differentiate(y, [a], head)
    assert not sums_with_a_mask([da])
    return build([at, a, head], [y, da], cache=False)


@pytest.mark.parametrize(("rows", "count"), [(5, 9), (0, 3), (4, 0), (70, 200)])
def test_symbolic_sizes(rows, count):
    places = RNG.integers(-2, rows + 3, count).astype("int32")
    values, weights = RNG.random((count, 4)), RNG.random((rows, 4))
    total, slope = np.zeros((rows, 4)), np.zeros((count, 4))
    ok = (places >= 0) & (places < rows)
    np.add.at(total, places[ok], values[ok] ** 2)
    slope[ok] = 2 * values[ok] * weights[places[ok]]
    for got, want in zip(of_symbolic_sizes()(places, values, weights), (total, slope), strict=True):
        np.testing.assert_allclose(got, want)
