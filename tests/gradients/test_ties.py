"""Of elements that tie, a user's reducer keeps the one that evaluation in order keeps.

The oracle runs the reducer over the elements in Python. Indices and gradients come compiled, at
widths that end in the midst of vectors, and over rows that threads share.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tvm_autodiff import build, differentiate, jvp


def pair(keeps, other=None, value=None):
    """(index, value): the index by one condition, the value by the same or another one."""

    def combine(a, b):
        kept = tirx.Select((other or keeps)(a, b), a[1], b[1]) if value is None else value(a, b)
        return tirx.Select(keeps(a, b), a[0], b[0]), kept

    return combine


def swapped(better):
    """Both components in the form that takes the right operand if it is better."""
    return lambda a, b: tuple(
        tirx.Select(better(b[1], a[1]), right, left) for left, right in zip(a, b, strict=True)
    )


def first(a, b):
    return tirx.any(a[1] > b[1], tirx.all(a[1] == b[1], a[0] < b[0]))


def last(a, b):
    return tirx.any(a[1] > b[1], tirx.all(a[1] == b[1], a[0] > b[0]))


#: reducer, whether the least value wins, whether the last of equal ones does, what is compared
REDUCERS = {
    "ge": (pair(lambda a, b: a[1] >= b[1]), False, False, None),
    "gt": (pair(lambda a, b: a[1] > b[1]), False, True, None),
    "le": (pair(lambda a, b: a[1] <= b[1]), True, False, None),
    "lt": (pair(lambda a, b: a[1] < b[1]), True, True, None),
    "turned": (pair(lambda a, b: b[1] <= a[1]), False, False, None),
    "swapped strict": (swapped(lambda new, old: new > old), False, False, None),
    "swapped": (swapped(lambda new, old: new >= old), False, True, None),
    "not": (pair(lambda a, b: tirx.Not(a[1] < b[1])), False, False, None),
    "first index": (pair(first), False, False, None),
    "last index": (pair(last), False, True, None),
    "index alone breaks ties": (pair(first, lambda a, b: a[1] > b[1]), False, False, None),
    "value by max": (
        pair(lambda a, b: a[1] > b[1], value=lambda a, b: tirx.Max(a[1], b[1])), False, True, None
    ),
    "value by min": (
        pair(lambda a, b: a[1] <= b[1], value=lambda a, b: tirx.Min(a[1], b[1])), True, False, None
    ),
    "magnitude": (pair(lambda a, b: te.abs(a[1]) >= te.abs(b[1])), False, False, np.abs),
    "last magnitude": (pair(lambda a, b: te.abs(a[1]) > te.abs(b[1])), False, True, np.abs),
}  # fmt: skip


def winners(x, least, final, key):
    """The index that stands at the end of each row when elements are taken in order."""
    keys = (x if key is None else key(x)) * (-1 if least else 1)
    found = []
    for row in keys:
        best = 0
        for k in range(1, len(row)):
            if row[k] > row[best] or (final and row[k] == row[best]):
                best = k
        found.append(best)
    return np.array(found)


def reducer_of(name):
    combine, least, _, key = REDUCERS[name]
    worst = te.max_value if least else te.min_value
    value = (lambda dtype: tirx.const(0, dtype)) if key else worst
    return te.comm_reducer(combine, lambda i, v: (tirx.const(-1, i), value(v)), name="pick")


def ties(shape, dtype):
    return np.random.default_rng(3).choice([-2, -1, 1, 2], shape).astype(dtype)


def picked(pick, x, axis, place=lambda k: k):
    """Indices and values, and the gradient of the sum of all values."""
    rows, width = x.shape if axis else x.shape[::-1]
    k = te.reduce_axis((0, width), "k")

    def row(i):
        here = x[i, k] if axis else x[k, i]
        return pick((place(k.var), here), axis=k)

    index, value = te.compute((rows,), row, name="picked")
    q = te.reduce_axis((0, rows), "q")
    total = te.compute((), lambda: te.sum(value[q], axis=q), name="total")
    return [index, *differentiate(total, [x])]


ROWS = [*((name, (11,)) for name in REDUCERS), ("ge", (2, 8, 40)), ("gt", (1, 7, 21))]


@pytest.mark.parametrize(("name", "widths"), ROWS, ids=str)
def test_index_and_gradient_show_the_winner_of_evaluation_in_order(name, widths):
    pick, at = reducer_of(name), [ties((5, n), "float32") for n in widths]
    inputs = [te.placeholder(a.shape, "float32", f"x{n}") for n, a in enumerate(at)]
    program = build(inputs, [out for x in inputs for out in picked(pick, x, 1)], cache=False)
    got = [np.asarray(one) for one in program(*at)]
    for x, index, gradient in zip(at, got[::2], got[1::2], strict=True):
        want = winners(x, *REDUCERS[name][1:])
        np.testing.assert_array_equal(index, want, err_msg=str(x.shape))
        np.testing.assert_array_equal(gradient, np.eye(x.shape[1])[want], err_msg=str(x.shape))


LARGE = [
    ("gt", (64, 1001), 1, "float32"),
    ("ge", (5000, 33), 0, "float16"),
    ("last magnitude", (3000, 7), 0, "int32"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "axis", "dtype"), LARGE, ids=str)
def test_long_reductions_keep_the_order(name, shape, axis, dtype):
    x, at = te.placeholder(shape, dtype, "x"), ties(shape, dtype)
    pick = reducer_of(name)
    outputs = picked(pick, x, axis) if dtype.startswith("float") else _index(pick, x)
    want = winners(at if axis else at.T, *REDUCERS[name][1:])
    got = [np.asarray(a) for a in build([x], outputs, cache=False, num_threads=2)(at)]
    np.testing.assert_array_equal(got[0], want)
    if len(got) > 1:
        gradient = np.eye(at.shape[axis])[want]
        np.testing.assert_array_equal(got[1], gradient if axis else gradient.T)


def _index(pick, x):
    k = te.reduce_axis((0, x.shape[0]), "k")
    return [te.compute((x.shape[1],), lambda i: pick((k.var, x[k, i]), axis=k), name="picked")[0]]


@pytest.mark.slow
def test_a_single_component_and_an_index_that_is_no_place():
    """±2 tie in magnitude; blocks of four share an index; two axes have no single variable."""
    at = ties((6, 19), "float32")
    x = te.placeholder(at.shape, "float32", "x")
    larger = te.comm_reducer(
        lambda a, b: tirx.Select(te.abs(a) >= te.abs(b), a, b), lambda t: tirx.const(0, t)
    )
    k = te.reduce_axis((0, 19), "k")
    single = te.compute((6,), lambda i: larger(x[i, k], axis=k), name="single")
    pick = reducer_of("last magnitude")
    j = te.reduce_axis((0, 19), "j")
    blocks = te.compute((6,), lambda i: pick((j // 4, x[i, j]), axis=j), name="blocks")
    a, b = te.reduce_axis((0, 6), "a"), te.reduce_axis((0, 19), "b")
    flat = te.compute((), lambda: pick((a * 19 + b, x[a, b]), axis=[a, b]), name="flat")
    got = [
        np.asarray(v)
        for v in build([x], [single, blocks[0], blocks[1], flat[0], flat[1]], cache=False)(at)
    ]
    best = winners(at, False, False, np.abs)
    np.testing.assert_array_equal(got[0], at[np.arange(6), best])
    best = winners(at, False, True, np.abs)
    np.testing.assert_array_equal(got[1], best // 4)
    np.testing.assert_array_equal(got[2], at[np.arange(6), best])
    [best] = winners(at.reshape(1, -1), False, True, np.abs)
    assert (got[3], got[4]) == (best, at.reshape(-1)[best])


@pytest.mark.parametrize("name", ["ge", "gt", "lt", "swapped"])
def test_an_initial_value_precedes_all_elements(name):
    """Its index is data, so it is no place among the elements; tangents take places as well."""
    combine, least, final, _ = REDUCERS[name]
    worst = te.max_value if least else te.min_value
    reducer = te.comm_reducer(combine, lambda i, v: (tirx.const(-1, i), worst(v)))
    x, start = te.placeholder((5, 11), name="x"), te.placeholder((5,), name="start")
    label = te.placeholder((5,), "int32", name="label")

    def body(i):
        k = te.reduce_axis((0, 11 - i), "k")
        return reducer((k, x[i, k]), axis=k, init=[label[i], start[i]])

    index, best = te.compute((5,), body, name="best")
    head = te.placeholder((5,), name="head")
    tangents = [te.placeholder(t.shape, name=f"d{t.op.name}") for t in (x, start)]
    outputs = [index, best, *differentiate(best, [x, start], head)]
    outputs += jvp([best], [x, start], tangents)
    run = build([x, label, start, head, *tangents], outputs, cache=False)
    rng = np.random.default_rng(3)
    rows = rng.integers(1, 4, (5, 11)).astype("float32")
    begin = np.array([3, 1, 2, 9, -1], "float32")
    labels = np.arange(100, 105, dtype="int32")
    moves, shift = rng.random((5, 11), "float32"), rng.random(5, "float32")
    got = run(rows, labels, begin, np.ones(5, "float32"), moves, shift)
    for i in range(5):
        length = 11 - i
        joined = np.concatenate([begin[i : i + 1], rows[i, :length]])[None]
        [at] = winners(joined, least, final, None)
        assert got[0][i] == (labels[i] if at == 0 else at - 1)
        assert got[1][i] == joined[0, at]
        np.testing.assert_array_equal(got[2][i], np.arange(11) == at - 1)
        assert got[3][i] == (at == 0)
        assert got[4][i] == (shift[i] if at == 0 else moves[i, at - 1])


@pytest.mark.parametrize("width", [2, 3, 8, 40])
@pytest.mark.parametrize("form", ["row", "bounds", "segments"])
def test_tangents_of_rescaled_sums_choose_as_their_maxima_do(form, width):
    """A running logarithm of a sum with ties: what the maximum's tangent follows cancels."""

    def combine(a, b):
        best = te.max(a[0], b[0])
        return best, a[1] * te.exp(a[0] - best) + b[1] * te.exp(b[0] - best)

    reducer = te.comm_reducer(combine, lambda a, b: (te.min_value(a), tirx.const(0, b)))
    x, t = (te.placeholder((width,), "float64", name=name) for name in "xt")
    d = te.placeholder((width,), "int32", name="d")
    every = te.reduce_axis((0, width), "k")
    one, zero = (tirx.const(number, "float64") for number in (1, 0))

    def body(i):
        if form == "bounds":
            k = te.reduce_axis((0, i + 1), "k")
            return reducer((x[k], one), axis=k)
        if form == "row":
            return reducer((x[every], one), axis=every)
        parts = ((x[every], te.min_value("float64")), (one, zero))
        return reducer([te.if_then_else(d[every] == i, a, b) for a, b in parts], axis=every)

    best, total = te.compute((width,), body, name="y")
    value = te.compute((width,), lambda i: te.log(te.max(total[i], 1e-9)) + best[i], name="l")
    [tangent] = jvp(value, [x], [t])
    function = build([x, t, d], [tangent])
    rng = np.random.default_rng(0)
    numbers, segment = rng.integers(0, 2, width).astype(float), rng.integers(0, 2, width)
    got = np.array([function(numbers, e, segment.astype("int32"))[0] for e in np.eye(width)]).T
    place = np.arange(width)
    counts = {
        "row": np.ones((width, width), bool),
        "bounds": place[None] <= place[:, None],
        "segments": segment[None] == place[:, None],
    }[form]
    weights = counts * np.exp(numbers)
    filled = counts.any(axis=1)
    expected = weights[filled] / weights[filled].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(got[filled], expected, atol=1e-14)


#: the ranges of an outer and an inner reduce axis, for n columns and row i
NESTED = {
    "below the outer axis": (lambda n, i, k: (0, i + 1), lambda n, i, k: (0, k + 1)),
    "from the outer axis": (lambda n, i, k: (0, i + 1), lambda n, i, k: (k, i + 1)),
    "a window": (lambda n, i, k: (i, n), lambda n, i, k: (k // 2, k // 2 + 2)),
    "shrinking": (lambda n, i, k: (0, n), lambda n, i, k: (0, n - k)),
}


@pytest.mark.parametrize("reduce", [te.max, te.min])
@pytest.mark.parametrize("name", NESTED)
def test_rows_that_differ_in_length(name, reduce):
    """An element that several points of the loops read is one winner, at the first of them."""
    outer, inner = NESTED[name]
    n, better = 7, max if reduce is te.max else min
    x, head = te.placeholder((n,), "float64", "x"), te.placeholder((n,), "float64", "head")

    def body(i):
        low, high = outer(n, i, None)
        k = te.reduce_axis((low, high), "k")
        low, high = inner(n, i, k.var)
        m = te.reduce_axis((low, high), "m")
        return reduce(x[m], axis=[k, m])

    y = te.compute((n,), body, name="y")
    [gradient] = differentiate(y, [x], head)
    rng = np.random.default_rng(0)
    values, weights = rng.integers(-3, 4, n).astype("float64"), rng.standard_normal(n)
    want = np.zeros(n)
    for i in range(n):
        points = [m for k in range(*outer(n, i, None)) for m in range(*inner(n, i, k)) if m < n]
        best = better(values[m] for m in points)
        want[next(m for m in points if values[m] == best)] += weights[i]
    found = build([x, head], [y, gradient], cache=False)(values, weights)[1]
    np.testing.assert_allclose(found, want)
