"""Reads whose index is data: scattered in one pass, differentiable again, deterministic."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from tests.evaluate import evaluate_graph
from tests.gradient_case import check_numbers
from tvm_autodiff import build, differentiate, estimate_cost
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.kinds.scatter_add import ScatterLayout, scatter_add_stage

D = "float64"
X = te.placeholder((5, 3), D, name="X")
W = te.placeholder((7, 3), D, name="W")
I = te.placeholder((7,), "int32", name="I")  # noqa: E741
J = te.placeholder((7,), "int32", name="J")
ROWS = np.array([0, 1, 1, 4, 3, 4, 4], "int32")
COLUMN, ROW, SHIFT = (te.reduce_axis((0, n), name) for n, name in ((3, "c"), (5, "r"), (3, "s")))
CORNER = te.reduce_axis((0, 2), "corner")
VALUES = {I: ROWS, J: (ROWS * 2 + 1) % 3}


def bag():
    k = te.reduce_axis((0, 7), "k")
    return te.compute(
        (3,),
        lambda j: te.sum(te.if_then_else(k > 1, X[I[k], j] * X[I[k], 2 - j], 0.0), axis=k),
        name="bag",
    )


CASES = {
    "rows": lambda: te.compute((7, 3), lambda n, j: X[I[n], j] * W[n, j], name="T"),
    "elements": lambda: te.compute((7,), lambda n: X[I[n], J[n]] * X[I[n], 0], name="T"),
    "columns": lambda: te.compute((5, 7), lambda i, n: te.exp(X[i, J[n]]), name="T"),
    "a sum of rows": bag,
    "a computed position": lambda: te.compute((7, 3), lambda n, j: X[4 - I[n], j], name="T"),
    "guarded by data": lambda: te.compute(
        (7, 3), lambda n, j: te.if_then_else(I[n] > 0, X[I[n] - 1, j], 0.0), name="T"
    ),
    "corners by choice": lambda: te.compute(
        (7, 3),
        lambda n, j: te.sum(
            te.if_then_else(CORNER == 0, 1 - W[n, j], W[n, j]) * X[I[n] + CORNER - 1, j],
            axis=CORNER,
            where=I[n] > 0,
        ),
        name="T",
    ),
    "one update for a row": lambda: te.compute(
        (7,), lambda n: te.sum(X[I[n], COLUMN], axis=COLUMN), name="T"
    ),
    "updates without a point axis": lambda: te.compute(
        (5,),
        lambda n: te.sum(X[4 - SHIFT, J[n + SHIFT]] * W[n, 0], axis=SHIFT),
        name="T",
    ),
    "updates without leading rows": lambda: te.compute(
        (7,), lambda n: te.sum(X[ROW, J[n]] * W[n, 1], axis=ROW), name="T"
    ),
    "rows at quotients": lambda: te.compute(
        (14, 3), lambda n, j: X[I[n // 2], j] * W[n % 7, j] * te.exp(W[n // 2, n % 2]), name="T"
    ),
    "rows at quotients behind a condition": lambda: te.compute(
        (21, 3),
        lambda n, j: te.if_then_else(n % 3 + j > 1, X[4 - I[n // 3], j], 0.0),
        name="T",
    ),
    "take, clip": lambda: topi.take(X, I, 0, mode="clip"),
    "take, wrap": lambda: topi.take(X, I, 0, mode="wrap"),
    "gather": lambda: topi.gather(X, 0, topi.reshape(topi.take(I, J, mode="clip"), (7, 1))),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_to_second_order_without_a_dense_sum(name):
    out = CASES[name]()
    wanted = [X, W] if name == "rows" else [X]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_numbers(out, wanted, values=VALUES, order=2)


@pytest.mark.parametrize("name", ["a sum of rows", *list(CASES)[-8:]])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_gradients(name, threads):
    out = CASES[name]()
    head = te.placeholder(out.shape, D, name="head")
    [gradient] = differentiate(out, X, head)
    rng = np.random.default_rng(0)
    real = {t: rng.standard_normal([int(n) for n in t.shape]) for t in (X, W, head)}
    given = {**real, **VALUES}
    got = build(list(given), gradient, num_threads=threads, cache=False)(*given.values())
    [want] = evaluate_graph([gradient], given)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_updates_are_read_in_place_over_axes_that_they_lack():
    """No stage copies the head over rows or points on which it does not depend."""
    for name in ("one update for a row", "updates without a point axis"):
        out = CASES[name]()
        [gradient] = differentiate(out, X, te.placeholder(out.shape, D, name="head"))
        made = [op.output(0) for op in topological([gradient]) if "updates" in op.name]
        assert sum(np.prod([int(n) for n in tensor.shape]) for tensor in made) <= 7 * 5, name


def embedding(rows, width, count):
    table = te.placeholder((rows, width), name="table")
    places = te.placeholder((count,), "int32", name="places")
    out = te.compute((count, width), lambda n, j: table[places[n], j], name="out")
    head = te.placeholder((count, width), name="head")
    return table, places, head, differentiate(out, table, head)[0]


def test_one_pass_over_the_reads():
    *_, gradient = embedding(5000, 64, 100)
    # the updates once, the table once: no comparison of each index with each row
    assert estimate_cost(gradient).iterations <= 100 * 64 + 2 * 5000 * 64


@pytest.mark.parametrize("width", [1, 3, 64, 128, 192])
def test_repeated_indices_add_up_the_same_with_any_number_of_threads(width):
    _, places, head, gradient = embedding(11, width, 50)
    rng = np.random.default_rng(0)
    at = rng.integers(0, 11, 50).astype("int32")
    weights = rng.standard_normal((50, width)).astype("float32")
    expected = np.zeros((11, width), "float32")
    np.add.at(expected, at, weights)
    results = [
        build([places, head], gradient, num_threads=threads)(at, weights) for threads in (1, 2)
    ]
    assert np.allclose(results[0], expected, atol=1e-5)
    assert np.array_equal(results[0], results[1])


def test_indices_outside_of_the_table_reach_nothing():
    _, places, head, gradient = embedding(4, 3, 3)
    at = np.array([-1, 2, 9], "int32")
    result = build([places, head], gradient)(at, np.ones((3, 3), "float32"))
    assert np.array_equal(result, [[0, 0, 0], [0, 0, 0], [1, 1, 1], [0, 0, 0]])


def test_heads_with_a_prefix_are_scattered_row_by_row():
    head = te.placeholder((2, 7, 3), D, name="head")
    out = te.compute((7, 3), lambda n, j: X[I[n], j], name="out")
    gradient = differentiate(out, X, head)[0]
    weights = np.random.default_rng(0).standard_normal((2, 7, 3))
    expected = np.zeros((2, 5, 3))
    for prefix in range(2):
        np.add.at(expected[prefix], ROWS, weights[prefix])
    assert np.allclose(build([I, head], gradient)(ROWS, weights), expected)


def test_reads_at_plain_axes_are_not_scattered():
    x = te.placeholder((2,), "float64", name="x")
    k, m = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 3), "m")
    most = te.compute((2, 4), lambda i, j: te.max(x[i], axis=[k, m]), name="most")
    y = te.compute((2,), lambda i: most[tirx.Min(i, 1), i], name="y")
    head = te.placeholder((2,), "float64", name="head")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the winner among equal elements is found by a sum
        [dx] = differentiate(y, x, head)
    here = np.array([3.0, 5.0])
    [result] = build([x, head], [dx], cache=False)(np.array([1.0, 2.0]), here)
    np.testing.assert_allclose(result, here)


@pytest.mark.parametrize("shape", [(2, 3), (2, 64), (3, 128), (2, 3, 5), (1, 2, 192), (70, 1)])
def test_several_trailing_axes_are_one_parallel_loop(shape):
    rng = np.random.default_rng(0)
    place, updates = np.array([1, 0, 1, 5], "int32"), rng.random((4, *shape), dtype="float32")
    where = te.placeholder((4,), "int32", name="where")
    values = te.placeholder(updates.shape, name="values")
    out = scatter_add_stage(
        "out",
        [where],
        values,
        [3, *shape],
        ScatterLayout.points_first([0, *(-1 for _ in shape)], 1),
    )
    expected = np.zeros((3, *shape), "float32")
    for n in range(3):  # a place outside is left out
        expected[place[n]] += updates[n]
    library = tvm.compile(te.create_prim_func([where, values, out]), target="llvm")
    result = tvm.runtime.tensor(np.full_like(expected, np.nan))
    library(tvm.runtime.tensor(place), tvm.runtime.tensor(updates), result)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)


def test_a_condition_that_reads_at_a_place_with_data_stands_behind_its_bounds():
    """``max(b, A[I + j])`` compares at row i0 - I: outside of what was compared for other rows."""
    A, B = te.placeholder((4,), D, name="A"), te.placeholder((3,), D, name="B")
    at, head = te.placeholder((), "int32", name="I"), te.placeholder((3,), D, name="head")
    y = te.compute((3,), lambda j: tirx.Max(A[at() + j], B[j]), name="y")
    k = te.reduce_axis((0, 2), "k")
    z = te.compute((3,), lambda j: te.max(A[at() + j] * B[k], axis=k), name="z")
    values = [(A, np.array([1.0, -2, 3, -4])), (B, np.array([0.5, 2.0, -1])), (head, np.ones(3))]
    for place, of_y, of_z in (
        (0, [1, 0, 1, 0], [2, 0.5, 2, 0]),
        (1, [0, 0, 1, 0], [0, 0.5, 2, 0.5]),
    ):
        given = [*values, (at, np.array(place, "int32"))]
        for out, wanted in ((y, of_y), (z, of_z)):
            [gradient] = differentiate(out, [A], head)
            [found] = evaluate_graph([gradient], given, strict=True)
            assert found.tolist() == wanted


@pytest.mark.parametrize("axis", ["of the output", "of the sum", "of the prefix"])
def test_positions_are_read_only_where_all_loops_run(axis):
    """An empty loop that a position does not depend on: nothing reads it, and it has no element."""
    n = te.var("n")
    x, place = te.placeholder((n,), D, name="x"), te.placeholder((n,), "int32", name="place")
    k = te.reduce_axis((0, n if axis == "of the sum" else 2), "k")
    shape = (n + 1, n) if axis == "of the output" else (n + 1,)

    def clamped(index):
        return te.max(te.min(index, n - 1), 0)

    y = te.compute(shape, lambda i, *j: te.sum(x[clamped(place[clamped(i)])], axis=k), name="y")
    prefix = (n,) if axis == "of the prefix" else ()
    head = te.placeholder((*prefix, *shape), D, name="head")
    [dx] = differentiate(y, [x], head)
    for size in (0, 1, 3):
        places = (np.arange(size) * 2 % max(size, 1)).astype("int32")
        given = [(x, np.ones(size)), (place, places)]
        weights = np.random.default_rng(size).integers(-3, 4, evaluate_shape(head, n, size))
        want = np.zeros((*(size for _ in prefix), size))
        for p in np.ndindex(*(size for _ in prefix)):
            for i in range(size + 1 if size else 0):
                count = size if axis == "of the sum" else 2
                want[(*p, places[min(i, size - 1)])] += count * weights[p][i].sum()
        pairs = [*given, (head, weights.astype(D))]
        [got] = evaluate_graph([dx], pairs, {n: size}, strict=True)
        np.testing.assert_array_equal(got, want)


def evaluate_shape(tensor, n, size):
    return tuple(size + (0 if dim is n or dim.same_as(n) else 1) for dim in tensor.shape)


@pytest.mark.parametrize("groups", [7, te.var("g")])
def test_updates_of_one_place_are_summed_first(groups):
    rows = te.placeholder((groups,), "int32", name="rows")
    w = te.placeholder((groups * 4, 3), D, name="w")
    out = te.compute((groups * 4, 3), lambda n, j: X[rows[n // 4], j] * w[n, j], name="T")
    head = te.placeholder(out.shape, D, name="head")
    [gradient] = differentiate(out, [X], head)
    [updates] = [op for op in topological([gradient]) if op.name == "dX_scatter_updates"]
    [inside] = updates.reduce_axis
    assert int(inside.dom.extent) == 4
    rng = np.random.default_rng(0)
    values = {rows: ROWS, w: rng.normal(size=(28, 3)), head: rng.normal(size=(28, 3))}
    [got] = evaluate_graph([gradient], values, {} if groups == 7 else {groups: 7})
    want = np.zeros((5, 3))
    np.add.at(want, np.repeat(ROWS, 4), values[w] * values[head])
    np.testing.assert_allclose(got, want, rtol=1e-12)
