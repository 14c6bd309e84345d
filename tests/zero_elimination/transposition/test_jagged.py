"""Reductions whose bounds are data: rows of their own lengths, rows between pointers.

Values are those of numpy for rows written as slices; gradients are compared with differences of
them, in exact arithmetic: every case is of degree two at most in what it is differentiated by.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff import (
    NotDifferentiableError,
    build,
    differentiate,
    estimate_cost,
    inline_tensors,
    lift_nonzeroness_condition,
    lower,
    merge_equal_stages,
    remove_unused_dims,
    show,
    simplify_reductions,
)

D = "float64"
N, K, C, NNZ = 6, 9, 7, 20
RNG = np.random.default_rng(0)
DATA: dict[te.Tensor, np.ndarray] = {}


def given(name, values, dtype=D):
    array = np.asarray(values).astype(dtype)
    tensor = te.placeholder(array.shape, dtype, name=name)
    DATA[tensor] = array
    return tensor


def wide(number):
    return te.const(number, "int64")


def numbers(name, *shape):
    return given(name, RNG.integers(-3, 4, shape))


length = given("length", [0, 3, 9, 1, 0, 4], "int32")
ptr = given("ptr", [0, 0, 5, 6, 6, 15, 20], "int32")  # two rows are empty, the first among them
start, count = (
    given("start", [3, 0, 5, 19, 20, 7], "int64"),
    given("count", [2, 0, 9, 1, 0, 4], "int64"),
)
byte = given("byte", [0, 3, 9, 1, 0, 4], "uint8")
one, scale = given("one", 5, "int32"), numbers("scale")
col, x, b = given("col", RNG.integers(0, C, NNZ), "int32"), numbers("x", N, K), numbers("b", K, 4)
value, dense, table = numbers("value", NNZ), numbers("dense", C), numbers("table", C, 3)
LENGTH, PTR, COL, X, B = (DATA[t] for t in (length, ptr, col, x, b))
VALUE, DENSE, TABLE = (DATA[t] for t in (value, dense, table))
half = te.compute((N,), lambda i: length[i] // 2, name="half")


def jagged(shape, bounds, body, reducer=te.sum, name="y"):
    """A reduction over one axis, or several, with bounds at the axes of the output."""

    def stage(*i):
        found = bounds(*i)
        pairs = found if isinstance(found, list) else [found]
        axes = [te.reduce_axis(pair, f"k{n}" if n else "k") for n, pair in enumerate(pairs)]
        return reducer(body(*i, *axes), axis=axes)

    return te.compute(shape, stage, name=name)


def nested():
    def stage(i):
        k = te.reduce_axis((0, length[i]), "k")
        inner = te.reduce_axis((0, k + 1), "l")
        return te.sum(x[i, k] * b[inner, 0], axis=[k, inner])

    return te.compute((N,), stage, name="y")


def chosen():
    def stage(i):
        k = te.reduce_axis((0, length[i]), "k")
        return te.sum(x[i, k], axis=k, where=k > 1)

    return te.compute((N,), stage, name="y")


def begun():
    def stage(i):
        k = te.reduce_axis((0, length[i]), "k")
        return te.sum(x[i, k], axis=k, init=te.const(1.0, D))

    return te.compute((N,), stage, name="y")


def rows(of):
    return np.array([of(i) for i in range(N)])


def row(i):
    return slice(PTR[i], PTR[i + 1])


#: name → (the stage, what numpy computes, by what it is differentiated)
CASES = {
    "squares of a row": (
        lambda: jagged((N,), lambda i: (0, length[i]), lambda i, k: x[i, k] * x[i, k]),
        lambda: rows(lambda i: (X[i, : LENGTH[i]] ** 2).sum()),
        [x],
    ),
    "rows of a product": (
        lambda: jagged((N, 4), lambda i, j: (0, length[i]), lambda i, j, k: x[i, k] * b[k, j]),
        lambda: rows(lambda i: X[i, : LENGTH[i]] @ B[: LENGTH[i]]),
        [x, b],
    ),
    "a sparse matrix, counted from its pointer": (
        lambda: jagged(
            (N,),
            lambda i: (0, ptr[i + 1] - ptr[i]),
            lambda i, k: value[ptr[i] + k] * dense[col[ptr[i] + k]],
        ),
        lambda: rows(lambda i: VALUE[row(i)] @ DENSE[COL[row(i)]]),
        [value, dense],
    ),
    "a sparse matrix, between pointers": (
        lambda: jagged(
            (N,), lambda i: (ptr[i], ptr[i + 1]), lambda i, k: value[k] * dense[col[k]]
        ),
        lambda: rows(lambda i: VALUE[row(i)] @ DENSE[COL[row(i)]]),
        [value, dense],
    ),
    "a sparse matrix times rows": (
        lambda: jagged(
            (N, 3), lambda i, j: (ptr[i], ptr[i + 1]), lambda i, j, k: value[k] * table[col[k], j]
        ),
        lambda: rows(lambda i: VALUE[row(i)] @ TABLE[COL[row(i)]]),
        [value, table],
    ),
    "segments": (
        lambda: jagged((N,), lambda i: (ptr[i], ptr[i + 1]), lambda i, k: value[k]),
        lambda: rows(lambda i: VALUE[row(i)].sum()),
        [value],
    ),
    "int64 starts and counts": (
        lambda: jagged((N,), lambda i: (start[i], start[i] + count[i]), lambda i, k: value[k]),
        lambda: rows(lambda i: VALUE[DATA[start][i] :][: DATA[count][i]].sum()),
        [value],
    ),
    "bytes": (
        lambda: jagged((N,), lambda i: (0, byte[i].astype("int32")), lambda i, k: x[i, k]),
        lambda: rows(lambda i: X[i, : LENGTH[i]].sum()),
        [x],
    ),
    "a tensor without dimensions beside data": (
        lambda: jagged((N,), lambda i: (ptr[i], ptr[i + 1]), lambda i, k: dense[col[k]] * scale()),
        lambda: rows(lambda i: DENSE[COL[row(i)]].sum() * DATA[scale]),
        [dense, scale],
    ),
    "int64 axes of int32 lengths": (
        lambda: jagged(
            (wide(N),), lambda i: (wide(0), length[i]), lambda i, k: dense[col[9 - k]] * value[k]
        ),
        lambda: rows(lambda i: DENSE[COL[9::-1][: LENGTH[i]]] @ VALUE[: LENGTH[i]]),
        [dense, value],
    ),
    "one length for all": (
        lambda: jagged((N,), lambda i: (0, one()), lambda i, k: x[i, k] * x[i, k]),
        lambda: (X[:, :5] ** 2).sum(1),
        [x],
    ),
    "a length that is computed": (
        lambda: jagged((N,), lambda i: (0, half[i]), lambda i, k: x[i, k]),
        lambda: rows(lambda i: X[i, : LENGTH[i] // 2].sum()),
        [x],
    ),
    "a further sum": (
        lambda: jagged((N,), lambda i: [(0, length[i]), (0, 4)], lambda i, k, m: x[i, k] * b[k, m]),
        lambda: rows(lambda i: (X[i, : LENGTH[i]] @ B[: LENGTH[i]]).sum()),
        [x, b],
    ),
    "two lengths": (
        lambda: jagged(
            (N,), lambda i: [(0, length[i]), (0, half[i])], lambda i, k, m: x[i, k] * x[i, m]
        ),
        lambda: rows(lambda i: X[i, : LENGTH[i]].sum() * X[i, : LENGTH[i] // 2].sum()),
        [x],
    ),
    "a loop that no index needs": (
        lambda: jagged((N,), lambda i: (0, length[i]), lambda i, k: dense[i] * dense[i]),
        lambda: rows(lambda i: LENGTH[i] * DENSE[i] ** 2),
        [dense],
    ),
    "every second": (
        lambda: jagged((N,), lambda i: (0, half[i]), lambda i, k: x[i, 2 * k]),
        lambda: rows(lambda i: X[i, ::2][: LENGTH[i] // 2].sum()),
        [x],
    ),
    "each twice": (
        lambda: jagged((N,), lambda i: (0, length[i]), lambda i, k: x[i, k // 2]),
        lambda: rows(lambda i: np.repeat(X[i], 2)[: LENGTH[i]].sum()),
        [x],
    ),
    "around": (
        lambda: jagged((N,), lambda i: (0, length[i]), lambda i, k: x[i, k % 4]),
        lambda: rows(lambda i: np.tile(X[i, :4], 3)[: LENGTH[i]].sum()),
        [x],
    ),
    "from the end": (
        lambda: jagged((N,), lambda i: (0, length[i]), lambda i, k: x[i, 8 - k]),
        lambda: rows(lambda i: X[i, ::-1][: LENGTH[i]].sum()),
        [x],
    ),
    "a triangle in it": (
        nested,
        lambda: rows(lambda i: (X[i, : LENGTH[i]] * np.cumsum(B[:, 0])[: LENGTH[i]]).sum()),
        [x, b],
    ),
    "where=": (chosen, lambda: rows(lambda i: X[i, 2 : max(LENGTH[i], 2)].sum()), [x]),
    "init=": (begun, lambda: rows(lambda i: 1 + X[i, : LENGTH[i]].sum()), [x]),
}  # fmt: skip


@functools.cache
def stage(name):
    return CASES[name][0]()


def values_of(tensors, data=()):
    return evaluate_graph(tensors, [*DATA.items(), *data], strict=True)


def slopes(function, arrays, head):
    """d<head, function>/d arrays, exact for polynomials of second degree."""
    result = []
    for array in arrays:
        slope = np.zeros(array.shape)
        for place in np.ndindex(slope.shape):
            before = array[place]
            for sign in (1, -1):
                array[place] = before + sign
                slope[place] += sign * (function() * head).sum() / 2
            array[place] = before
        result.append(slope)
    return result


def cotangent(tensor, name="head"):
    shape = tuple(map(int, tensor.shape))
    return te.placeholder(shape, D, name=name), RNG.integers(-3, 4, shape).astype(D)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    _, reference, wanted = CASES[name]
    y = stage(name)
    head, weights = cotangent(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adjoints = list(differentiate(y, wanted, head))
    found, *gradients = values_of([y, *adjoints], [(head, weights)])
    np.testing.assert_array_equal(found, reference())
    expected = slopes(reference, [DATA[tensor] for tensor in wanted], weights)
    for got, want in zip(gradients, expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.filterwarnings("ignore::tvm_autodiff.PlainScheduleWarning")  # numbers, not speed
@pytest.mark.parametrize(
    "name",
    [
        "rows of a product",
        "a sparse matrix times rows",
        "a tensor without dimensions beside data",
        "two lengths",
        "a triangle in it",
    ],
)
def test_built(name):
    """What is compiled equals numpy, the second time too, with results of the first in memory."""
    wanted = CASES[name][2]
    y = stage(name)
    head, weights = cotangent(y)
    outputs = [y, *differentiate(y, wanted, head)]
    function = build([*DATA, head], outputs, cache=False)
    expected = values_of(outputs, [(head, weights)])
    for _ in range(2):
        for got, want in zip(function(*DATA.values(), weights), expected, strict=True):
            np.testing.assert_allclose(got, want)
            got.fill(np.nan)


@pytest.mark.parametrize("name", ["squares of a row", "a sparse matrix times rows", "segments"])
def test_second_order(name):
    _, _, wanted = CASES[name]
    y = stage(name)
    head, weights = cotangent(y)
    first = list(differentiate(y, wanted, head))
    for tensor, gradient in zip(wanted, first, strict=True):
        other, more = cotangent(tensor, "other")
        second = list(differentiate(gradient, [head], other))
        known = [(head, weights), (other, more)]

        def again(gradient=gradient, known=known):
            return values_of([gradient], known)[0]

        [want] = slopes(again, [weights], more)
        [got] = values_of(second, known)
        np.testing.assert_array_equal(got, want)


def test_gradients_take_as_many_steps_as_there_are_entries():
    y = stage("a sparse matrix times rows")
    head, _ = cotangent(y)
    result = differentiate(y, [value, table], head)
    assert "strategy: loop over updates" in result.explain()
    assert "Σ" not in show(list(result))  # no sum over rows for each entry
    second = differentiate(result[0], [head], te.placeholder((NNZ,), D, name="o"))
    assert "Σ_{k<ptr" in show(second[0]).replace("ptr[i0 + 1] - ", "").replace("if ", "")


def test_maxima():
    y = jagged((N,), lambda i: (0, length[i]), lambda i, k: x[i, k] + 0.01 * k, te.max)
    head, weights = cotangent(y)
    [dx] = values_of(list(differentiate(y, [x], head)), [(head, weights)])
    want = np.zeros((N, K))
    for i in np.flatnonzero(LENGTH):
        want[i, np.argmax((X[i] + 0.01 * np.arange(K))[: LENGTH[i]])] = weights[i]
    np.testing.assert_array_equal(dx, want)


@pytest.mark.parametrize("init", [False, True])
def test_narrow_ranges_are_refused_by_name(init):
    few = te.placeholder((N,), "int16", name="few")
    start = {"init": te.const(0.5, D)} if init else {}
    y = jagged(
        (N,), lambda i: (0, few[i]), lambda i, k: x[i, k], lambda v, axis: te.max(v, axis, **start)
    )
    with pytest.raises(
        NotDifferentiableError, match=r"stage y reduces over k, which is int16 .*int32"
    ):
        differentiate(y, [x])


def product(i_length):
    times = te.comm_reducer(lambda a, b: a * b, lambda t: te.const(1, t), name="times")
    return jagged((N,), lambda i: (0, i_length(i)), lambda i, k: x[i, k], times)


def test_products_need_a_bound():
    y = product(lambda i: te.min(length[i], K))
    head, weights = cotangent(y)
    [dx] = values_of(list(differentiate(y, [x], head)), [(head, weights)])
    want = np.zeros((N, K))
    for i in range(N):
        for k in range(LENGTH[i]):
            want[i, k] = weights[i] * np.delete(X[i, : LENGTH[i]], k).prod()
    np.testing.assert_allclose(dx, want)
    unbounded = product(lambda i: length[i])
    with pytest.raises(NotDifferentiableError, match=r"stage y reduces over .*length\[.*min"):
        differentiate(unbounded, [x], head)


@pytest.mark.parametrize("name", CASES)
def test_jacobians(name):
    """An element of the output has an identity for its cotangent, no tensor to read."""
    _, reference, wanted = CASES[name]
    y = stage(name)
    found = values_of(list(differentiate(y, wanted)))
    for got, tensor in zip(found, wanted, strict=True):
        array = DATA[tensor]
        want = np.zeros((*reference().shape, *array.shape))
        for place in np.ndindex(array.shape):
            before = array[place]
            ends = []
            for end in (before + 1, before - 1):
                array[place] = end
                ends.append(reference())
            array[place] = before
            want[(..., *place)] = (ends[0] - ends[1]) / 2
        np.testing.assert_array_equal(got, want)


def test_the_gradient_of_one_number_needs_no_head():
    """A sum of a row between pointers, without dimensions: its cotangent is the number one."""
    y = jagged((), lambda: (ptr[4], ptr[5]), lambda k: value[k] * dense[col[k]])
    dv, dd = values_of(list(differentiate(y, [value, dense])))
    want, entries = np.zeros(NNZ), slice(PTR[4], PTR[5])
    want[entries] = DENSE[COL[entries]]
    np.testing.assert_array_equal(dv, want)
    want = np.zeros(C)
    np.add.at(want, COL[entries], VALUE[entries])
    np.testing.assert_array_equal(dd, want)


def test_costs_count_the_axis_itself():
    y = stage("rows of a product")
    [axis] = y.op.reduce_axis
    assert estimate_cost(y, {axis.var: 5}).iterations == N * 4 * 5
    assert str(estimate_cost(y).iterations) == "k * 24"
    assert "k<length[" in show(y)


@pytest.mark.parametrize(
    "transform",
    [
        simplify_reductions,
        inline_tensors,
        lift_nonzeroness_condition,
        remove_unused_dims,
        merge_equal_stages,
    ],
)
@pytest.mark.parametrize("name", ["a length that is computed", "a sparse matrix, between pointers"])
def test_transformations_keep_the_values(name, transform):
    y = stage(name)
    result = transform(y)
    [new] = result if isinstance(result, list) else [result]
    np.testing.assert_array_equal(*values_of([new, y]))


def test_chains_of_stages():
    """A masked attention: lengths bound two sums, between them a division."""
    weight = te.compute((N, K), lambda i, k: x[i, k] * x[i, k] + 1.0, name="weight")
    norm = jagged((N,), lambda i: (0, length[i]), lambda i, k: weight[i, k], name="norm")
    y = jagged(
        (N, 4),
        lambda i, j: (0, length[i]),
        lambda i, j, k: weight[i, k] / (norm[i] + 1.0) * b[k, j],
    )
    head, weights = cotangent(y)
    outputs = [y, *differentiate(y, [x, b], head)]
    got = build([length, x, b, head], outputs, cache=False)(LENGTH, X, B, weights)
    mask = np.arange(K) < LENGTH[:, None]
    soft = np.where(mask, X**2 + 1, 0)
    total = soft.sum(1, keepdims=True) + 1
    dsoft = np.where(mask, weights @ B.T, 0)
    dweight = np.where(mask, dsoft / total - (dsoft * soft).sum(1, keepdims=True) / total**2, 0)
    want = [soft / total @ B, 2 * X * dweight, (soft / total).T @ weights]
    for result, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-12)


def test_empty_ranges_of_axes_are_the_identity():
    """``k < i`` of the first row: TVM's loop would leave what lay in memory."""

    def stage(i):
        k = te.reduce_axis((0, i), "k")
        return te.max(x[i, k], axis=k)

    y = te.compute((N,), stage, name="y")
    got = build(x, y, cache=False)(X)
    assert got[0] == np.finfo(D).min
    np.testing.assert_array_equal(got[1:], [X[i, :i].max() for i in range(1, N)])


def test_lowers_for_a_gpu():
    y = stage("a sparse matrix times rows")
    head, _ = cotangent(y)
    for output in (y, *differentiate(y, [value, table], head)):
        lower([*DATA, head], output, target="cuda")


@pytest.mark.filterwarnings("ignore::tvm_autodiff.PlainScheduleWarning")  # numbers, not speed
def test_two_axes_that_one_datum_ends():
    """TVM makes no function of it where the reducer is the user's and the rows are symbolic."""
    either = te.comm_reducer(lambda a, b: a + b - a * b, lambda t: te.const(0, t))
    n = te.var("n")
    count, cubes = te.placeholder((n,), "int32", "count"), te.placeholder((n, 4, 4), D, "cubes")
    factor = te.placeholder((3,), D, "factor")
    i = te.reduce_axis((0, n), "i")
    k, m = (te.reduce_axis((0, te.min(count[i], 4)), name) for name in "km")
    y = te.compute((3,), lambda b: either(cubes[i, k, m] * factor[b], axis=[i, k, m]), name="y")
    function = build([count, cubes, factor], [y], cache=False)
    lengths, values = np.array([1, 4, 0, 2, 3], "int32"), RNG.random((5, 4, 4)) / 9
    factors = RNG.random(3)
    wanted = np.zeros(3)
    for row, length in enumerate(lengths):
        for value in values[row, :length, :length].ravel():
            wanted += (1 - wanted) * value * factors
    [got] = function(lengths, values, factors)
    np.testing.assert_allclose(got, wanted)
    lower([count, cubes, factor], [y], target="cuda")


@pytest.mark.parametrize("form", ["an equation", "two bounds"])
def test_an_equation_may_hold_what_a_loop_counts_and_what_bounds_it(form):
    """``k < length[j]`` with ``place[k] == j``: j cannot be found in the loop that it bounds."""
    place = given("place", [2, 0, 1, 2, 3, 5, 0, 1, 4], "int32")
    values = numbers("values", 1, 3)

    def stage(i, j):
        k = te.reduce_axis((0, length[j]), "k")
        gap = place[k] - j
        here = gap.equal(0) if form == "an equation" else te.all(gap >= 0, gap <= 0)
        return te.sum(te.if_then_else(here, values[gap, i] * 2.0, te.const(0.5, D)), axis=k)

    y = te.compute((3, N), stage, name="y")
    head, weights = te.placeholder((3, N), D, name="head"), RNG.normal(size=(3, N))
    [found] = differentiate(y, [values], head)
    wanted = np.zeros((1, 3))
    for j in range(N):
        hits = np.count_nonzero(DATA[place][: DATA[length][j]] == j)
        wanted[0] += 2 * hits * weights[:, j]
    assert np.any(wanted)
    [got] = build([length, place, head], [found], cache=False)(DATA[length], DATA[place], weights)
    np.testing.assert_allclose(got, wanted)
