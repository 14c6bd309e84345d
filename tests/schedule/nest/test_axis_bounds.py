"""Pieces on which conditions hold for all other indices, and conditions as bounds."""

from __future__ import annotations

import itertools

import pytest
from tvm import te, tirx
from tvm.sym import Analyzer

from tvm_autodiff.expr.nodes import node_id
from tvm_autodiff.expr.rewrite import substitute
from tvm_autodiff.schedule.nest.axis_bounds import bound_of, decided_piece, longest_piece

j, k = te.var("j"), te.var("k")
RANGES = {node_id(j): (0, 99), node_id(k): (0, 19)}
PIECES = {
    "from a place on": (k <= j, (19, 99)),
    "both ends": (tirx.all(k <= j, j <= k + 79), (19, 79)),
    "a clamp of a clamp": (tirx.max(tirx.min(j + k - 10, 99), 0), (10, 89)),
    "two at a time": (k * 2 <= j, (38, 99)),
    "nothing": (k < 5, (0, 99)),
}


def value_at(expr, place, other):
    table = {j: tirx.const(place, "int32"), k: tirx.const(other, "int32")}
    return int(Analyzer().simplify(substitute(expr, table)).value)


@pytest.mark.parametrize("name", PIECES)
def test_longest_piece(name):
    condition, (first, last) = PIECES[name]
    low, high = longest_piece([condition], j, [j, k], RANGES)
    assert (low, high) == (first, last)


def test_no_places_have_no_pieces():
    ranges = {node_id(j): (0, -1), node_id(k): (0, -1)}
    assert longest_piece([k <= j], j, [j, k], ranges) == (0, -1)


#: conditions on j, 0..99, for k, 0..19 → the piece on which all k agree, if it is half of the axis
DECIDED = {
    "from a place on": (lambda j, k: [k <= j], (19, 99)),
    "a window": (lambda j, k: [j + k - 4 >= 0, j + k - 4 < 100], (4, 84)),
    "a longer part that is open": (lambda j, k: [k < j, 65 - j > k], None),
    "an open part and the rest": (lambda j, k: [j + 3 * k < 99], None),
    "a short open part": (lambda j, k: [j + k < 40], (40, 99)),
    "each place": (lambda j, k: [j >= 5 * k], None),
}


@pytest.mark.parametrize("name", DECIDED)
def test_decided_pieces(name):
    conditions, piece = DECIDED[name]
    found = decided_piece([tirx.all(*conditions(j, k))], j, [j, k], RANGES)
    assert (None if found is None else found[0]) == piece
    if piece is not None:
        holds = {
            all(conditions(place, other))
            for place in range(piece[0], piece[1] + 1)
            for other in range(20)
        }
        assert len(holds) == 1


@pytest.mark.parametrize(
    "condition", [k < j, k <= j, j < k + 3, j <= 2 * k, 40 - j > k, k >= 40 - j, j - k < 3]
)
def test_bounds(condition):
    bound = bound_of(condition, j, [j, k])
    assert bound is not None
    for place, other in itertools.product(range(0, 50, 3), range(0, 20, 2)):
        limit = value_at(bound.value, place, other)
        holds = place >= limit if bound.below else place < limit
        assert holds == bool(value_at(condition, place, other))


@pytest.mark.parametrize("condition", [tirx.EQ(j, k), j * 2 <= k, tirx.NE(j, 3)])
def test_other_conditions(condition):
    assert bound_of(condition, j, [j, k]) is None
