"""Kernels that are too large for TVM's passes: small statements, the same values, in seconds."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph, numpy_dtype
from tests.evaluate_statements import run_function
from tests.schedule.heavy_bodies import BODIES, K, X, choices, doublings
from tvm_autodiff.codegen.passes.short_circuit import marked
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.schedule.kernel import Kernel, too_large
from tvm_autodiff.schedule.machine import Machine, as_target
from tvm_autodiff.schedule.statement_loops import statement_loops

pytestmark = pytest.mark.filterwarnings("ignore::tvm_autodiff.errors.AutodiffWarning")


def check(inputs, outputs):
    rng = np.random.default_rng(0)
    data = [rng.uniform(-1, 1, [int(n) for n in t.shape]) for t in inputs]
    got = ad.build(inputs, outputs, cache=False, num_threads=1)(*data)
    want = evaluate_graph(outputs, list(zip(inputs, data, strict=True)))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", BODIES)
def test_too_large(name):
    stage = te.compute((9,), BODIES[name], name="stage")
    assert too_large(Kernel(stage.op)) is not None
    launch = statement_loops(Kernel(stage.op), Machine(as_target(None), 64))
    lines = str(launch.func).splitlines()
    assert not any("T.Let(" in line for line in lines)
    assert max(map(len, lines)) < 1_000
    assert len(lines) < 1_000
    check([X], [stage])


@pytest.mark.parametrize("low", [False, True])
def test_too_large_over_a_range_of_data(low):
    """``y[i] = Σ_{k < len[i]} body(k)`` and ``Σ_{len[i] <= k < 7}``."""
    lengths = te.placeholder((4,), "int32", name="lengths")

    def body(i):
        ends = (lengths[i], 7) if low else (0, lengths[i])
        k = te.reduce_axis(ends, "k")
        return te.sum(doublings(k.var + i), axis=k)

    stage = te.compute((4,), body, name="stage")
    assert too_large(Kernel(stage.op)) is not None
    values = np.random.default_rng(0).uniform(-1, 1, 48)
    ends = np.array([3, 0, 7, 1], "int32")
    got = ad.build([lengths, X], stage, cache=False, num_threads=1)(ends, values)
    plain = te.compute((20,), lambda i: doublings(i), name="plain")
    [terms] = evaluate_graph([plain], [(X, values)])
    ranges = [range(n, 7) if low else range(n) for n in ends]
    want = [sum(terms[k + i] for k in points) for i, points in enumerate(ranges)]
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("n", [5, 9])
@pytest.mark.parametrize("way", ["select", "if_then_else", "where"])
def test_proofs_about_heavy_indices(n, way):
    """Whether a read may leave its guard is asked before anything is scheduled."""

    def body(i):
        index = choices(i, n)
        if way == "where":
            return te.sum(X[choices(i + K, n)], axis=K, where=choices(i + K, n) < 5)
        choose = tirx.Select if way == "select" else te.if_then_else
        return choose(te.all(i < 4, X[index] > 0), X[index], X[i])

    stage = te.compute((9,), body, name="stage")
    check([X], [stage, *ad.differentiate(stage, [X])])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["winner", "doublings", "clamps", "choices, sum"])
def test_gradients(name):
    stage = te.compute((5,), BODIES[name], name="stage")
    check([X], [stage, *ad.differentiate(stage, [X])])


def argmax():
    def combine(left, right):
        wins = tirx.Or(left[0] > right[0], tirx.And(tirx.EQ(left[0], right[0]), left[1] < right[1]))
        return (
            tirx.Select(wins, left[0], right[0]),
            tirx.Select(wins, left[1], right[1]),
        )

    reducer = te.comm_reducer(
        combine, lambda a, b: (tirx.const(-1e300, a), tirx.const(2**30, b)), name="argmax"
    )
    k = te.reduce_axis((0, 12), "k")
    return te.compute((6,), lambda i: reducer((doublings(i + k, 10), k), axis=k), name="argmax")


@pytest.mark.slow
def test_tuples():
    value, place = argmax()
    assert too_large(Kernel(value.op)) is not None
    check([X], [value, place])


def test_ragged_sums_with_epilogue():
    def ragged(i):
        k = te.reduce_axis((0, i + 1), "k")
        return te.sum(doublings(k, 10), axis=k)

    total = te.compute((7,), ragged, name="total")
    check([X], [te.compute((7,), lambda i: te.exp(-total[i] * total[i]) * X[i], name="out")])


def test_small_kernels_are_left_to_tvm():
    stage = te.compute((9,), lambda i: X[i] * X[i + 1], name="stage")
    assert too_large(Kernel(stage.op)) is None
    assert op_name(stage.op.body[0]) == "mul"


def behind(join, i, m=48):
    """A choice by a condition whose second part reads many times what the first one guards."""
    value = doublings(i, 8)
    first, second = (i < m, value > 0.2) if join is tirx.And else (i >= m, value <= 0.2)
    holds = join(first, marked(second))
    return tirx.if_then_else(holds, X[te.min(i, 47)], tirx.const(0.25, "float64"))


@pytest.mark.parametrize("join", [tirx.And, tirx.Or])
def test_what_a_conjunction_guards_is_read_behind_it(join):
    """The oracle raises on a read outside: element 48 and on are behind the end of X."""
    stage = te.compute((60,), lambda i: behind(join, i), name="stage")
    launch = statement_loops(Kernel(stage.op), Machine(as_target(None), 64))
    data, found = np.random.default_rng(0).uniform(-1, 1, 48), np.zeros(60)
    run_function(launch.func, [data, found])
    value = data
    for _ in range(8):
        value = np.sin(value * value) + value
    holds = np.concatenate([value > 0.2, np.zeros(12, bool)])
    holds = holds if join is tirx.And else ~holds
    last = np.repeat(data[-1:], 12)
    np.testing.assert_allclose(
        found, np.where(holds, np.concatenate([data, last]), 0.25), rtol=1e-12
    )


def butterflies(y, h):
    """Sums and differences of the halves of each group of 2*h columns."""
    rows, columns = (int(n) for n in y.shape)
    half = (rows, columns // (2 * h), h)
    z = topi.reshape(y, (rows, columns // (2 * h), 2, h))
    a = te.compute(half, lambda b, i, k: z[b, i, 0, k], name="a")
    c = te.compute(half, lambda b, i, k: z[b, i, 1, k], name="c")
    pair = te.compute(
        (rows, columns // (2 * h), 2, h),
        lambda b, i, s, k: te.if_then_else(
            s >= 1, a[b, i, k] - c[b, i, k], a[b, i, k] + c[b, i, k]
        ),
        name="pair",
    )
    return topi.reshape(pair, (rows, columns))


@pytest.mark.parametrize(("rows", "columns"), [(7, 128), (3, 512), (5, 256), (61, 128)])
def test_quotients_that_are_the_same_in_a_vector(rows, columns):
    """LLVM took the quotient of the first vector of a turn for that of all four."""
    x = te.placeholder((rows, columns), name="x")
    y = x
    value = np.random.default_rng(0).standard_normal((rows, columns)).astype("float32")
    want = value
    for h in (8, 16, 32):
        y = butterflies(y, h)
        parts = want.reshape(rows, columns // (2 * h), 2, h)
        first, second = parts[:, :, 0], parts[:, :, 1]
        want = np.stack([first + second, first - second], 2).reshape(rows, columns)
    [got] = ad.build([x], [y], num_threads=1, cache=False)(value)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_stored_parts_of_narrow_floats(dtype):
    """``t = float32(v)`` holds a bfloat16 v: TVM has no variables of that type."""
    v = te.placeholder((9,), dtype, name="v")

    def body(i):
        value = v[i]
        for number in range(9):
            other = tirx.const(number / 16, dtype)
            value = te.if_then_else(value > other, value * value - other, value + other)
        return value

    stage = te.compute((9,), body, name="stage")
    launch = statement_loops(Kernel(stage.op), Machine(as_target(None), 64))
    assert ("t8 * t8" in str(launch.func)) is (dtype == "float16")
    data = np.linspace(-1, 1, 9).astype(numpy_dtype(dtype))
    got = ad.build(v, stage, cache=False, num_threads=1)(data)
    want = evaluate_graph([stage], [(v, data)])[0]
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=0.05, atol=0.05)
