"""Maxima and minima: who wins, and what is read before a guard allows it.

The expected gradients are written by plain Python loops over the rows.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph

D = "float64"
COMBINE = {"max": lambda a, b: tirx.Max(a, b), "min": lambda a, b: tirx.Min(a, b)}
LOWEST = np.finfo(D).min
ROWS = np.array(
    list(itertools.product([-2.0, -1.0, 0.0, 1.0], repeat=3))
    + [[-np.inf] * 3, [np.inf, 1, np.inf], [LOWEST] * 3, [-LOWEST] * 3]
)


def winner(row, kind, identity):
    """The place of the first best element, None where the identity is as good or better."""
    sign = 1 if kind == "max" else -1
    best = max(sign * value for value in row)
    if best <= sign * identity:
        return None
    return next(place for place, value in enumerate(row) if sign * value == best)


def reduced(x, kind, identity, pairs=False, **options):
    k = te.reduce_axis((0, int(x.shape[1])), "k")
    combine, start = COMBINE[kind], lambda t: tirx.const(identity, t)
    if not pairs:
        reducer = te.comm_reducer(combine, start)
        return te.compute((x.shape[0],), lambda i: reducer(x[i, k], axis=k, **options), name="y")
    reducer = te.comm_reducer(
        lambda a, b: (combine(a[0], b[0]), a[1] + b[1]), lambda s, t: (start(s), tirx.const(0, t))
    )
    return te.compute((x.shape[0],), lambda i: reducer((x[i, k], x[i, k]), axis=k), name="y")[0]


@pytest.mark.parametrize("kind", COMBINE)
@pytest.mark.parametrize("identity", [0.0, -1.0, 0.5, -np.inf, np.inf, LOWEST, -LOWEST])
@pytest.mark.parametrize("pairs", [False, True], ids=["alone", "in a pair"])
def test_an_identity_that_wins_leaves_no_gradient(kind, identity, pairs):
    x = te.placeholder(ROWS.shape, D, name="x")
    head = te.placeholder((len(ROWS),), D, name="head")
    direction = te.placeholder(ROWS.shape, D, name="direction")
    y = reduced(x, kind, identity, pairs)
    [dx] = ad.differentiate(y, [x], head)
    [dy] = ad.jvp(y, [x], [direction])
    heads = np.arange(1.0, len(ROWS) + 1)
    want = np.zeros(ROWS.shape)
    for i, row in enumerate(ROWS):
        place = winner(row, kind, identity)
        if place is not None:
            want[i, place] = heads[i]
    directions = np.arange(1.0, ROWS.size + 1).reshape(ROWS.shape)
    values = [(x, ROWS), (head, heads), (direction, directions)]
    backward, forward = evaluate_graph([dx, dy], values)
    np.testing.assert_array_equal(backward, want)
    np.testing.assert_array_equal(forward, ((want != 0) * directions).sum(axis=1))


def test_maxima_of_two_identities_in_one_build():
    """The winner's value starts from its own identity, and is not read for another one."""
    x = te.placeholder(ROWS.shape, "float32", name="x")
    head = te.placeholder((len(ROWS),), "float32", name="head")
    with np.errstate(over="ignore"):
        given = ROWS.astype("float32")
    clamped, plain = (reduced(x, "max", identity) for identity in (0.0, -np.inf))
    double = te.compute(plain.shape, lambda i: plain[i] * 2.0, name="double")
    [dx] = ad.differentiate(clamped, [x], head)
    got, _ = ad.build([x, head], [double, dx], cache=False)(given, np.ones(len(ROWS), "float32"))
    np.testing.assert_array_equal(got, 2 * given.max(axis=1))


#: indices as data: some lie outside of what they index, behind a guard
I = te.placeholder((4,), "int32", name="I")  # noqa: E741
J = te.placeholder((6,), "int32", name="J")
T = te.placeholder((5, 3), D, name="t")
ZERO = tirx.const(0.0, D)
GUARDED = {
    "index": lambda i, j: te.if_then_else(i < 4, T[I[i], j], ZERO),
    "index of both axes": lambda i, j: te.if_then_else(i + j < 4, T[I[i], j], ZERO),
    "data": lambda i, j: te.if_then_else(J[i] >= 0, T[I[J[i]], j], ZERO),
    "index and data": lambda i, j: te.if_then_else(
        i < 4, te.if_then_else(J[i] >= 0, T[I[J[i]], j] * T[I[i], 2 - j], ZERO), ZERO
    ),
    "data of both axes": lambda i, j: te.if_then_else(J[i] >= j, T[I[J[i] - j], j], ZERO),
    "data of data": lambda i, j: te.if_then_else(
        J[i] >= 0, te.if_then_else(I[J[i]] > 0, T[I[J[i]] - 1, j], ZERO), ZERO
    ),
}
PLACES = {I: np.array([2, 0, 4, 1], "int32"), J: np.array([3, -7, 0, 2, -1, 1], "int32")}


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("head", ["tensor", "identity"])
@pytest.mark.filterwarnings("ignore::tvm_autodiff.DenseSumWarning")
def test_guards_come_before_the_reads_of_indices(name, summed, head):
    body = GUARDED[name]
    shape = (3,) if summed else (6, 3)
    if summed:
        k = te.reduce_axis((0, 6), "k")
        y = te.compute(shape, lambda j: te.sum(body(k, j), axis=k), name="y")
    else:
        y = te.compute(shape, body, name="y")
    h = te.placeholder(shape, D, name="h")
    adjoints = ad.differentiate(y, [T], *([h] if head == "tensor" else []))
    values = [(T, np.arange(15.0).reshape(5, 3)), (h, np.ones(shape)), *PLACES.items()]
    [got] = evaluate_graph(adjoints, values, strict=True)
    if head == "identity":
        got = got.sum(axis=tuple(range(len(shape))))
    step, want = 1e-3, np.zeros((5, 3))
    for place in np.ndindex(5, 3):
        ends = []
        for sign in (step, -step):
            table = values[0][1].copy()
            table[place] += sign
            ends.append(evaluate_graph([y], [(T, table), *PLACES.items()])[0].sum())
        want[place] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(got, want, atol=1e-9)
