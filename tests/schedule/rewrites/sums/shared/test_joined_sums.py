"""Sums that are added up made one, sums over windows in two steps, sums of one pass."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_compute, reduction_of
from tvm_autodiff.schedule.cost import LATENCY
from tvm_autodiff.schedule.rewrites.sums.added_sums import with_added_sums
from tvm_autodiff.schedule.rewrites.sums.shared.joined_sums import with_joined_sums
from tvm_autodiff.schedule.rewrites.windows.window_sums import with_window_sums

N, M, K = 5, 6, 4
x = te.placeholder((N, M), name="x", dtype="float64")
v = te.placeholder((M, K), name="v", dtype="float64")
w = te.placeholder((M, K), name="w", dtype="float64")
s = te.placeholder((), name="s", dtype="float64")
image = te.placeholder((16, 16), name="image", dtype="float64")
INPUTS = [x, v, w, s, image]


def axes(*extents):
    return [te.reduce_axis((0, extent), f"r{n}") for n, extent in enumerate(extents)]


def row_sum(body, extents=(M,), order=1):
    """A sum for each row."""
    found = axes(*extents)
    return te.compute(
        (N,), lambda i: te.sum(body(i, *found[::order]), axis=found[::order]), name="t"
    )


def both(first, second, combine=lambda a, b: a + b):
    return [te.compute((N,), lambda i: combine(first[i], second[i]), name="both")]


def shared(a, b):
    return b + a + a * 2.0


def weight(i, k):
    return te.exp(x[i, k] * s())


def total(body, *extents):
    found = axes(*extents)
    return te.compute((), lambda: te.sum(body(*found), axis=found), name="total")


A = row_sum(lambda i, k: weight(i, k) * x[i, k])
B = row_sum(lambda i, k: weight(i, k) * v[k, 0])
C = row_sum(lambda i, k: te.exp(x[i, k] * 2.0) * v[k, 0])
D = row_sum(lambda i, k, m: te.exp(x[i, k] * v[k, m]) * m, (M, K))
E = row_sum(lambda i, m, k: te.exp(x[i, k] * v[k, m]) * 3.0, (M, K), -1)
F = row_sum(lambda i, k, m: weight(i, k) * v[k, m], (M, K))
G = row_sum(lambda i, k, m: weight(i, k) * w[k, m], (M, K))
H = row_sum(lambda i, k: x[i, k] * v[k, 0])



def at_one(value):
    return te.if_then_else(s() > 1, value, te.const(0.0, "float64"))


ADDED = {
    "a common function": (both(A, B), True),
    "between others": (both(A, B, lambda a, b: 1.0 + a + (s() * 2.0 + b)), True),
    "behind equal conditions": (both(A, B, lambda a, b: at_one(a) + s() + at_one(b)), True),
    "behind two conditions": (
        both(A, B, lambda a, b: at_one(a) + te.if_then_else(s() > 2, b, 0.0)),
        False,
    ),
    "read twice": (both(A, B, lambda a, b: a * 2.0 + a + b), False),
    "axes in another order": (both(D, E), True),
    "read twice by a common part": (both(A, B, lambda a, b: shared(a + b + 1.0, b)), False),
    "functions of other arguments": (both(A, C), False),
    "a function of some axes, as an operand": (both(F, G), False),
    "nothing expensive": (both(A, H), False),
    "other shapes": (both(A, D), False),
    "a product": (both(A, B, lambda a, b: a * b), False),
    "a difference": (both(A, B, lambda a, b: a - b), False),
    "read elsewhere": ([*both(A, B), te.compute((N,), lambda i: A[i] * 2.0)], False),
    "wanted": ([*both(A, B), A], False),
}


def rand(tensor):
    shape = [int(dim) for dim in tensor.shape]
    return np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape)


ARRAYS = {tensor: rand(tensor) for tensor in INPUTS}


def reductions(outputs):
    return [op for op in Graph(outputs).ops if is_compute(op) and reduction_of(op) is not None]


def check(before, after):
    values = evaluate_graph(before, ARRAYS), evaluate_graph(after, ARRAYS)
    for old, new in zip(*values, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12)


@pytest.mark.parametrize("name", ADDED)
def test_sums_that_are_added_up(name):
    outputs, joined = ADDED[name]
    found = with_added_sums(outputs)
    assert len(reductions(found)) == len(reductions(outputs)) - joined
    assert joined or all(a.same_as(b) for a, b in zip(found, outputs, strict=True))
    check(outputs, found)


def clamped(i, k, n):
    return te.max(te.min(i + k - 1, n - 1), 0)


def window(i, j, k, m):
    return te.exp(x[clamped(i, k, N), clamped(j, m, M)] * s() - x[i, j])


#: sums, and the shape of the sums over windows that they are made of
WINDOWS = {
    "clamped": (total(lambda i, j, k, m: window(i, j, k, m) * k, N, M, 3, 3), (N, M)),
    "in any order": (total(lambda k, i, m, j: window(i, j, k, m) * m, 3, N, 3, M), (N, M)),
    "a small window": (total(lambda i, j, k: window(i, j, k, 0), N, M, 3), None),
    "contiguous": (total(lambda i, k, j: te.exp(x[clamped(i, k, N), j]), N, 9, M), None),
    "no window": (total(lambda i, j: te.exp(x[N - 1 - i, M - 1 - j]), N, M), None),
    "as large as the domain": (total(lambda i, j, k, m: window(i, j, k, m), N, M, 6, 7), None),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_sums_over_windows(name):
    output, shape = WINDOWS[name]
    [found] = with_window_sums([output])
    shapes = [tuple(int(dim) for dim in op.output(0).shape) for op in reductions([found])]
    assert shapes == ([()] if shape is None else [shape, ()])
    check([output], [found])


def near(i, j, k, m):
    return image[te.max(te.min(i + k, 15), 0), te.max(te.min(j + m, 15), 0)]


def likeness(i, j, k, m):
    return te.exp((near(i, j, k, m) - image[i, j]) * s())


def filtered(body, size=(16, 16), order=1, weight=likeness):
    """A sum over a window of 5 x 5 at each place."""
    k, m = axes(5, 5)[::order]
    return te.compute(
        size, lambda i, j: te.sum(weight(i, j, k, m) * body(i, j, k, m), axis=[k, m]), name="w"
    )


ABOVE, BELOW = filtered(near), filtered(lambda *_: 1.0)
BESIDE = [filtered(lambda i, j, k, m, n=n: near(i, j, k, m) + n) for n in range(1, 4)]
AFTER = filtered(lambda i, j, k, m: ABOVE[i, j])
TURNED = filtered(lambda i, j, k, m: image[i, j] + k, order=-1)
FAR = filtered(near, weight=lambda *place: te.exp(near(*place)))
FEW = [filtered(body, (3, 2)) for body in (near, lambda *_: 1.0)]
QUARTER = te.compute((16, 16), lambda i, j: ABOVE[i, j] / BELOW[i, j], name="quarter")

#: outputs, and how many results each of their reductions has
JOINED = {
    "two": ([ABOVE, BELOW], [2]),
    "read by others": ([QUARTER], [2]),
    "one is wanted, both are read": ([ABOVE, QUARTER], [2]),
    "more than go together": ([ABOVE, BELOW, *BESIDE], [LATENCY, 1]),
    "one reads the other": ([AFTER], [1, 1]),
    "one reads another of the pass": ([BELOW, AFTER], [2, 1]),
    "axes in another order": ([ABOVE, TURNED], [2]),
    "other functions": ([ABOVE, FAR], [1, 1]),
    "few places": (FEW, [1, 1]),
}


@pytest.mark.parametrize("name", JOINED)
def test_sums_of_one_pass(name):
    outputs, results = JOINED[name]
    found = with_joined_sums(outputs)
    assert [op.num_outputs for op in reductions(found)] == results
    check(outputs, found)


def test_sums_along_rows_are_left_to_fusion_groups():
    table = te.placeholder((64, 128), name="table", dtype="float64")
    k = te.reduce_axis((0, 128), "k")

    def weighted(body):
        return te.compute((64,), lambda i: te.sum(body(te.exp(table[i, k])), axis=k), name="r")

    sums = [weighted(lambda value: value), weighted(lambda value: value * value)]
    assert [op.num_outputs for op in reductions(with_joined_sums(sums))] == [1, 1]
