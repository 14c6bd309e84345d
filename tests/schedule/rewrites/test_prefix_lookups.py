"""Reductions up to a computed place: equal values, one step for each element, what stays."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.nest.reductions.prefix_reductions import prefix_reduction_of
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rewrites.prefix_lookups import with_prefix_lookups

B, N, M = 3, 21, 40  # rows, elements, results of each row
X = te.placeholder((B, N), "float64", name="X")
I = te.placeholder((M,), "int32", name="I")  # noqa: E741
ite = te.if_then_else
HIGH, LOW = te.max_value("float64"), te.min_value("float64")


def rows(condition, other=0.0, reduce=te.sum, value=lambda b, i, k: X[b, k], extent=None, width=M):
    """``y[b, i] = ⊕_k if condition(i, k) then value(b, i, k) else other``."""

    def element(b, i):
        k = te.reduce_axis((0, N if extent is None else extent(i)), "k")
        taken = value(b, i, k.var)
        return reduce(ite(condition(i, k.var), taken, other) if condition else taken, axis=k)

    return te.compute((B, width), element, name="y")


LOOKUPS = {
    "one more": rows(lambda i, k: k <= i + 1),
    "three less": rows(lambda i, k: k < i - 3),
    "all results and one more": rows(lambda i, k: k < i, width=N + 1),
    "at most the last": rows(lambda i, k: k <= te.min(i + 3, N - 1)),
    "two bounds": rows(lambda i, k: te.all(k <= i, k <= 2 * i - 3)),
    "half": rows(lambda i, k: k <= i // 2),
    "twice": rows(lambda i, k: k <= 2 * i + 1),
    "from a place": rows(lambda i, k: k >= i + 2),
    "behind": rows(lambda i, k: i - k < 3),
    "backwards": rows(lambda i, k: k <= 30 - i),
    "data": rows(lambda i, k: k <= I[i]),
    "from data": rows(lambda i, k: k > I[i]),
    "data and a bound": rows(lambda i, k: te.all(k < I[i], k >= 2)),
    "from a bound on": rows(lambda i, k: te.all(k >= I[i], k < 17)),
    "for some results": rows(lambda i, k: te.all(k <= I[i], I[i] > 4)),
    "every third element": rows(lambda i, k: te.all(k <= I[i], tirx.FloorMod(k, 3) == 0)),
    "largest": rows(lambda i, k: k <= I[i], LOW, te.max),
    "least": rows(lambda i, k: k >= I[i], HIGH, te.min),
    "largest, a number beside": rows(lambda i, k: k <= I[i], 0.1, te.max),
    "largest from a place, a number": rows(lambda i, k: k >= I[i], 0.1, te.max),
    "least, a number, in order": rows(lambda i, k: k <= i, -0.1, te.min, width=N),
    "exponentials": rows(lambda i, k: k <= I[i], value=lambda b, i, k: te.exp(X[b, k])),
    "a range": rows(None, extent=lambda i: te.min(i // 2 + 1, N)),
    "read backwards": rows(lambda i, k: k <= i, value=lambda b, i, k: X[b, i - k], width=N),
    "read from a place on": rows(
        lambda i, k: k + i < N, value=lambda b, i, k: X[b, i + k], width=N
    ),
}

OTHERS = {
    "a window": rows(lambda i, k: te.all(k <= i, k > i - 3)),
    "values that follow the result": rows(
        lambda i, k: k <= i, value=lambda b, i, k: X[b, k] * I[i]
    ),
    "every second": rows(lambda i, k: 2 * k <= i),
    "few results": rows(lambda i, k: k <= 4 * i, width=5),
    "a sum with a number beside": rows(lambda i, k: k <= i, 1.0),
    "a number beside, and a bound": rows(lambda i, k: te.all(k <= I[i], k >= 2), 0.1, te.max),
    "a number beside a range": rows(
        lambda i, k: k != i, 0.1, te.max, extent=lambda i: te.min(I[i], N)
    ),
    "for other elements": rows(lambda i, k: k <= I[k]),
}


def data(seed=0):
    rng = np.random.default_rng(seed)
    # places before the first and behind the last element, too
    return [(X, rng.uniform(-1, 1, (B, N))), (I, rng.integers(-3, N + 3, M).astype("int32"))]


def prefixes(tensors):
    return sum(prefix_reduction_of(op) is not None for op in Graph(tensors).ops if op.input_tensors)


@pytest.mark.parametrize("name", LOOKUPS)
def test_looked_up(name):
    plain = normal_form([LOOKUPS[name]])
    changed = with_prefix_lookups(plain)
    assert prefixes(changed) == 1
    [got], [want] = (evaluate_graph(tensors, data()) for tensors in (changed, plain))
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name):
    plain = normal_form([OTHERS[name]])
    assert prefixes(with_prefix_lookups(plain)) == 0


def test_results_share_a_prefix_reduction():
    both = [rows(lambda i, k: k <= I[i]), rows(lambda i, k: k < i - 3)]
    assert prefixes(with_prefix_lookups(normal_form(both))) == 1


#: a prefix in symbolic sizes: whether element k counts for result i, out of n
SYMBOLIC = {
    "inclusive": lambda i, k, n: k <= i,
    "exclusive": lambda i, k, n: k < i,
    "from the last": lambda i, k, n: k >= i,
    "two more": lambda i, k, n: k <= i + 2,
    "from two less": lambda i, k, n: k > i - 2,
    "clamped": lambda i, k, n: k <= te.min(i + 3, n - 1),
    "written backwards": lambda i, k, n: k < n - 1 - i,
}


@pytest.mark.parametrize("symbols", ["rows", "elements", "both"])
@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes_with_gradients(name, symbols):
    """Rows and elements of any number, none among them: kernels and their gradients are scans."""
    m = 5 if symbols == "elements" else te.var("m")
    n = 19 if symbols == "rows" else te.var("n")
    x, head = (te.placeholder((m, n), "float64", name=name) for name in ("x", "head"))
    k = te.reduce_axis((0, n), "k")
    counts = SYMBOLIC[name]
    y = te.compute((m, n), lambda b, i: te.sum(ite(counts(i, k, n), x[b, k], 0.0), axis=k), "y")
    [dx] = ad.differentiate(y, [x], head)
    run = ad.build([x, head], [y, dx], cache=False)
    for size in (0, 1, 2, 7, 40) if symbols == "elements" else (0, 1, 9, 20):
        shape = (5 if symbols == "elements" else size, 19 if symbols == "rows" else size)
        values, heads = np.random.default_rng(size).uniform(-1, 1, (2, *shape))
        places = np.arange(shape[1])
        taken = np.array([[NUMPY[name](i, k, shape[1]) for k in places] for i in places], bool)
        taken = taken.reshape(shape[1], shape[1])
        got = run(values, heads)
        np.testing.assert_allclose(got[0], values @ taken.T, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(got[1], heads @ taken, rtol=1e-10, atol=1e-12)
    if values.size:
        plain = {"rows", "reduction", "fallback", "contraction"}
        assert not plain & {kernel.rule for kernel in run.profile(values, heads).kernels}


NUMPY = {**SYMBOLIC, "clamped": lambda i, k, n: k <= min(i + 3, n - 1)}
