"""Functions that several reductions share: computed once, equal values, what is not stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.costly import is_expensive, is_slow
from tvm_autodiff.expr.rewrite import contains
from tvm_autodiff.graph.graph import Graph, tensors_read_by
from tvm_autodiff.graph.stage import is_compute, sources_of
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.rewrites.sums.shared.stored_functions import with_stored_functions

N, M, K = 20, 30, 25
MACHINE = machine_of(as_target({"kind": "llvm", "mcpu": "skylake-avx512"}), threads=1)
x = te.placeholder((N, K), "float64", name="x")
y = te.placeholder((M, K), "float64", name="y")
w = te.placeholder((N, M), "float64", name="w")
INPUTS = (x, y, w)


def reduced(shape, extent, body, name, reduce=te.sum):
    k = te.reduce_axis((0, extent), "k")
    return te.compute(shape, lambda *i: reduce(body(*i, k), axis=k), name=name)


def pair(i, j, k):
    return te.exp(x[i, k] * y[j, k])


def outer(i, j, k):
    return te.log(1.0 + pair(i, j, k))


def of_much(i, j, k):
    """A function of what takes as long as itself, and is needed beside it."""
    argument = x[i, k] * y[j, k]
    for n in range(15):
        argument = argument * argument + 0.1 * n
    return te.tanh(argument) * argument


def over(axis, value=pair, name="s", reduce=te.sum):
    """The sum of a function of (i, j, k) along one of its axes, weighted by place."""
    bodies = {
        "k": ((N, M), K, lambda i, j, k: value(i, j, k)),
        "j": ((N, K), M, lambda i, k, j: w[i, j] * value(i, j, k)),
        "i": ((M, K), N, lambda j, k, i: w[i, j] * value(i, j, k)),
    }
    return reduced(*bodies[axis], name, reduce)


def beside(shape, extents, body, name):
    axes = [te.reduce_axis((0, extent), f"r{n}") for n, extent in enumerate(extents)]
    return te.compute(shape, lambda *i: te.sum(body(*i, *axes), axis=axes), name=name)


def angles(i, k):
    return te.exp(x[i, k] * x[i, 0])


def of_two_loops():
    """A function of (i, k) in sums over three loops, and along each of its own in a sum of two."""
    return [
        beside((M,), (N, K), lambda j, i, k: y[j, k] * angles(i, k), "a"),
        beside((N,), (M, K), lambda i, j, k: y[j, k] * w[i, j] * angles(i, k), "b"),
        beside((K,), (N,), lambda k, i: angles(i, k), "c"),
    ]


def gradients():
    total = te.compute((N, M), lambda i, j: te.log(over("k")[i, j]), name="log")
    return [total, *ad.differentiate(total, [x, y], w)]


STORED = {
    "along two axes": ([over("k"), over("j")], 1),
    "along three axes": ([over("k"), over("j"), over("i")], 1),
    "a maximum and a sum": ([over("k", reduce=te.max), over("i")], 1),
    "a function in a function": ([over("k", outer), over("j", outer)], 1),
    "gradients of a sum of exponentials": (gradients(), 2),
    "beside loops that do not change it": (of_two_loops(), 1),
}

OTHERS = {
    "one reduction": [over("k")],
    "one pass": [over("k"), over("k", lambda *at: pair(*at) * 2.0)],
    "different functions": [over("k"), over("j", lambda i, j, k: te.exp(x[i, k] - y[j, k]))],
    "other places": [over("k"), over("j", lambda i, j, k: te.exp(x[i, k] * y[M - 1 - j, k]))],
    "an argument of much work": [over("k", of_much), over("j", of_much)],
    "one loop": [over(axis, lambda i, j, k: te.exp(x[i, 0])) for axis in "kj"],
    "no function": [over("k", lambda i, j, k: x[i, k] * y[j, k]), over("j")],
    "reads behind a guard": [
        over("k", lambda i, j, k: te.if_then_else(j < 9, te.exp(x[i, k] * x[j + 9, k]), 0.0)),
        over("j", lambda i, j, k: te.if_then_else(j < 9, te.exp(x[i, k] * x[j + 9, k]), 0.0)),
    ],
}


def data(seed=0):
    rng = np.random.default_rng(seed)
    return [(t, rng.uniform(-1, 1, [int(n) for n in t.shape])) for t in INPUTS]


def functions(tensors, kind=is_expensive):
    """The number of stages that compute an expensive function."""
    stages = (op for op in Graph(tensors).ops if is_compute(op))
    return sum(contains(sources_of(op), kind) for op in stages)


@pytest.mark.parametrize("name", STORED)
def test_stored(name):
    outputs, left = STORED[name]
    changed = with_stored_functions(outputs, MACHINE)
    assert functions(changed) == left < functions(outputs)
    got, want = (evaluate_graph(tensors, data()) for tensors in (changed, outputs))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name):
    outputs = OTHERS[name]
    assert functions(with_stored_functions(outputs, MACHINE)) == functions(outputs)


def quotient(i, j, k):
    return 1.0 / (2.0 + x[i, k] * y[j, k])


def test_quotients_are_stored():
    outputs = [over("k", quotient), over("j", quotient), over("i", quotient)]
    changed = with_stored_functions(outputs, MACHINE)
    assert functions(changed, is_slow) == 1
    got, want = (evaluate_graph(tensors, data()) for tensors in (changed, outputs))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


p = te.placeholder((N,), "float64", name="p")


def rows(body):
    return reduced((N,), N, body, "rows")


def steps(i, k):
    return te.tanh(p[i] - p[k])


#: sums of a function of one tensor's elements in two roles
ROLES = {
    "in one sum": [rows(lambda i, k: p[i] * steps(i, k) - p[k] * (1.0 - steps(k, i)))],
    "in two sums": [rows(steps), rows(lambda i, k: p[k] * steps(k, i))],
    "in a term": [rows(lambda i, k: steps(i, k) * steps(k, i)), rows(steps)],
    "in a maximum": [reduced((N,), N, lambda i, k: te.max(steps(i, k), steps(k, i)), "m", te.max)],
    "below a minus": [rows(lambda i, k: 1.0 - (steps(i, k) - steps(k, i)))],
}


@pytest.mark.parametrize("name", ROLES)
def test_both_roles_of_a_tensor_read_one_function(name):
    outputs = ROLES[name]
    changed = with_stored_functions(outputs, MACHINE)
    assert functions(changed) == 1
    values = [(p, np.random.default_rng(0).normal(size=N))]
    got, want = (evaluate_graph(tensors, values) for tensors in (changed, outputs))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_roles_are_sums_apart():
    [found] = with_stored_functions(ROLES["in one sum"], MACHINE)
    assert [str(tensor.op.name) for tensor in tensors_read_by(found.op)] == [
        "rows_order0",
        "rows_order1",
    ]


def test_more_than_the_shared_cache_holds_is_computed_again():
    outputs, _ = STORED["along three axes"]
    small = replace(MACHINE, last_cache_bytes=8 * N * M * K)
    assert functions(with_stored_functions(outputs, small)) == 3


def test_symbolic_sizes_are_stored_as_literal_ones():
    n = te.var("n")
    a = te.placeholder((n, K), "float64", name="a")
    value = lambda i, j: te.exp(a[i, j])  # noqa: E731
    j, i = te.reduce_axis((0, K), "j"), te.reduce_axis((0, n), "i")
    outputs = [
        te.compute((n,), lambda p: te.sum(value(p, j), axis=j), name="rows"),
        te.compute((K,), lambda p: te.sum(value(i, p), axis=i), name="columns"),
    ]
    assert functions(with_stored_functions(outputs, MACHINE)) == 1


@pytest.mark.parametrize("exact", [False, True])
def test_compiled_with_gradients(exact):
    """The log-sum-exp of pairs and its gradients, on arrays that another axis is contiguous in."""
    total = over("k")
    dx, dy = ad.differentiate(total, [x, y], w)
    values = [array for _, array in data(1)]
    got = ad.build(list(INPUTS), [total, dx, dy], exact_math=exact, cache=False)(*values)
    a, b, h = values
    powers = np.exp(a[:, None] * b)
    want = (
        powers.sum(2),
        np.einsum("ij,ijk,jk->ik", h, powers, b),
        np.einsum("ij,ijk,ik->jk", h, powers, a),
    )
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_functions_of_loops_of_any_size():
    n = te.var("n")
    p, q = te.placeholder((n, K), "float64", "p"), te.placeholder((n, K), "float64", "q")
    i, j = te.reduce_axis((0, n), "i"), te.reduce_axis((0, n), "j")

    def value(a, b):
        return te.exp(-(p[a, 0] - q[b, 0]) * (p[a, 1] - q[b, 1]))

    outputs = [
        te.compute((n,), lambda a: te.sum(value(a, j), axis=j), name="s"),
        te.compute((n,), lambda b: te.sum(p[i, 2] * value(i, b), axis=i), name="t"),
    ]
    changed = with_stored_functions(outputs, replace(MACHINE, symbolic_size=64))
    holding = [op for op in Graph(changed).ops if is_compute(op)]
    assert sum(contains(sources_of(op), is_expensive) for op in holding) == 1
    function = ad.build([p, q], changed, cache=False)
    rng = np.random.default_rng(0)
    for size in (0, 1, 5):
        a, b = (rng.standard_normal((size, K)) for _ in range(2))
        values = np.exp(-np.prod(a[:, None, :2] - b[None, :, :2], axis=2))
        got = function(a, b)
        for ours, want in zip(got, (values.sum(1), a[:, 2] @ values), strict=True):
            np.testing.assert_allclose(ours, want, rtol=1e-12)
