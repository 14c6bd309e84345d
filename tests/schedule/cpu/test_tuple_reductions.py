"""Reductions of several values at once, in vectors wherever those of one value are."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

from tests.evaluate import evaluate_graph
from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import arrays_for, shaped
from tvm_autodiff import build
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules


def constants(*values):
    return lambda *dtypes: tuple(tirx.const(v, t) for v, t in zip(values, dtypes, strict=True))


ONE, ZERO = (tirx.const(value, "float32") for value in (1, 0))


def selecting(better, start):
    """The pair of place and value that `better` prefers."""

    def chosen(a, b):
        first = better(a[1], b[1])
        return tuple(tirx.Select(first, x, y) for x, y in zip(a, b, strict=True))

    return te.comm_reducer(chosen, constants(-1, start))


def _welford(a, b):
    """(number, mean, sum of squared distances from the mean)"""
    count = a[0] + b[0]
    apart = b[1] - a[1]
    share = b[0] / tirx.Max(count, ONE)
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share


def _log_sum(a, b):
    """(greatest, sum of exponentials of what is below it)"""
    top = tirx.Max(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)


LOW, HIGH = -1e30, 1e30
moments = te.comm_reducer(
    lambda a, b: (a[0] + b[0], a[1] + b[1], tirx.Max(a[2], b[2])), constants(0, 0, LOW)
)
welford = te.comm_reducer(_welford, constants(0, 0, 0))
log_sum = te.comm_reducer(_log_sum, constants(LOW, 0))


#: reducer, the values that it reduces, from an element and its number, and a tolerance
REDUCERS = {
    "moments": (moments, lambda v, k: (v, v * v, v), 0.0),
    "the last greatest": (selecting(lambda a, b: a > b, LOW), lambda v, k: (k, v), 0.0),
    "the first greatest": (selecting(lambda a, b: a >= b, LOW), lambda v, k: (k, v), 0.0),
    "the first least": (selecting(lambda a, b: a <= b, HIGH), lambda v, k: (k, v), 0.0),
    "a wide place": (
        selecting(lambda a, b: a >= b, LOW),
        lambda v, k: (k.astype("int64"), v),
        0.0,
    ),
    "welford": (welford, lambda v, k: (ONE, v, ZERO), 1e-4),
    "log-sum": (log_sum, lambda v, k: (v, ONE), 1e-4),
}


def reduced(shape, over, reducer="moments"):
    """``X[shape]`` reduced over some axes, by a reducer of the table."""
    X = cases.placeholder("X", *shape)
    axes = {n: te.reduce_axis((0, shape[n]), f"k{n}") for n in over}
    reduce, values, _ = REDUCERS[reducer]

    def body(*places):
        rest = iter(places)
        index = [axes[n].var if n in axes else next(rest) for n in range(len(shape))]
        number = index[over[0]]
        for n in over[1:]:
            number = number * shape[n] + index[n]
        found = values(X(*index), number)
        return reduce(found, axis=list(axes.values()))

    kept = [extent for n, extent in enumerate(shape) if n not in over]
    return [X], list(te.compute(kept, body, name="W"))


def check(case, sizes=None, tolerance=0.0, threads=(2,)):
    inputs, outputs = case
    arrays = arrays_for(inputs, sizes or {})
    pairs = list(zip(inputs, arrays, strict=True))
    dims = {dim: size for t, a in pairs for dim, size in shaped(t, a) if not hasattr(dim, "value")}
    want = evaluate_graph(outputs, pairs, dims)
    for count in threads:
        built = build(inputs, outputs, num_threads=count, cache=False)
        assert built.notice is None
        for got, each in zip(built(*arrays), want, strict=True):
            np.testing.assert_allclose(got, each, rtol=tolerance, atol=tolerance)


def scheduled(outputs, threads=1):
    kernels, _ = cut(normal_form(outputs))
    return [one for kernel in kernels for one in apply_rules(kernel, avx512(threads), CPU_RULES)]


def widths(found):
    """The numbers of lanes of the loops of some kernels."""
    text = "".join(launch.func.script() for one in found for launch in one.launches)
    return {int(part.split(")")[0]) for part in text.split("T.vectorized(")[1:]}


#: shape, the axes that are reduced, the rule for one thread, and lanes of float32
FORMS = {
    "a middle axis": ((3, 40, 96), (1,), "reduction", 16),
    "a middle axis, odd": ((3, 41, 37), (1,), "reduction", 16),
    "the first axis": ((50, 96), (0,), "rows", None),
    "the first axis, in registers": ((50, 48), (0,), "reduction", 16),
    "the first axis of three": ((40, 6, 70), (0,), "rows", None),
    "more columns than a cache holds": ((20, 20_000), (0,), "reduction", 16),
    "few columns": ((40, 20, 6), (1,), "reduction", 4),
    "two axes": ((9, 3, 7, 33), (0, 2), "reduction", 16),
    "short rows": ((6_000, 3), (0,), "rows", None),
    "short rows of a prime number": ((6_007, 3), (0,), "reduction", None),
    "rows": ((40, 100), (1,), "rows", 16),
    "a row": ((20_011,), (0,), "rows", 16),
}


#: reducers of other kinds of components are taken in every form, those that differ in which element
#: they select in turns
TURNS = ("the last greatest", "the first greatest", "the first least")
TAKEN = [
    (form, reducer)
    for number, form in enumerate(FORMS)
    for reducer in REDUCERS
    if reducer not in TURNS or reducer == TURNS[number % len(TURNS)]
]


@pytest.mark.parametrize(("form", "reducer"), TAKEN)
def test_values(form, reducer):
    shape, over, *_ = FORMS[form]
    threads = (1, 2) if reducer == "moments" else (2,)
    check(reduced(shape, over, reducer), tolerance=REDUCERS[reducer][2], threads=threads)


@pytest.mark.parametrize("form", FORMS)
def test_rules(form):
    shape, over, rule, lanes = FORMS[form]
    found = scheduled(reduced(shape, over)[1])
    assert [one.rule for one in found] == [rule]
    assert lanes is None or lanes in widths(found)


n = te.var("n")
#: symbolic forms: shape, the axes that are reduced, and numbers that n stands for
SYMBOLIC = {
    "symbolic columns": ((3, 20, n), (1,), (0, 1, 3, 5, 16, 70, 200)),
    "symbolic columns of the first axis": ((20, n), (0,), (1, 5, 70)),
    "a symbolic middle axis": ((3, n, 40), (1,), (0, 1, 30)),
    "symbolic rows": ((n, 40), (1,), (1, 30)),
    "all symbolic": ((n, n, n), (1,), (1, 5, 40)),
}


@pytest.mark.parametrize("reducer", ["moments", "the first greatest", "a wide place"])
@pytest.mark.parametrize("form", SYMBOLIC)
def test_symbolic_extents(form, reducer):
    shape, over, sizes = SYMBOLIC[form]
    inputs, outputs = reduced(shape, over, reducer)
    built = build(inputs, outputs, num_threads=2, cache=False)
    for size in sizes:
        arrays = arrays_for(inputs, {"n": size})
        want = evaluate_graph(outputs, list(zip(inputs, arrays, strict=True)), {n: size})
        for got, each in zip(built(*arrays), want, strict=True):
            np.testing.assert_array_equal(got, each)


def guarded(rows, columns, terms, *conditions):
    """``W[i, j] = ⊕_k (if c(j, k) then f(X[i, k, j]) else 0 for each f and c)``."""
    X = cases.placeholder("X", rows, terms, columns)
    k = cases.axis(terms)
    both = te.comm_reducer(lambda a, b: (a[0] + b[0], a[1] + b[1]), constants(0, 0))

    def body(i, j):
        value = X[i, k, j]
        values = [value, value * value]
        return both(
            tuple(
                tirx.if_then_else(where(j, k), v, ZERO) if where is not None else v
                for v, where in zip(values, conditions, strict=True)
            ),
            axis=k,
        )

    return [X], list(te.compute((rows, columns), body, name="W"))


below, apart, even = (
    lambda j, k: k <= j,
    lambda j, k: tirx.all(k <= j, tirx.NE(k, 3)),
    lambda j, k: tirx.EQ(k % 2, 0),
)
GUARDED = {
    "alike": (below, below),
    "one more": (below, apart),
    "others": (below, even),
    "one": (below, None),
    "by the reduced axis": (even, even),
}


@pytest.mark.parametrize("columns", [70, n], ids=["literal", "symbolic"])
@pytest.mark.parametrize("name", GUARDED)
def test_guards_of_components(name, columns):
    case = guarded(5, columns, 20, *GUARDED[name])
    check(case, {"n": 45}, threads=(1,))


def spread(rows, columns, shift):
    """Pairs of what no axis has side by side: ``(X[j, k], X[j, k]·Z[j, (3*k + i)%n])``."""
    X, Z = cases.placeholder("X", rows, columns), cases.placeholder("Z", rows, shift)
    j, k = cases.axis(rows, "j"), cases.axis(columns, "k")

    def body(i):
        value = X[j, k] * Z[j, (k * 3 + i) % shift]
        return moments((X[j, k], value, value), axis=[j, k])

    return [X, Z], list(te.compute((3,), body, name="W"))


#: case, what its launches write with one thread
LANES = {
    "lanes": (spread(8, 64, 50), ["W_part", "W"]),
    "many points of an odd extent": (spread(700, 63, 50), ["W_most_part", "W_most", "W_rest", "W"]),
}


@pytest.mark.parametrize("name", LANES)
def test_parts_in_lanes(name):
    case, written = LANES[name]
    [found] = scheduled(case[1])
    assert [one.outputs[0].op.name for one in found.launches] == written
    check(case)


def test_lanes_by_the_widest_component():
    found = scheduled(reduced((3, 40, 96), (1,), "a wide place")[1])
    assert widths(found) == {8}


def test_rows_share_a_function_with_what_reads_them():
    """Means and deviations of short groups, and what they normalise."""
    [X], (_, mean, apart) = reduced((600, 8, 32), (1,), "welford")
    Y = te.compute(
        X.shape, lambda i, k, j: (X[i, k, j] - mean[i, j]) / (apart[i, j] + 1.0), name="Y"
    )
    [found] = scheduled([Y])
    assert found.rule == "fused_rows"
    check(([X], [Y]), tolerance=1e-4)


EXTREMES = {
    "infinities": [np.inf, -np.inf, 1.0, 1.0],
    "NaN": [np.nan, 1.0, 2.0, 1.0],
    "zeros": [0.0, -0.0, 0.0, -0.0],
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("shape", [(2, 4, 40), (4, 40), (700, 4, 33)])
def test_no_column_takes_from_others(shape, name):
    """The greatest of each column, where one column has other numbers."""
    axis = len(shape) - 2
    inputs, outputs = reduced(shape, (axis,), "the first greatest")
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape) % 7
    x[..., 5] = np.asarray(EXTREMES[name], "float32")
    place, top = build(inputs, outputs, num_threads=2, cache=False)(x)
    others = np.arange(shape[-1]) != 5
    np.testing.assert_array_equal(place[..., others], x.argmax(axis)[..., others])
    np.testing.assert_array_equal(top[..., others], x.max(axis)[..., others])
    if name != "NaN":  # which no comparison orders
        np.testing.assert_array_equal(place[..., 5], x.argmax(axis)[..., 5])


affine = te.comm_reducer(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), constants(1, 0))


ORDERED = [((8, 500), 1), ((500, 64), 0), ((8_000, 3), 0), ((4, 90, 64), 1), ((40_000,), 0)]


@pytest.mark.parametrize(("shape", "axis"), ORDERED)
def test_what_does_not_commute_stays_in_order(shape, axis):
    """Affine maps of integers, one after the other."""
    X, k = cases.placeholder("X", *shape, dtype="int32"), cases.axis(shape[axis])
    kept = shape[:axis] + shape[axis + 1 :]

    def body(*places):
        value = X(*places[:axis], k, *places[axis:])
        return affine((value, value + 1), axis=k)

    outputs = list(te.compute(kept, body, name="W"))
    x = np.random.default_rng(0).integers(0, 2, shape, dtype="int32") * 2 - 1
    slope, offset = np.ones(kept, "int32"), np.zeros(kept, "int32")
    for row in np.moveaxis(x, axis, 0):
        slope, offset = slope * row, offset * row + row + 1
    for threads in (1, 2):
        got = build([X], outputs, num_threads=threads, cache=False)(x)
        np.testing.assert_array_equal(got[0], slope)
        np.testing.assert_array_equal(got[1], offset)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize(("shape", "axis"), [((7, 5), 0), ((5, 1), 1), ((5, 7), 1)])
def test_unsigned_numbers_are_compared_with_the_least_one(dtype, shape, axis):
    """``0 > u``, where the first element is compared: TVM ended the process."""
    x = te.placeholder(shape, dtype, name="x")
    data = np.random.default_rng(0).integers(0, 9, shape).astype(dtype)
    place = build([x], topi.argmax(x, axis=axis), cache=False)(data)
    np.testing.assert_array_equal(place, data.argmax(axis))
