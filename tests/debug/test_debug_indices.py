"""`build(..., debug_indices=True)`: the stage that reads at data outside; no false alarms."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad

N = 5
x = te.placeholder((N,), name="x")
table = te.placeholder((N, 3), name="table")
at = te.placeholder((4,), "int32", name="at")
narrow = te.placeholder((4,), "uint8", name="narrow")
more = te.placeholder((9,), "int32", name="more")
k = te.reduce_axis((0, 4), name="k")
C, ite = te.compute, te.if_then_else


def inside(index):
    return te.all(index >= 0, index < N)


def chain():
    first = C((4,), lambda i: at[i] + 1, name="first")
    return C((4,), lambda i: x[first[i]] * 2.0, name="y")


def picked(index):
    return C((4,), lambda i: x[index(i)], name="y")


#: inputs, the output, indices that are inside, and ones that are not
CASES = {
    "a gather": ([x, at], lambda: picked(lambda i: at[i]), (0, 4, 2, 1), (0, 5, 2, 1)),
    "below": ([x, at], lambda: picked(lambda i: at[i]), (0, 0, 0, 0), (0, 0, 0, -1)),
    "far away": ([x, at], lambda: picked(lambda i: at[i]), (0, 0, 0, 0), (2**30, 0, 0, 0)),
    "a sum": (
        [table, at],
        lambda: C((3,), lambda j: te.sum(table[at[k], j], axis=k), name="y"),
        (0, 4, 2, 1),
        (0, 1, 2, 9),
    ),
    "data of data": (
        [x, at, more],
        lambda: picked(lambda i: more[at[i]]),
        (0, 4, 2, 1),
        (0, 1, 9, 2**30),
    ),
    "a computed index": ([x, at], chain, (-1, 3, 2, 1), (0, 4, 2, 1)),
    "a narrow index": (
        [x, narrow],
        lambda: picked(lambda i: narrow[i].astype("int32")),
        (0, 4, 2, 1),
        (0, 1, 5, 255),
    ),
    "a guard of another element": (
        [x, at],
        lambda: C((4,), lambda i: ite(inside(at[3 - i]), x[at[i]], 0.0), name="y"),
        (0, 4, 2, 1),
        (-1, 1, 2, 3),
    ),
}

GUARDED = {
    "a branch": ([x, at], lambda: C((4,), lambda i: ite(inside(at[i]), x[at[i]], 0.0), name="y")),
    "a sum": (
        [x, at],
        lambda: C((), lambda: te.sum(ite(inside(at[k]), x[at[k]], 0.0), axis=k), name="y"),
    ),
    "clamped": ([x, at], lambda: C((4,), lambda i: x[te.max(te.min(at[i], N - 1), 0)], name="y")),
    "a conjunction": (
        [x, at],
        lambda: C((4,), lambda i: ite(te.all(inside(at[i]), x[at[i]] > 0.0), 1.0, 0.0), name="y"),
    ),
}


def data(inputs, indices):
    rng = np.random.default_rng(0)
    values = {
        x: rng.random(N).astype("float32"), table: rng.random((N, 3)).astype("float32"),
        at: np.array(indices, "int32"), narrow: np.array(indices).astype("uint8"),
        more: np.array([1, 0, 4, 3, 2, 1, 0, 5, 6], "int32"),
    }  # fmt: skip
    return [values[one] for one in inputs]


@pytest.mark.parametrize("name", CASES)
def test_reads_outside_are_told(name):
    inputs, make, fine, wrong = CASES[name]
    output = make()
    function = ad.build(inputs, output, cache=False, debug_indices=True)
    given = data(inputs, fine)
    np.testing.assert_array_equal(function(*given), ad.build(inputs, output, cache=False)(*given))
    with pytest.raises(ad.OutOfBoundsError, match="stage y reads outside of a tensor: y"):
        function(*data(inputs, wrong))


@pytest.mark.parametrize("name", GUARDED)
def test_guarded_reads_are_none(name):
    inputs, make = GUARDED[name]
    function = ad.build(inputs, make(), cache=False, debug_indices=True)
    function(*data(inputs, (0, 2**30, -1, 4)))


def test_the_message():
    output = C((4,), lambda i: x[at[i]], name="y")
    function = ad.build([x, at], output, cache=False, debug_indices=True, debug_nan=True)
    with pytest.raises(IndexError) as failure:
        function(*data([x, at], (0, 5, 2, 7)))
    assert str(failure.value) == (
        "stage y reads outside of a tensor: y[1] does (the first of 2 elements). For [i] it "
        "reads x[at[i]]: correct the data, or guard the read with te.if_then_else"
    )


def test_gradients_and_symbolic_sizes():
    n = te.var("n")
    points, places = te.placeholder((n,), name="points"), te.placeholder((4,), "int32", name="at")
    y = C((4,), lambda i: te.exp(points[places[i]]), name="y")
    loss = C((), lambda: te.sum(y[k], axis=k), name="loss")
    step = ad.build(
        [points, places], [loss, *ad.differentiate(loss, [points])], cache=False, debug_indices=True
    )
    at_ = np.array([0, 1, 2, 2], "int32")
    np.testing.assert_allclose(step(np.zeros(3, "float32"), at_)[1], [1, 1, 2])
    with pytest.raises(ad.OutOfBoundsError, match="stage y"):
        step(np.zeros(2, "float32"), at_)
