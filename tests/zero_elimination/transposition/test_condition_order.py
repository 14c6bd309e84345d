"""Conditions of gathered terms stand where the reads in them are protected.

Values are loops in numpy; a read outside of its tensor is an error.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff import differentiate

P, Q = (te.placeholder((5,), "int32", name=name) for name in "PQ")
INTEGERS = [np.array([3, 0, 0, 1, 4], "int32"), np.array([0, 1, 3, 2, 0], "int32")]

#: name → (shape of what is read, extent of the output, where it is read)
CASES = {
    "a place beside data, and data at that place": (
        (6, 5),
        2,
        lambda i, p, q: (p[0] + i, p[i + 3]),
    ),
    "the other way round": ((5, 6), 2, lambda i, p, q: (p[i + 3], p[0] + i)),
    "data at a place that data tells": (
        (6, 6, 5),
        2,
        lambda i, p, q: (p[0] + i, q[p[4 - i]] + i, q[i]),
    ),
    "from the end": ((6, 5), 3, lambda i, p, q: (q[2] - i, p[i + 2])),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds_stand_before_reads_at_what_they_bound(name):
    shape, extent, place = CASES[name]
    x = te.placeholder(shape, "float64", name="x")
    y = te.compute((extent,), lambda i: x[place(i, P, Q)], name="y")
    head = te.placeholder((extent,), "float64", name="head")
    [dx] = differentiate(y, [x], head)
    weights = np.arange(1.0, extent + 1)
    want = np.zeros(shape)
    for i in range(extent):
        want[place(i, *INTEGERS)] += weights[i]
    given = [(x, np.zeros(shape)), (head, weights), *zip((P, Q), INTEGERS, strict=True)]
    [got] = evaluate_graph([dx], given, strict=True)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bound", ["a window", "a size", "a size of a place that is data"])
def test_ranges_without_a_point_protect_what_is_read_in_them(bound):
    """``x[p[i - 2] + k]`` for k < i//2: no k, and nothing to read, for i below two."""
    n = te.var("n")
    x, p = te.placeholder((6,), "float64", name="x"), te.placeholder((n,), "int32", name="p")
    window = bound == "a window"
    k = te.reduce_axis((0, n), "k")

    def first(i):
        return te.max(te.min(i, n - 1), 0)

    def row(i):
        if window:
            inner = te.reduce_axis((0, i // 2), "k")
            return te.sum(x[p[i - 2] + inner], axis=inner)
        if bound == "a size":
            return te.sum(x[p[first(i)] + k], axis=k)
        return te.sum(te.if_then_else(p[first(i)] == k, x[k], 0.0), axis=k)

    y = te.compute((n + 2 if window else n + 1,), row, name="y")
    head = te.placeholder(y.shape, "float64", name="head")
    [dx] = differentiate(y, [x], head)
    for size in (0, 1, 3):
        places = np.arange(size)[::-1].astype("int32")
        weights = np.arange(1.0, size + 3 if window else size + 2)
        want = np.zeros(6)
        for i, weight in enumerate(weights):
            if window:
                for step in range(i // 2):
                    want[places[i - 2] + step] += weight
            elif size:
                at = places[min(i, size - 1)]
                for step in range(size) if bound == "a size" else (0,):
                    want[at + step] += weight
        given = [(x, np.zeros(6)), (p, places), (head, weights)]
        [got] = evaluate_graph([dx], given, {n: size}, strict=True)
        np.testing.assert_array_equal(got, want)


def test_a_range_that_follows_from_data_is_still_tested_before_the_data():
    """``p[j // 2] + j <= 2`` bounds j, the place in a window, and p is read there to know it."""
    p = te.placeholder((2,), "uint8", name="p")
    x = te.placeholder((4, 3), "float64", name="x")

    def body(i):
        k = te.reduce_axis((0, 4 - i), "k")
        place = p[(i + k) // 2].astype("int32") + (i + k)
        return te.sum(te.if_then_else(place < 3, x[k, place], 0.0), axis=k)

    y = te.compute((4,), body, name="y")
    [jacobian] = differentiate(y, [x])
    places, want = np.array([1, 0], "uint8"), np.zeros((4, 4, 3))
    for i in range(4):
        for k in range(4 - i):
            place = int(places[(i + k) // 2]) + i + k
            if place < 3:
                want[i, k, place] += 1
    [got] = evaluate_graph([jacobian], [(x, np.zeros((4, 3))), (p, places)], strict=True)
    np.testing.assert_array_equal(got, want)


def test_a_range_that_follows_from_data_is_tested_before_all_that_is_read_there():
    """``k < j + 1`` with ``k = (b - I) % 5`` leaves no test of ``j >= 0``, and the winner of (i, j)
    is read before.
    """
    x, place = te.placeholder((5, 5), "float64", name="x"), te.placeholder((), "int32", name="I")

    def body(i, j):
        k = te.reduce_axis((0, j + 1), "k")
        return te.max(x[(place() + k) % 5, 4 - j - i], axis=k)

    y = te.compute((3, 3), body, name="y")
    head = te.placeholder((3, 3), "float64", name="head")
    [dx] = differentiate(y, [x], head)
    rng = np.random.default_rng(0)
    values, weights, want = rng.random((5, 5)), rng.random((3, 3)), np.zeros((5, 5))
    for i in range(3):
        for j in range(3):
            rows = [(3 + k) % 5 for k in range(j + 1)]
            row = rows[np.argmax(values[rows, 4 - j - i])]
            want[row, 4 - j - i] += weights[i, j]
    given = [(x, values), (place, np.array(3, "int32")), (head, weights)]
    [got] = evaluate_graph([dx], given, strict=True)
    np.testing.assert_allclose(got, want, rtol=1e-15)


def test_a_range_that_follows_from_an_axis_that_a_read_gives_is_tested_before_the_read():
    """``I + k <= b`` with k >= 0 leaves no test of ``i = b - I >= 0``; k is the winner of row i."""
    x, place = te.placeholder((9,), "float64", name="x"), te.placeholder((), "uint8", name="I")

    def row(i):
        k = te.reduce_axis((te.max(i - 2, 0), i + 1), "k")
        return te.min(x[place().astype("int32") + i], axis=k)

    y, head = te.compute((3,), row, name="y"), te.placeholder((3,), "float64", name="head")
    [dx] = differentiate(y, [x], head)
    for start in (0, 2, 6):
        given = [(x, np.arange(9.0)), (place, np.array(start, "uint8")), (head, [1.0, 2.0, 3.0])]
        given = [(tensor, np.asarray(value)) for tensor, value in given]
        [got] = evaluate_graph([dx], given, strict=True)
        want = np.zeros(9)
        want[start : start + 3] = [1, 2, 3]
        np.testing.assert_array_equal(got, want)


def test_the_condition_of_a_case_stands_before_reads_at_places_of_the_case():
    """``min(4 - 2k, 3) → 4 - 2k`` where that is at most 3, in the comparison of a maximum, too."""
    x = te.placeholder((3, 4), "float64", name="x")

    def body(i, j):
        k = te.reduce_axis((0, 2), "k")
        row = te.min(-(j + 3) - i + 2, -3) % 3
        return te.min(te.max(x[row, te.min(i + 2 - 2 * k, 3)], x[0, 0]), axis=k)

    y, head = te.compute((3, 2), body, name="y"), te.placeholder((3, 2), "float64", name="head")
    [dx] = differentiate(y, [x], head)
    rng = np.random.default_rng(0)
    values, weights, want = rng.random((3, 4)), rng.random((3, 2)), np.zeros((3, 4))
    values[0, 0] = 0.4
    for i in range(3):
        for j in range(2):
            places = [(min(-(j + 3) - i + 2, -3) % 3, min(i + 2 - 2 * k, 3)) for k in range(2)]
            row = [max(values[place], values[0, 0]) for place in places]
            place = places[int(np.argmin(row))]
            want[place if values[place] >= values[0, 0] else (0, 0)] += weights[i, j]
    [got] = evaluate_graph([dx], [(x, values), (head, weights)], strict=True)
    np.testing.assert_allclose(got, want, rtol=1e-14)


def test_what_follows_from_two_ranges_that_read_is_tested_before_they_do():
    """``m = 3 - k - i`` and ``k = b - I[3 - i]`` for m, k < 2: i is not 0, where I would be read
    behind its end.
    """
    x, w = te.placeholder((4, 6), "float64", name="x"), te.placeholder((2, 2), "float64", name="w")
    places = te.placeholder((3,), "int32", name="I")
    k, m = te.reduce_axis((0, 2), "k"), te.reduce_axis((0, 2), "m")
    y = te.compute(
        (1,),
        lambda i: te.sum(w[k, m] * te.sin(x[3 - m - k, places[m + k] + k]), axis=[k, m]),
        name="y",
    )
    head = te.placeholder((1,), "float64", name="head")
    [dx] = differentiate(y, [x], head)
    rng = np.random.default_rng(0)
    values, weights, index = rng.random((4, 6)), rng.random((2, 2)), np.array([2, 4, 0], "int32")
    want = np.zeros((4, 6))
    for a in range(2):
        for b in range(2):
            row, column = 3 - b - a, index[b + a] + a
            want[row, column] += weights[a, b] * np.cos(values[row, column])
    given = [(x, values), (w, weights), (places, index), (head, np.ones(1))]
    [got] = evaluate_graph([dx], given, strict=True)
    np.testing.assert_allclose(got, want, rtol=1e-15)


def test_reads_in_either_branch_of_a_select_say_nothing_of_the_place():
    """``select(k <= 3, s[k], 1)``: k is 4, too, where s is not read."""
    a, s = te.placeholder((2, 2), "float64", name="a"), te.placeholder((4,), "float64", name="s")
    place = te.placeholder((), "int32", name="I")
    k = te.reduce_axis((0, 5), "k")
    y = te.compute(
        (),
        lambda: te.sum(
            tirx.Max(
                a[place() % 2, k // 3] * tirx.Select(k.var <= 3, s[k], tirx.const(1.0, "float64")),
                tirx.const(0.5, "float64"),
            ),
            axis=k,
        ),
        name="y",
    )
    [da] = differentiate(y, [a])
    factors = np.array([2.0, 3.0, 5.0, 7.0])
    given = [(a, np.ones((2, 2))), (s, factors), (place, np.array(1, "int32"))]
    [got] = evaluate_graph([da], given)
    np.testing.assert_array_equal(got, [[0, 0], [10, 8]])
