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
from tvm_autodiff.schedule.fusion.row_items import BLOCK, items_of, nests_of
from tvm_autodiff.schedule.fusion.row_pieces import block_pieces, last_pieces, outer_pieces

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


def neighbours(inside, width):
    """``y = Σ_{b<3} e·v / Σ_{b<3} e`` over what lies `inside` of three elements in a row, and the
    sums of y over the columns.
    """
    x = te.placeholder((ROWS, width), name="x")

    def sums(name, of):
        b = te.reduce_axis((0, 3), "b")

        def term(n, j):
            v = te.if_then_else(inside(j + b - 1, width), x[n, j + b - 1], 0.0)
            return te.sum(of(te.exp(-(v - x[n, j]) * (v - x[n, j])), v), axis=b)

        return te.compute((ROWS, width), term, name=name)

    t, s = sums("t", lambda e, v: e * v), sums("s", lambda e, v: e)
    y = te.compute((ROWS, width), lambda n, j: t[n, j] / s[n, j], name="y")
    j = te.reduce_axis((0, width), "j")
    total = te.compute((ROWS,), lambda n: te.sum(y[n, j] * y[n, j], axis=j), name="total")
    return x, [y, total]


#: what lies inside → the pieces of a row of 70, and whether conditions are left in them
INSIDE = {
    "padded": (lambda p, n: te.all(p >= 0, p < n), {(0, 1): True, (1, 69): False, (69, 70): True}),
    "causal": (lambda p, n: p >= 0, {(0, 1): True, (1, 70): False}),
    "all": (lambda p, n: te.all(p >= -1, p <= n), {(0, 70): False}),
}


@pytest.mark.parametrize("name", INSIDE)
def test_blocks_are_cut_where_all_that_is_reduced_lies_inside(name):
    inside, want = INSIDE[name]
    _, outputs = neighbours(inside, 70)
    [group] = groups_of(outputs)
    blocks = [item for item in items_of(group, avx512(1)) if item.kind == BLOCK]
    assert blocks
    for item in blocks:
        found = block_pieces([item], 70)
        assert {
            (begin, end): any(one.guarded for one in items) for begin, end, items in found
        } == want


@pytest.mark.parametrize("width", [1, 2, 3, 17, 70])
def test_values_of_blocks_in_pieces(width):
    x, outputs = neighbours(INSIDE["padded"][0], width)
    values = np.random.default_rng(0).standard_normal((ROWS, width)).astype("float32")
    y, total = build([x], outputs, cache=False)(values)
    padded = np.pad(values.astype("float64"), ((0, 0), (1, 1)))
    shifted = [padded[:, b : b + width] for b in range(3)]
    weights = [np.exp(-((v - padded[:, 1:-1]) ** 2)) for v in shifted]
    want = sum(w * v for w, v in zip(weights, shifted, strict=True)) / sum(weights)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, (want**2).sum(1), rtol=1e-5)


def test_choices_by_data_are_selects_where_reads_are_in_bounds():
    """``if j + 1 < n then (if x[n, j] > 0 then x[n, j + 1] else 1)``, of which a vector would read
    beyond the row at its end only.
    """
    x = te.placeholder((ROWS, WIDTH), name="x")

    def body(n, j):
        chosen = te.if_then_else(x[n, j] > 0, x[n, j + 1], 1.0)
        return te.exp(te.if_then_else(j + 1 < WIDTH, chosen, 0.0))

    y = te.compute((ROWS, WIDTH), body, name="y")
    j = te.reduce_axis((0, WIDTH), "j")
    total = te.compute((ROWS,), lambda n: te.sum(y[n, j] * y[n, j], axis=j), name="total")
    [group] = groups_of([y, total])
    nest = nests_of(items_of(group, avx512(1)))[0]
    found = {
        (begin, end): any(item.guarded for item in items)
        for begin, end, items in last_pieces(nest.items, 0, WIDTH)
    }
    assert found == {(0, WIDTH - 1): False, (WIDTH - 1, WIDTH): False}
    values = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype("float32")
    shifted = np.pad(values[:, 1:], ((0, 0), (0, 1)))
    want = np.where(values > 0, shifted, 1.0)
    want[:, -1] = 0.0
    got, _ = build([x], [y, total], cache=False)(values)
    np.testing.assert_allclose(got, np.exp(want), rtol=1e-5)
