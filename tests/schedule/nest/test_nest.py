"""Transformations of loop nests: every turn of the loops executed on integers stores the same."""

from __future__ import annotations

from itertools import product

import pytest
from tvm import te

from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.schedule.nest.nest import (
    bordered,
    interchanged,
    narrowed,
    nest_of,
    split,
    strip_mined,
    unrolled,
    vectorised,
)

AXES = [te.reduce_axis((0, 11), "i"), te.reduce_axis((0, 23), "j")]
i, j = (axis.var for axis in AXES)
T = te.placeholder((11, 23), "int32", name="T")
VALUE = te.if_then_else(i < 1, 5, i * 1000) + te.max(j - 3, 0) * (j % 3) + i % 2 + j // 12
WANT = {
    (a, b): (1000 * a if a else 5) + max(b - 3, 0) * (b % 3) + a % 2 + b // 12
    for a, b in product(range(11), range(23))
}


def turns(loop):
    """The values of the variable in each turn: one for each lane."""
    last = loop.low + loop.extent - loop.width
    for turn in range(loop.turns):
        first = min(loop.low + turn * loop.width, last)
        yield range(first, first + loop.lanes)


def executed(nest):
    """What the stores of a nest leave behind: element → value, and how often it was stored."""
    found, times = {}, {}
    stores = [
        (one.copy, compile_integers([*one.indices, one.value], nest.variables))
        for one in nest.stores
    ]
    for lines in product(*map(turns, nest.loops)):
        for place in product(*lines):
            for copy, function in stores:
                if all(n in loop.copies for n, loop in zip(copy, nest.loops, strict=True)):
                    *indices, value = function(*place)
                    assert found.setdefault(tuple(indices), value) == value
                    times[tuple(indices)] = times.get(tuple(indices), 0) + 1
    return found, max(times.values())


def pieces(nest):
    """The nests over every combination of pieces."""
    cuts = [split(nest, place) for place in range(len(nest.loops))]
    return [narrowed(nest, loops) for loops in product(*cuts)]


NEST = nest_of(AXES, [VALUE], [T])
NESTS = {
    "plain": [NEST],
    "classes": pieces(unrolled(NEST, [1, 3])),
    "classes of both": pieces(unrolled(NEST, [2, 6])),
    "a loop of one turn": pieces(unrolled(NEST, [11, 1])),
    "pieces": pieces(NEST),
    "interchanged": [interchanged(NEST, [1, 0])],
    "strips": [strip_mined(NEST, 0, 4)],
    "strips that end with the loop": [strip_mined(NEST, 0, 11)],
    "unrolled strips": [unrolled(strip_mined(NEST, 1, 5), [1, 1, 5])],
    "lanes": [vectorised(NEST, 1, 8)],
    "lanes of pieces": pieces(vectorised(NEST, 1, 8)),
    "lanes of classes": pieces(vectorised(unrolled(NEST, [1, 3]), 1, 4)),
    "tiles": [strip_mined(interchanged(strip_mined(NEST, 1, 8), [1, 0, 2]), 1, 4)],
    "tiles of lanes": [vectorised(strip_mined(interchanged(NEST, [1, 0]), 1, 4), 0, 8)],
}


@pytest.mark.parametrize("name", NESTS)
def test_stores(name):
    found = {}
    for nest in NESTS[name]:
        stored, times = executed(nest)
        assert (times == 1) is not any(loop.overlaps for loop in nest.loops)
        found |= stored
    assert found == WANT


ROWS = [(0, 1, 1), (1, 10, 1)]


@pytest.mark.parametrize(
    ("nest", "cuts"),
    [
        (NEST, [(0, 3, 1), (3, 9, 1), (12, 11, 1)]),
        (unrolled(NEST, [1, 3]), [(0, 1, 1), (1, 3, 1), (4, 3, 1), (7, 1, 1)]),
        (vectorised(NEST, 1, 8), [(0, 3, 1), (3, 9, 8), (12, 11, 8)]),
        (vectorised(NEST, 1, 16), [(0, 3, 1), (3, 9, 8), (12, 11, 8)]),
    ],
    ids=["plain", "classes", "8 lanes", "16 lanes"],
)
def test_pieces(nest, cuts):
    """Where each piece begins, its turns without lanes, and its lanes."""
    found = [[(p.low, p.extent, p.lanes) for p in split(nest, place)] for place in range(2)]
    assert found == [ROWS, cuts]


def test_nothing_is_decided_in_a_piece_again():
    """Between cuts, no condition, clamp or quotient is left."""
    for nest in pieces(unrolled(NEST, [2, 12])):
        text = " ".join(str(value) for value in nest.values)
        assert not [sign for sign in ("if_then_else", "max", "//", "%") if sign in text]


n = te.var("n")
LINE = te.reduce_axis((0, n + 3), "k")
k = LINE.var
#: values over k < n + 3, and how many first and last values conditions tell apart
SYMBOLIC = {
    "nothing": (k * 2, (0, 0)),
    "first": (te.if_then_else(k < 2, 7, k), (2, 0)),
    "last": (te.if_then_else(k < n, k, 9), (0, 3)),
    "window": (te.if_then_else(te.all(k >= 2, k < n + 2), k - 2, 5), (2, 1)),
    "clamped": (te.max(te.min(k - 1, n + 2), 0), (1, 0)),
    "clamped at both ends": (te.min(te.max(k - 2, 0), n - 1), (2, 2)),
    "several": (te.max(k - 1, 0) + te.if_then_else(k < n - 1, 4, k), (1, 4)),
    "reversed": (te.if_then_else(n - k > 1, k, 3), (0, 4)),
    "steps": (te.if_then_else(k * 2 < 7, 1, 0) + te.if_then_else(k * 3 < n, 1, 0), (4, 0)),
}


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", SYMBOLIC)
def test_borders_of_a_symbolic_loop(name, lanes):
    value, borders = SYMBOLIC[name]
    line = te.placeholder((n + 3,), "int32", name="line")
    nest = bordered(nest_of([LINE], [value], [line]), 0)
    assert nest.loops[0].borders == borders
    cuts = split(vectorised(nest, 0, lanes), 0)
    expected = compile_integers([value], [k, n])
    for size in range(max(sum(borders) + lanes - 3, 0), 14):
        found = {}
        for piece in cuts:
            part = narrowed(nest, [piece])
            [one] = part.stores
            run = compile_integers([*one.indices, one.value], [*part.variables, n])
            extent = piece.extent
            if not isinstance(extent, int):
                [extent] = compile_integers([extent], [n])(size)
            for turn in range(piece.low, piece.low + extent):
                place, got = run(turn, size)
                assert place not in found
                found[place] = got
        assert found == {place: expected(place, size)[0] for place in range(size + 3)}


#: an extent over n, a value of k below it, and its residue classes
CLASSES = {
    "whole turns": (n * 2, lambda k: k // 2 * 10 + k % 2, 2),
    "one more": (n * 2 + 1, lambda k: te.max(k // 2 - 1, 0), 2),
    "some more": (n + 3, lambda k: k // 3 * 10 + (k + 1) % 3, 3),
    "with borders": (n + 4, lambda k: te.if_then_else(k < n, k // 2, 9) + te.max(k - 2, 0), 2),
}


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", CLASSES)
def test_classes_of_a_symbolic_loop(name, lanes):
    extent, body, count = CLASSES[name]
    axis = te.reduce_axis((0, extent), "k")
    line = te.placeholder((extent,), "int32", name="line")
    nest = bordered(unrolled(nest_of([axis], [body(axis.var)], [line]), [count]), 0)
    expected = compile_integers([body(axis.var)], [axis.var, n])
    length = compile_integers([extent], [n])
    for size in range(12):
        [end] = length(size)
        if end // count < sum(nest.loops[0].borders):
            continue  # a call takes another nest
        found = {}
        for piece in split(vectorised(nest, 0, lanes), 0):
            if piece.when is not None and not compile_integers([piece.when], [n])(size)[0]:
                continue
            part = narrowed(nest, [piece])
            turns_of = piece.extent
            if not isinstance(turns_of, int):
                [turns_of] = compile_integers([turns_of], [n])(size)
            for one in part.stores:
                run = compile_integers([*one.indices, one.value], [*part.variables, n])
                for turn in range(piece.low, piece.low + turns_of):
                    place, got = run(turn, size)
                    assert place not in found
                    found[place] = got
        assert found == {place: expected(place, size)[0] for place in range(end)}


def test_the_middle_of_a_symbolic_loop_has_no_conditions():
    for name in ("window", "clamped at both ends", "several"):
        line = te.placeholder((n + 3,), "int32", name="line")
        nest = bordered(nest_of([LINE], [SYMBOLIC[name][0]], [line]), 0)
        [middle] = [one for one in split(nest, 0) if not isinstance(one.extent, int)]
        [value] = narrowed(nest, [middle]).values
        assert not [sign for sign in ("if_then_else", "max", "min") if sign in str(value)]
