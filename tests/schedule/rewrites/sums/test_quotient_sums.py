"""Reduce axes split at their quotients: equal values, no division left, and what stays."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tests.schedule import cases
from tests.schedule.test_rules import arrays_for, check, expected, rules_of
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import contains
from tvm_autodiff.graph.free_variables import free_variables
from tvm_autodiff.graph.stage import reduction_of
from tvm_autodiff.schedule.rewrites.sums.quotient_sums import with_split_quotients


def tiled(body, extent, reducer=te.sum):
    """``y[i] = ⊕_k body(X, i, k)`` for X of 9x8."""
    X, k = cases.placeholder("X", 9, 8), cases.axis(extent)
    return [X], te.compute((6,), lambda i: reducer(body(X, i, k.var), axis=k), name="y")


SPLIT = {
    "a quotient and a remainder": tiled(lambda X, i, k: X[k // 4, k % 4] * X[i, k % 4], 24),
    "shifted remainders": tiled(lambda X, i, k: X[k // 4, (k * 3 + 3) % 4] * X[i, k % 4], 24),
    "multiples": tiled(lambda X, i, k: X[(k * 2 + 1) // 8, k * 2 % 8 // 2], 24),
    "a sum of an axis": tiled(lambda X, i, k: X[(i * 4 + k) // 4 - i, k % 4], 24),
    "a maximum": tiled(lambda X, i, k: X[k // 4, k % 4] - X[i, k // 4], 24, te.max),
    "under a guard": tiled(
        lambda X, i, k: te.if_then_else(te.all(k // 4 <= i, k % 4 > 0), X[k // 4, k % 4], 0.0), 24
    ),
}

STAYS = {
    "no division": tiled(lambda X, i, k: X[i, k], 8),
    "a rest": tiled(lambda X, i, k: X[k // 4, k % 4], 23),
    "two divisors": tiled(lambda X, i, k: X[k // 4, k % 3], 24),
    "a remainder across axes": tiled(lambda X, i, k: X[i, (i + k) % 4], 24),
}


NESTED = {
    "three digits": tiled(lambda X, i, k: X[k // 9, k // 3 % 3] * X[k % 3, i], 27),
    "of other sizes": tiled(lambda X, i, k: X[k // 8, k // 2 % 4] * X[k % 2, i], 24),
    "a part of a digit": tiled(lambda X, i, k: X[k // 8, i] * X[k // 4 % 2, k % 4], 32),
}


@pytest.mark.parametrize("name", NESTED)
def test_each_digit_is_an_axis(name):
    inputs, output = NESTED[name]
    [split] = with_split_quotients([output])
    assert len(reduction_of(split.op).axes) == 3
    assert not divides(split)
    arrays = arrays_for(inputs, {})
    np.testing.assert_array_equal(expected(inputs, split, arrays), expected(inputs, output, arrays))


def divides(output):
    sources = list(reduction_of(output.op).sources)
    return contains(sources, lambda node: op_name(node) in ("floordiv", "floormod"))


@pytest.mark.parametrize("name", SPLIT)
def test_no_division_is_left(name):
    inputs, output = SPLIT[name]
    [split] = with_split_quotients([output])
    assert len(reduction_of(split.op).axes) == 2
    assert not divides(split)
    arrays = arrays_for(inputs, {})
    np.testing.assert_array_equal(expected(inputs, split, arrays), expected(inputs, output, arrays))


@pytest.mark.parametrize(("factor", "splits"), [(8, True), (4, True), (2, False), (1, False)])
def test_so_many_groups_as_a_call_has(factor, splits):
    n = te.var("n")
    X, k = cases.placeholder("X", 9, 8), cases.axis(n * factor)
    y = te.compute((6,), lambda i: te.sum(X[k // 4, k % 4] * X[i, k % 4], axis=k), name="y")
    [split] = with_split_quotients([y])
    assert (len(reduction_of(split.op).axes) == 2) is splits
    arrays = arrays_for([X], {})
    for count in (0, 1, 3):
        want, got = (
            evaluate_graph([one], [(X, arrays[0])], {n: count})[0] for one in (y, split)
        )
        np.testing.assert_array_equal(got, want)


def test_bounds_and_conditions_move_with_their_axis():
    X, L = cases.placeholder("X", 6, 4, 9), te.placeholder((24,), "int32", "L")
    k = cases.axis(24)
    m = te.reduce_axis((0, L[k.var]), "m")
    below = k.var < 17
    y = te.compute((1,), lambda _: te.sum(X[k // 4, k % 4, m], axis=[k, m], where=below), name="y")
    [split] = with_split_quotients([y])
    assert not divides(split)
    assert not free_variables(split.op)
    arrays = arrays_for([X], {})
    lengths = np.arange(24, dtype="int32") * 5 % 10
    found = [evaluate_graph([one], [(X, arrays[0]), (L, lengths)])[0] for one in (split, y)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name):
    _, output = STAYS[name]
    [same] = with_split_quotients([output])
    assert same.same_as(output)


def cost_volume(channels, height, width, reach):
    """Products with every displacement of a second image, summed over channels."""
    side = 2 * reach + 1
    A = cases.placeholder("A", channels, height, width)
    B = cases.placeholder("B", side * side, height, width)
    d = cases.axis(side * side)

    def total(c, i, j):
        place = (i + d // side - reach, j + d % side - reach)
        inside = te.all(place[0] >= 0, place[0] < height, place[1] >= 0, place[1] < width)
        return te.sum(te.if_then_else(inside, A(c, *place) * B[d, i, j], 0.0), axis=d)

    return [A, B], te.compute((channels, height, width), total, name="y")


def rolled_windows(windows, side, channels):
    """Weights of a window times what a rolled image has there."""
    size, width = windows * side, side * side
    X = cases.placeholder("X", size, size, channels)
    P = cases.placeholder("P", windows * windows, width, width)
    q = cases.axis(width)

    def total(n, p, c):
        i = (n // windows * side + q // side + 2) % size
        j = (n % windows * side + q % side + 2) % size
        return te.sum(P[n, p, q] * X[i, j, c], axis=q)

    return [X, P], te.compute((windows * windows, width, channels), total, name="y")


@pytest.mark.parametrize("case", [cost_volume(16, 12, 19, 2), rolled_windows(3, 4, 24)])
def test_tiles_take_what_divided(case):
    check(case)
    assert rules_of(with_split_quotients([case[1]])[0]) == ["contraction"]
