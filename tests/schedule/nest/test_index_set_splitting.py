"""Pieces of a loop decide all they can."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tvm_autodiff.compile import build
from tvm_autodiff.expr.nodes import node_id, op_name
from tvm_autodiff.expr.rewrite import contains, postorder
from tvm_autodiff.schedule.nest.decided import decided
from tvm_autodiff.schedule.nest.index_set_splitting import pieces, split

i, j = te.var("i"), te.var("j")
RANGES = {node_id(i): (0, 6), node_id(j): (0, 4)}

def guarded(condition):
    return te.if_then_else(condition, 1, 2)


PIECES = [
    ([guarded(i < 7)], 7, [(0, 6)]),
    ([guarded(i * 2 + 1 < 8)], 7, [(0, 3), (4, 6)]),
    ([guarded(te.all(i >= 2, i <= 4))], 7, [(0, 1), (2, 4), (5, 6)]),
    ([guarded(i == 3)], 7, [(0, 2), (3, 3), (4, 6)]),
    ([te.min(i * 2, 5)], 7, [(0, 2), (3, 6)]),
    ([guarded(i + j < 5)], 7, [(0, 6)]),
    ([guarded(i == n) for n in range(1, 7)], 7, [(0, 6)]),
    ([(i + 2) % 7], 7, [(0, 4), (5, 6)]),
    ([(i + 6) % 7 + (i + 1) % 7], 7, [(0, 0), (1, 5), (6, 6)]),
    ([(8 - i) % 7], 7, [(0, 1), (2, 6)]),
    ([(i * 2 + 1) // 9], 7, [(0, 3), (4, 6)]),
    ([i // 2], 7, [(0, 6)]),
    ([(i + j) % 7], 7, [(0, 6)]),
    # several changes, each after more neighbours than are written out
    ([(i * 2 + 2) % 64], 64, [(0, 30), (31, 62), (63, 63)]),
    ([(64 - i) // 32], 64, [(0, 0), (1, 32), (33, 63)]),
    ([i // 16], 64, [(0, 63)]),
    # more pieces than are written out, around a long one
    ([te.min(te.max(i + k, 0), 63) for k in range(-8, 9)], 64, [(0, 7), (8, 55), (56, 63)]),
    ([guarded(i + k < 99) for k in range(30)], 99, [(0, 69), (70, 98)]),
    ([te.min(te.max(i + k, 0), 23) for k in range(-8, 9)], 24, [(0, 23)]),
]


@pytest.mark.parametrize(("exprs", "extent", "expected"), PIECES, ids=str)
def test_pieces(exprs, extent, expected):
    found = pieces(exprs, i, extent, [i, j], {node_id(j): (0, 4)})
    assert found == expected
    if len(found) > 1:
        longest = max(found, key=lambda piece: piece[1] - piece[0])
        for low, high in found if len(exprs) == 1 else [longest]:
            here = decided(exprs, [i, j], {node_id(i): (low, high)})
            left = ("lt", "le", "ge", "eq", "min", "floordiv", "floormod")
            assert not any(op_name(n) in left for n in postorder(here))


A, N = te.placeholder((64,), name="A"), te.var("n")
ZERO = tirx.const(0.0, "float32")


def branch(condition, value):
    return tirx.if_then_else(condition, value, ZERO)


SPLIT = [
    (A(i), [(0, 63)]),
    (branch(i < 16, A(i)), [(0, 15), (16, 63)]),
    (branch(i >= 16, A(i)), [(0, 15), (16, 63)]),
    (branch(te.all(i > 3, i <= 9), A(i)), [(0, 3), (4, 9), (10, 63)]),
    (branch(i == 5, A(i)), [(0, 4), (5, 5), (6, 63)]),
    (branch(i * 2 < 7, A(i)), [(0, 3), (4, 63)]),
    (branch(7 - i * 3 > 0, A(i)), [(0, 2), (3, 63)]),
    (branch(i < 100, A(i)), [(0, 63)]),
    (branch(te.any(i < 8, i >= 60), A(i)), [(0, 7), (8, 59), (60, 63)]),
    (A(te.min(te.max(i - 2, 0), 63)), [(0, 1), (2, 63)]),
    (A(te.max(te.min(i + 3, 63), 0)), [(0, 59), (60, 63)]),
    (A(te.if_then_else(i < 2, 2 - i, i - 2)), [(0, 1), (2, 63)]),
    (branch(i < N, A(i)), [(0, 63)]),
    (A((i + 63) % 64) + A((i + 1) % 64), [(0, 0), (1, 62), (63, 63)]),
]


@pytest.mark.parametrize(("body", "expected"), SPLIT)
def test_loops_are_split_where_conditions_and_clamps_change(body, expected):
    found = split([body], i, 64, 16)
    assert [(first, last) for first, last, _ in found] == expected
    choices = {"if_then_else", "min", "max"}
    decided_ones = [body for _, _, [body] in found if not contains(body, lambda n: n.same_as(N))]
    assert not any(contains(b, lambda n: op_name(n) in choices) for b in decided_ones)


def test_too_many_pieces_are_none():
    body = ZERO
    for place in range(32):
        body = body + branch(2 * place + 1 > i, A(i))
    assert len(split([body], i, 64, 16)) == 1


def test_what_the_dtype_does_not_hold_stays():
    """``99990*(49995 + i)`` is 99990*i + 4,999,000,050 as a form."""
    far = (i + tirx.const(49_995, "int32")) * tirx.const(99_990, "int32")
    [found] = decided([far], [i, j], RANGES)
    assert op_name(found) == "mul"
    near = (i + tirx.const(4_995, "int32")) * tirx.const(990, "int32")
    [found] = decided([near], [i, j], RANGES)
    assert op_name(found) == "add"


PLACES = {
    "turned": lambda n, k, j: n + 7 - k + j,
    "every third, turned": lambda n, k, j: 4 * n - 3 * k + j,
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [46_349, 99_991])  # squares near to 2³¹, and far beyond
@pytest.mark.parametrize("place", PLACES)
def test_circular_sums_of_large_extents(place, n, threads):
    x, h = (te.placeholder((n,), "float32", name=name) for name in "xh")
    k, at = te.reduce_axis((0, n), "k"), PLACES[place]
    y = te.compute(
        (8,), lambda j: te.sum(x[tirx.floormod(at(n, k.var, j), n)] * h[k], axis=k), name="y"
    )
    x_, h_ = np.random.default_rng(0).random((2, n)).astype("float32")
    numbers, columns = np.arange(n)[:, None], np.arange(8)
    wanted = h_.astype("float64") @ x_[at(n, numbers, columns) % n]
    got = build([x, h], y, num_threads=threads, cache=False)(x_, h_)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
