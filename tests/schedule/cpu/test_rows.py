"""Reductions alone, row by row: answers of an evaluation in numpy, and which kernels are taken."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check, rules_of
from tvm_autodiff.schedule.cpu.loops.strip_mining import vectors_of_strip
from tvm_autodiff.schedule.cpu.rows import rows
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import Rest, apply_rules


def summed(shape, keep, reducer=te.sum, dtype="float32"):
    """``X[shape]`` reduced over all axes but `keep`."""
    X = cases.placeholder("X", *shape, dtype=dtype)
    axes = {n: te.reduce_axis((0, e), f"k{n}") for n, e in enumerate(shape) if n not in keep}

    def body(*places):
        index = [axes[n] if n in axes else places[keep.index(n)] for n in range(len(shape))]
        return reducer(X(*index), axis=list(axes.values()))

    return [X], te.compute([shape[n] for n in keep], body, name="S")


def bordered(n, m, place):
    """Products of neighbours along rows, with a border."""
    X, k = cases.placeholder("X", n, m), cases.axis(m)
    return [X], te.compute((n,), lambda i: te.sum(X[i, k] * X[i, place(k, m)], axis=k), name="S")


def bordered_images(n, h, m):
    """Products of neighbours in a few images, with borders on two sides."""
    X, i, j = cases.placeholder("X", n, h, m), cases.axis(h), cases.axis(m)
    near = (te.max(i - 1, 0), te.min(j + 1, m - 1))
    return [X], te.compute((n,), lambda b: te.sum(X[b, i, j] * X(b, *near), axis=[i, j]), name="S")


def weighted_columns(n, m):
    A, w = cases.placeholder("A", n, m), cases.placeholder("w", n)
    k = cases.axis(n)
    return [A, w], te.compute((m,), lambda j: te.sum(A[k, j] * w[k], axis=k), name="S")


def column_winners(n, m):
    """The place of the greatest element of each column, the first of equal ones."""
    X, k = cases.placeholder("X", n, m), cases.axis(n)

    def better(x, y):
        first = tirx.any(x[1] > y[1], tirx.all(x[1] == y[1], x[0] <= y[0]))
        return tirx.Select(first, x[0], y[0]), tirx.Select(first, x[1], y[1])

    argmax = te.comm_reducer(
        better, lambda t0, t1: (tirx.const(2**31 - 1, t0), te.min_value(t1)), name="argmax"
    )
    place, _ = te.compute((m,), lambda j: argmax((k.var, X[k, j]), axis=k), name="W")
    return [X], te.compute((m,), lambda j: place[j] + 0, name="P")


def at_data(rows, count, dtype="float32", reducer=te.sum, function=lambda value: value):
    """``Y[i] = ⊕_k V[P[i, k]]*X[i, k]``: rows of a sparse matrix times a vector."""
    V, X = cases.placeholder("V", 40, dtype=dtype), cases.placeholder("X", rows, count, dtype=dtype)
    P, k = cases.placeholder("P", rows, count, dtype="int32"), cases.axis(count)
    body = lambda i: reducer(function(V[P[i, k] % 40]) * X[i, k], axis=k)  # noqa: E731
    return [V, P, X], te.compute((rows,), body, name="Y")


ROWS = {
    "places that are data": at_data(50, 37),
    "places that are data, float64": at_data(50, 37, "float64"),
    "maxima at data": at_data(50, 64, reducer=te.max),
    **{f"rows of {k}": summed((70, k), (0,)) for k in (9, 16, 31, 47, 48, 60, 63, 64, 100, 300)},
    "a row for each thread": summed((4, 10_001), (0,)),
    "maxima": summed((65, 130), (0,), te.max),
    "clamped": bordered(65, 130, lambda i, n: te.min(te.max(i - 2, 0), n - 1)),
    "reflected": bordered(65, 130, lambda i, n: te.if_then_else(i < 3, 3 - i, i - 3)),
    "clamped, few rows": bordered_images(3, 200, 250),
    "batches of rows": summed((3, 7, 50), (0, 1)),
    "an epilogue": cases.row_epilogue(70, 300),
    "channels of images": summed((16, 20, 7, 7), (1,)),
    "channels, odd": summed((5, 3, 5, 7), (1,)),
    "channels last": summed((4, 9, 7, 16), (3,)),
    "columns": summed((170, 96), (1,)),
    "columns, odd": summed((101, 77), (1,)),
    "column maxima": summed((129, 64), (1,), te.max),
    "columns with weights": weighted_columns(90, 73),
    "long columns": summed((5000, 100), (1,)),
    "float16": summed((70, 130), (0,), dtype="float16"),
    "float64": summed((70, 57), (0,), dtype="float64"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    check(ROWS[name])
    assert rules_of(ROWS[name][1]) == ["rows"]


@pytest.mark.parametrize("size", [(40, 84), (37, 93), (700, 300), (64, 1000)])
def test_column_winners(size):
    check(column_winners(*size))
    assert rules_of(column_winners(*size)[1])[0] == "rows"


NARROW = {
    "three columns": summed((30_000, 3), (1,)),
    "ten columns": summed((9_000, 10), (1,)),
    "no whole vectors": summed((8_250, 7), (1,)),
    "channels last": summed((4, 50, 40, 3), (3,)),
    "one column": summed((20_000, 1), (1,)),
    "minima": summed((30_000, 3), (1,), te.min),
}


@pytest.mark.parametrize("name", NARROW)
def test_short_rows_are_added_up_several_at_a_time(name):
    """``out[c] = Σ_k x[k, c]  →  part[p, c] = Σ_o x[o*P + p, c], out[c] = Σ_p part[p, c]``."""
    check(NARROW[name])
    [kernel], _ = cut(normal_form([NARROW[name][1]]))
    [found] = apply_rules(kernel, avx512(2), CPU_RULES)
    assert found.rule == "rows"
    launches = found.launches
    assert launches[0].outputs[0].shape[0] * launches[1].outputs[0].shape[0] >= 64


def finished(rows, width, function):
    """A function of the sum of each row, which is read along memory."""
    X, k = cases.placeholder("X", rows, width), cases.axis(width)
    total = te.compute((rows,), lambda i: te.sum(X[i, k], axis=k), name="S")
    return [X], te.compute((rows,), lambda i: function(total[i]), name="E")


#: rows, their length, the function of their sums → the kernels that it is left to
FINISHED = {
    "an exponential": (3000, 100, te.exp, ["S", "E"]),
    "several functions": (3000, 50, lambda total: te.log(1.0 + te.exp(total)), ["S", "E"]),
    "a square": (3000, 100, lambda total: total * total, []),
    "an exponential of few rows": (4, 100, te.exp, []),
}


@pytest.mark.parametrize("name", FINISHED)
def test_functions_of_sums_are_kernels_apart_where_each_would_wait(name):
    """Behind all sums, they are in vectors."""
    count, width, function, kernels = FINISHED[name]
    case = finished(count, width, function)
    check(case, tolerance=1e-6)
    [kernel], _ = cut(normal_form([case[1]]))
    made = rows(kernel, avx512(1))
    assert not isinstance(made, Declined)
    assert [one.kernel.name for one in made if isinstance(one, Rest)] == kernels


OTHERS = {
    "few places that are data": at_data(50, 12),
    "short rows of a prime number": summed((10_007, 5), (1,)),
    "more sums than a cache holds": summed((100, 40_000), (1,)),
    "rows in pieces": summed((64, 100, 32), (0, 2)),
}
#: fewer rows than threads would share evenly
FEW = {
    "one row": summed((1, 300_000), (0,)),
    "one row of a prime number": summed((1, 300_007), (0,)),
    "rows of several threads": summed((3, 100_000), (0,)),
    "a total": cases.total(40, 50, 60),
    "a total of a prime number": cases.total(1, 1, 100_003),
    "a vector times a matrix": cases.matmul(1, 300, 2_000, "nt"),
}


@pytest.mark.parametrize("name", FEW)
def test_few_rows_are_cut_for_threads(name):
    check(FEW[name])
    assert rules_of(FEW[name][1]) == ["rows"]


@pytest.mark.parametrize(("count", "rule"), [(32, "rows"), (33, "reduction")])
def test_functions_at_data(count, rule):
    """Of 33 functions one would be alone, where vectors along the results have none left."""
    case = at_data(50, count, function=te.tanh)
    check(case, tolerance=1e-5)
    assert rules_of(case[1]) == [rule]


@pytest.mark.parametrize("name", OTHERS)
def test_left_to_other_rules(name):
    check(OTHERS[name])
    assert rules_of(OTHERS[name][1]) == ["reduction"]


@pytest.mark.parametrize(
    ("extent", "vectors"), [(15, 1), (31, 1), (32, 2), (48, 2), (63, 2), (64, 4), (1000, 4)]
)
def test_vectors_of_a_round_are_a_power_of_two(extent, vectors):
    assert vectors_of_strip(extent, 16, 1) == vectors


def test_bounds_that_are_literals_in_disguise():
    """``k < (i + 1)*14 - i*14 → k < 14``, as adaptive pools have them."""
    X = cases.placeholder("X", 70, 28)

    def body(n, i):
        k = te.reduce_axis((0, (i + 1) * 14 - i * 14), "k")
        return te.sum(X[n, i * 14 + k], axis=k)

    output = te.compute((70, 2), body, name="S")
    [plain] = normal_form([output])
    assert int(plain.op.reduce_axis[0].dom.extent) == 14
    check(([X], output))
    assert rules_of(output) == ["rows"]


def groups_added_up(n, c, m):
    """Channels that are taken apart and put together again, as group norm leaves them."""
    X = cases.placeholder("X", n, c, m)
    k, r = cases.axis(n), cases.axis(m, "r")
    return [X], te.compute(
        (c,), lambda i: te.sum(X[k, i // 4 * 4 + i % 4, r], axis=[k, r]), name="S"
    )


def bags(count, size, rows_, width):
    """Sums of rows that are found by index."""
    X = cases.placeholder("X", rows_, width)
    index = cases.placeholder("index", count, size, dtype="int32")
    k = cases.axis(size)
    return [X, index], te.compute(
        (count, width), lambda n, j: te.sum(X[tirx.abs(index[n, k]), j], axis=k), name="S"
    )


@pytest.mark.parametrize("case", [groups_added_up(6, 20, 48), bags(30, 5, 3, 24)])
def test_an_index_counts_along_its_own_variables_only(case):
    check(case)


def test_divided_channels_are_summed_row_by_row():
    assert rules_of(groups_added_up(6, 20, 48)[1]) == ["rows"]
