"""Loops of a row in pieces: outer ones where choices change, the last one where vectors end."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.machines import avx512
from tests.schedule.fusion.test_groups import groups_of
from tvm_autodiff.compile import build
from tvm_autodiff.expr.nodes import BRANCHES, op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.schedule.cost import MAX_COPIES
from tvm_autodiff.schedule.fusion.row_items import items_of, nests_of
from tvm_autodiff.schedule.fusion.row_pieces import last_pieces, outer_pieces

ROWS, STEPS, WIDTH = 6, 5, 32


def steps(choice):
    """``y[n, t, j]`` of ``choice(a, b, t, j)``, and its sums over n."""
    a, b = (te.placeholder((ROWS, WIDTH), name=name) for name in "ab")
    y = te.compute(
        (ROWS, STEPS, WIDTH),
        lambda n, t, j: choice(a[n, j], b[n, j], t, j),
        name="y",
    )
    n = te.reduce_axis((0, ROWS), "n")
    total = te.compute((STEPS, WIDTH), lambda t, j: te.sum(y[n, t, j], axis=n), name="total")
    return [a, b], [y, total]


def first(a, b, t, j):
    return te.if_then_else(t == 0, a, b)


def each(a, b, t, j):
    return tirx.Select(t == 1, a, tirx.Select(t == 3, b, te.const(2.0, "float32")))


def corner(a, b, t, j):
    return te.if_then_else(te.all(t < 2, j < 8), a, b)


def below(a, b, t, j):
    return tirx.Select(j < t, a, b)


def steady(a, b, t, j):
    return a * 2.0 + b


#: elements → the first and last step of each piece, and whether choices are left in it
PIECES = {
    first: {(0, 0): False, (1, 4): False},
    each: {(0, 0): False, (1, 1): False, (2, 2): False, (3, 3): False, (4, 4): False},
    corner: {(0, 1): True, (2, 4): False},  # a choice along the row runs in vectors
    below: {(0, 4): True},  # no step alone decides it
    steady: {},
}


@pytest.mark.parametrize("choice", PIECES)
def test_outer_loops(choice):
    [group] = groups_of(steps(choice)[1])
    nest = nests_of(items_of(group, avx512(1)))[0]
    found = outer_pieces(nest.items)
    left = {}
    for places, items in found:
        sources = [source for item in items for source in item.sources]
        chooses = any(op_name(node) in BRANCHES for node in postorder(sources))
        left.update(dict.fromkeys(places.values(), chooses))
        assert [(begin, end) for begin, end, _ in last_pieces(items, 0, WIDTH)] == [(0, WIDTH)]
    assert left == PIECES[choice]
    assert len(found) <= MAX_COPIES


@pytest.mark.parametrize("choice", PIECES)
def test_values(choice):
    inputs, outputs = steps(choice)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (ROWS, WIDTH)).astype("float32") for _ in inputs)
    y, total = build(inputs, outputs, cache=False)(a, b)
    t, j = np.arange(STEPS)[:, None], np.arange(WIDTH)
    x, z = a[:, None], b[:, None]
    want = {
        first: np.where(t == 0, x, z),
        each: np.where(t == 1, x, np.where(t == 3, z, 2.0)),
        corner: np.where((t < 2) & (j < 8), x, z),
        below: np.where(j < t, x, z),
        steady: np.broadcast_to(x * 2 + z, y.shape),
    }[choice]
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(total, want.sum(0))
