"""The table of strategies: each gives the same values, and the cheapest one is taken.

The values of a sum are those of the dense sum over all points, evaluated in numpy.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import dtype_of
from tvm_autodiff.graph.graph import Graph, topological
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.rules.linearize import linearize
from tvm_autodiff.zero_elimination.strategies.table import STRATEGIES, cheapest
from tvm_autodiff.zero_elimination.sums.assemble import assemble
from tvm_autodiff.zero_elimination.sums.iterations import stage_iterations
from tvm_autodiff.zero_elimination.sums.solve import unsolved
from tvm_autodiff.zero_elimination.transposition.gather import Cotangent, TermSum
from tvm_autodiff.zero_elimination.transposition.transpose import target_of

D = "float64"
x = te.placeholder((24,), D, name="x")
long = te.placeholder((64,), D, name="long")
square = te.placeholder((5, 6), D, name="square")
places = te.placeholder((7,), "int32", name="places")
zero = tirx.const(0.0, D)


def reads(shape, index, reduce=(), where=None, tensor=x):
    """``y[a] = Σ_k if where(a, k) then tensor[index(a, k)]``."""
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(reduce)]

    def body(*outer):
        point = (*outer, *(axis.var for axis in axes))
        found = index(*point)
        value = tensor(*(found if isinstance(found, tuple) else (found,)))
        if where is not None:
            value = te.if_then_else(where(*point), value, zero)
        return te.sum(value, axis=axes) if axes else value

    return te.compute(shape, body, name="y"), tensor


#: name → stage and tensor, the strategies that apply, the ones that are chosen
SUMS = {
    "elementwise": (reads((24,), lambda i: 23 - i), {"gather"}, ["gather"]),
    "window": (reads((20,), lambda i, k: i + k, (5,)), {"gather"}, ["gather"]),
    "comb": (
        reads((4,), lambda i, k: i * 3 + k * 3, (5,)),
        {"residue classes", "part of the box", "ragged loops", "gather"},
        ["residue classes"],
    ),
    "one row": (
        reads((5, 6), lambda i, j: (2, j), (), None, square),
        {"part of the box", "gather"},
        ["part of the box"],
    ),
    "diagonal": (
        reads((4, 5), lambda i, j: (j, j), (), None, square),
        {"part of the box", "gather"},
        ["part of the box"],
    ),
    "simplex": (
        reads((6,), lambda i, k, m: m, (6, 6), lambda i, k, m: te.all(k <= i, m <= k)),
        {"part of the box", "ragged loops", "gather"},
        ["ragged loops"],
    ),
    # no guard without ``k`` tells that only the first two elements have terms
    "window reflected at an end": (
        reads((20,), lambda i, k: k - i, (3,), lambda i, k: te.all(k >= i, k > i)),
        {"part of the box", "ragged loops", "gather"},
        ["part of the box"],
    ),
    "bits in reverse order": (
        reads((64,), lambda i: sum(i // 2**k % 2 * 2 ** (5 - k) for k in range(6)), (), None, long),
        {"ragged loops", "gather", "scatter of points"},
        ["scatter of points"],
    ),
    "by data": (
        reads((7,), lambda i: places[i]),
        {"scatter-add", "dense sum"},
        ["scatter-add"],
    ),
    "squares": (
        reads((4,), lambda i, k: i * i + k * k, (3,)),
        {"scatter-add", "dense sum"},
        ["scatter-add"],
    ),
    "clamped": (
        reads((30,), lambda i: tirx.Min(i, 7)),
        {"scatter-add", "dense sum"},
        ["gather", "part of the box"],
    ),
}


def solved(name, identity=False):
    (y, tensor), applicable, chosen = SUMS[name]
    head = None if identity else te.placeholder(y.shape, D, name="head")
    [term] = linearize(y.op, [tensor])
    definition = TermSum(y.op, term, Cotangent(head))
    target = target_of(tensor, y.shape if identity else ())
    return definition, definition.at(target), applicable, chosen


def values(parts, name="d"):
    tensor = assemble(name, parts[0].target, [parts], dtype=D)
    given = []
    for number, placeholder in enumerate(Graph([tensor]).placeholders()):
        rng = np.random.default_rng(number)
        integers = "int" in dtype_of(placeholder)
        shape = shape_of(placeholder)
        given.append((placeholder, rng.integers(0, 7, shape) if integers else rng.random(shape)))
    return evaluate_graph([tensor], given)[0]


@pytest.mark.parametrize("identity", [False, True], ids=["cotangent", "identity"])
@pytest.mark.parametrize("name", SUMS)
def test_each_strategy_has_the_values_of_the_sum_over_all_points(name, identity):
    definition, whole, _, _ = solved(name, identity)
    expected = values([unsolved(definition, whole.target)])
    assert np.any(expected)
    for strategy in STRATEGIES:
        found = strategy.rewrite(whole)
        if found is not None:
            np.testing.assert_allclose(values([found]), expected, rtol=1e-12, err_msg=strategy.name)
    np.testing.assert_allclose(values(list(cheapest(whole))), expected, rtol=1e-12)


@pytest.mark.parametrize("name", SUMS)
def test_strategies_apply_where_they_can_and_the_cheapest_is_taken(name):
    _, whole, applicable, chosen = solved(name)
    found = {row.name for row in STRATEGIES if row.rewrite(whole) is not None}
    assert found == applicable
    assert [part.strategy for part in cheapest(whole)] == chosen


@pytest.mark.parametrize(
    "name", ["comb", "one row", "diagonal", "simplex", "window", "window reflected at an end"]
)
def test_no_other_strategy_takes_fewer_iterations(name):
    _, whole, _, _ = solved(name)

    def iterations(parts):
        result = assemble("d", whole.target, [parts], dtype=D)
        given = {hash(x.op), hash(square.op), hash(places.op)}
        own = [op for op in topological([result]) if hash(op) not in given and op.input_tensors]
        return sum(map(stage_iterations, own))

    best = iterations(list(cheapest(whole)))
    others = [row.rewrite(whole) for row in STRATEGIES]
    assert all(best <= iterations([found]) / 0.9 for found in others if found is not None)


def test_what_has_no_box_is_added_up_in_a_loop():
    lengths = te.placeholder((4,), "int32", name="lengths")
    rows = te.placeholder((4, 9), "int32", name="rows")
    k = te.reduce_axis((0, lengths[0]), "k")
    y = te.compute((4,), lambda i: te.sum(x[rows[i, k]], axis=k), name="y")
    [term] = linearize(y.op, [x])
    whole = TermSum(y.op, term, Cotangent(te.placeholder((4,), D, name="head"))).at(
        target_of(x, ())
    )
    assert whole.unsolved
    assert [part.strategy for part in cheapest(whole)] == ["loop over updates"]


def test_stages_are_counted_with_the_size_of_the_comparison():
    """Frames of 32 with a hop of 16, of any number of signals: residues have equal boxes."""
    n = te.var("n")
    signal = te.placeholder((n, 512), D, name="signal")
    frames = te.compute((n, 31, 32), lambda b, f, t: signal[b, f * 16 + t], name="frames")
    [term] = linearize(frames.op, [signal])
    head = te.placeholder(frames.shape, D, name="head")
    whole = TermSum(frames.op, term, Cotangent(head)).at(target_of(signal, ()))
    assert [part.strategy for part in cheapest(whole)] == ["gather"]


@pytest.mark.parametrize("shift", [0, 500])
def test_sizes_count_as_enough_for_every_extent(shift):
    """A segment sum as a mask is solved although there are no segments at 64."""
    n = te.var("n")
    rows, segment = te.placeholder((n,), D), te.placeholder((n,), "int32", name="segment")
    e = te.reduce_axis((0, n), "e")
    y = te.compute(
        (n - shift,),
        lambda i: te.sum(te.if_then_else(segment[e] == i, rows[e], zero), axis=e),
        name="y",
    )
    [term] = linearize(y.op, [rows])
    whole = TermSum(y.op, term, Cotangent(te.placeholder((n - shift,), D, name="head"))).at(
        target_of(rows, ())
    )
    assert not whole.dense
    assert not whole.axes
    assert [part.strategy for part in cheapest(whole)] == ["gather"]


def test_positions_are_computed_only_where_they_are_read():
    """A position divides by a size, which is zero where its sum is empty, or by data."""
    n, q = te.var("n"), te.var("q")
    x, z = te.placeholder((n,), name="x"), te.placeholder((q,), name="z")
    count, k = te.placeholder((n,), "int32", name="count"), te.reduce_axis((0, q), "k")
    y = te.compute((n,), lambda i: te.sum(x[i // q] * z[k], axis=k), name="y")
    [dx] = ad.differentiate(y, [x], te.placeholder((n,), name="h"))
    assert "place0[i] = if q > 0 then i//q else -1" in str(ad.show(dx))
    y = te.compute((n,), lambda i: te.if_then_else(count[i] > 0, x[i % count[i]], 0.0), name="y")
    [dx] = ad.differentiate(y, [x], te.placeholder((n,), name="h"))
    assert "place0[i] = if count[i] > 0 then i%count[i] else -1" in str(ad.show(dx))
