"""Reducers other than sums over the points that count: the values of the dense reduction, for
fewer iterations, and its derivative.

The expected values run the reducer over all points in numpy, in the order in which they are
written.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.numeric import run
from tvm_autodiff import check_grads, differentiate, estimate_cost, jvp, simplify_reductions
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.zero_elimination.passes.reductions import solve_masks

D = "float64"
ROWS, PLACES = 3, 24
LOWEST, GREATEST = np.finfo(D).min, np.finfo(D).max

#: name → whether k counts for j, the number of elements j, the points of each that are left
CONDITIONS = {
    "blocks by a quotient": (lambda k, j: k // 4 == j, 6, 4),
    "blocks by bounds": (lambda k, j: all_of(k >= 4 * j, k < 4 * j + 4), 6, 4),
    "remainders": (lambda k, j: k % 6 == j, 6, 4),
    "a stride": (lambda k, j: k == 2 * j + 1, 12, 1),
    "a shift": (lambda k, j: k == j - 7, PLACES, 1),
    "a reversal": (lambda k, j: k == PLACES - 1 - j, PLACES, 1),
    "a window around": (lambda k, j: all_of(j - 4 <= k, k < j + 4), PLACES, 8),
    "a window before": (lambda k, j: all_of(k <= j, k > j - 5), PLACES, 5),
    "by a distance": (lambda k, j: distance(k, j) <= 2, PLACES, 5),
    "never": (lambda k, j: all_of(k == j, k > j), PLACES, 1),
    "a few elements": (lambda k, j: all_of(k == j, j > 20), PLACES, None),
}


def distance(k, j):
    return abs(k - j) if isinstance(k, int) else te.abs(k - j)


def all_of(*conditions):
    if all(isinstance(one, (bool, np.bool_)) for one in conditions):
        return all(conditions)
    return tirx.all(*conditions)


PROD = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="prod")
COMPOUNDED = te.comm_reducer(
    lambda a, b: a + b + a * b, lambda t: tirx.const(0, t), name="compounded"
)
CHOSEN = te.comm_reducer(
    lambda a, b: tirx.Select(a >= b, a, b), lambda t: tirx.const(-5, t), name="chosen"
)
#: name → the reducer, what numpy combines two numbers by, its identity, what else is reduced
REDUCERS = {
    "max": (te.max, np.maximum, LOWEST, LOWEST),
    "min": (te.min, np.minimum, GREATEST, GREATEST),
    "prod": (PROD, np.multiply, 1.0, 1.0),
    "compounded": (COMPOUNDED, lambda a, b: a + b + a * b, 0.0, 0.0),
    "chosen": (CHOSEN, np.maximum, -5.0, -5.0),
    "max with -inf": (te.max, np.maximum, LOWEST, -np.inf),
    "min with inf": (te.min, np.minimum, GREATEST, np.inf),
    "max with zero": (te.max, np.maximum, LOWEST, 0.0),
    "min with one half": (te.min, np.minimum, GREATEST, 0.5),
    "max with -1e30": (te.max, np.maximum, LOWEST, -1e30),
}


def dense(reducer, condition, count, otherwise, dtype=D, x=None, choose=te.if_then_else, **options):
    """``o[i, j] = ⊕_k if condition(k, j) then x[i, k] else otherwise``."""
    x = te.placeholder((ROWS, PLACES), dtype, name="x") if x is None else x
    k = te.reduce_axis((0, x.shape[1]), "k")

    def body(i, j):
        source = choose(condition(k.var, j), x[i, k], tirx.const(otherwise, dtype))
        return reducer(source, axis=k, **options)

    return x, te.compute((x.shape[0], count), body, name="o")


def expected(x, combine, identity, condition, count, otherwise):
    """The reduction of all points in order."""
    return np.array(
        [
            [
                reduce(
                    combine,
                    [row[k] if condition(k, j) else otherwise for k in range(len(row))],
                    identity,
                )
                for j in range(count)
            ]
            for row in x
        ]
    )


def numbers(seed=0, dtype=D):
    """Random numbers, with ties, a row without a number, and infinite ones."""
    found = np.random.default_rng(seed).integers(-8, 9, (ROWS, PLACES)) / 4
    found[1, :6] = found[1, 7]
    return found.astype(dtype)


@pytest.mark.parametrize("transform", [simplify_reductions, solve_masks])
@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_values(condition, reducer, transform):
    holds, count, points = CONDITIONS[condition]
    combine, step, identity, otherwise = REDUCERS[reducer]
    x, o = dense(combine, holds, count, otherwise)
    [solved] = transform([o])
    for values in (numbers(), np.full((ROWS, PLACES), -np.inf), np.full((ROWS, PLACES), np.inf)):
        if np.isinf(values).any() and reducer == "compounded":
            continue  # inf - inf
        want = expected(values, step, identity, holds, count, otherwise)
        [got] = evaluate_graph([solved], {x: values}, strict=True)
        np.testing.assert_array_equal(got, want)
    iterations = estimate_cost(solved).iterations
    assert estimate_cost(o).iterations == ROWS * count * PLACES
    if points is None:
        assert iterations <= ROWS * count + ROWS * 3
    else:
        assert iterations == ROWS * count * points


#: name → how the choice is written, by the condition, the value and what else is reduced
SPELLINGS = {
    "select": lambda c, v, w: tirx.Select(c, v, w),
    "if not": lambda c, v, w: te.if_then_else(tirx.Not(c), w, v),
    "nested": lambda c, v, w: te.if_then_else(c, te.if_then_else(c, v, w), w),
    "an inner condition of data": lambda c, v, w: te.if_then_else(
        c, tirx.Select(v > tirx.const(-1e300, D), v, w), w
    ),
    "a converted constant": lambda c, v, w: te.if_then_else(c, v, w.astype("float32").astype(D)),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("otherwise", [-np.inf, 0.0])
def test_spellings(spelling, otherwise):
    holds, count, points = CONDITIONS["blocks by a quotient"]
    x, o = dense(te.max, holds, count, otherwise, choose=SPELLINGS[spelling])
    [solved] = solve_masks([o])
    assert estimate_cost(solved).iterations == ROWS * count * points
    want = expected(numbers(), np.maximum, LOWEST, holds, count, otherwise)
    np.testing.assert_array_equal(evaluate_graph([solved], {x: numbers()})[0], want)


def test_conditions_and_initial_values_of_reducers():
    x, k = te.placeholder((PLACES,), D, name="x"), te.reduce_axis((0, PLACES), "k")
    start = te.placeholder((6,), D, name="start")
    masked = te.compute((6,), lambda j: te.max(x[k], axis=k, where=k // 4 == j), name="o")
    begun = te.compute(
        (6,),
        lambda j: te.max(
            te.if_then_else(k // 4 == j, x[k], te.min_value(D)), axis=k, init=start[j]
        ),
        name="o",
    )
    solved = solve_masks([masked, begun])
    assert [estimate_cost(one).iterations for one in solved] == [24, 24 + 6]
    row, starts = numbers()[0], np.linspace(-2, 2, 6)
    got = evaluate_graph(solved, {x: row, start: starts})
    np.testing.assert_array_equal(got[0], row.reshape(6, 4).max(axis=1))
    np.testing.assert_array_equal(got[1], np.maximum(starts, row.reshape(6, 4).max(axis=1)))


#: name → what stays dense: reducer, condition, number of elements, what else is reduced
DENSE = {
    "a product with another number": (PROD, CONDITIONS["blocks by a quotient"][0], 6, 2.0),
    "a reducer with another number": (COMPOUNDED, CONDITIONS["blocks by a quotient"][0], 6, 1.0),
    "a number that not every element has": (
        te.max, lambda k, j: all_of(k >= j - 23, k < j + 24, j < 3), 6, 0.0
    ),
    "a sum that begins with one": (
        te.comm_reducer(lambda a, b: a + b, lambda t: tirx.const(1, t)),
        CONDITIONS["blocks by a quotient"][0],
        6,
        1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DENSE)
def test_what_stays_dense(name):
    reducer, holds, count, otherwise = DENSE[name]
    _, o = dense(reducer, holds, count, otherwise)
    assert [tensor_key(one) for one in solve_masks([o])] == [tensor_key(o)]


def test_the_place_of_a_maximum_stays_dense():
    x, k = te.placeholder((PLACES,), D, name="x"), te.reduce_axis((0, PLACES), "k")
    place = te.comm_reducer(
        lambda a, b: tuple(tirx.Select(a[1] >= b[1], u, v) for u, v in zip(a, b, strict=True)),
        lambda s, t: (tirx.const(-1, s), te.min_value(t)),
    )
    found = te.compute(
        (6,),
        lambda j: place((k.var, te.if_then_else(k // 4 == j, x[k], te.min_value(D))), axis=k),
        name="o",
    )
    assert [tensor_key(one) for one in solve_masks(found)] == list(map(tensor_key, found))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float16", "float32"])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("condition", ["blocks by a quotient", "a shift", "a window before"])
def test_dtypes_as_compiled(dtype, kind, condition):
    holds, count, points = CONDITIONS[condition]
    reducer, step = (te.max, np.maximum) if kind == "max" else (te.min, np.minimum)
    info = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    otherwise = info.min if kind == "max" else info.max
    otherwise = float(otherwise) if dtype.startswith("float") else int(otherwise)
    x, o = dense(reducer, holds, count, otherwise, dtype)
    assert estimate_cost(solve_masks([o])[0]).iterations == ROWS * count * points
    values = np.random.default_rng(0).integers(0, 99, (ROWS, PLACES)).astype(dtype)
    want = expected(values, step, otherwise, holds, count, otherwise)
    np.testing.assert_array_equal(run([x], [o], [values])[0], want.astype(dtype))


@pytest.mark.parametrize("reducer", ["max with -inf", "max with zero", "prod", "compounded"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_values_as_compiled(condition, reducer):
    holds, count, _ = CONDITIONS[condition]
    combine, step, identity, otherwise = REDUCERS[reducer]
    x, o = dense(combine, holds, count, otherwise)
    want = expected(numbers(), step, identity, holds, count, otherwise)
    np.testing.assert_allclose(run([x], [o], [numbers()])[0], want, rtol=1e-12)


#: name → the reducer, what numpy combines two numbers by, their dtype, what else is reduced
OF_BITS = {
    "or": (lambda a, b: a | b, np.bitwise_or, "int32", 0),
    "and": (lambda a, b: a & b, np.bitwise_and, "int64", -1),
    "any": (lambda a, b: tirx.any(a, b), np.logical_or, "bool", False),
}


@pytest.mark.parametrize("name", OF_BITS)
def test_bits(name):
    combine, step, dtype, identity = OF_BITS[name]
    holds, count, points = CONDITIONS["a window before"]
    reducer = te.comm_reducer(combine, lambda t: tirx.const(identity, t), name="bits")
    x, o = dense(reducer, holds, count, identity, dtype)
    assert estimate_cost(solve_masks([o])[0]).iterations == ROWS * count * points
    values = np.random.default_rng(0).integers(0, 9, (ROWS, PLACES)).astype(dtype)
    want = expected(values, step, identity, holds, count, identity)
    np.testing.assert_array_equal(run([x], [o], [values])[0], want)


#: name → the condition, the number of elements for n places, the points of each
SYMBOLIC = {
    "blocks": (lambda k, j, n: k // 4 == j, lambda n: n // 4, 4),
    "a window": (lambda k, j, n: all_of(k <= j, k > j - 5), lambda n: n, 5),
    "a reversal": (lambda k, j, n: k == n - 1 - j, lambda n: n, 1),
}


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name, index):
    holds, count, points = SYMBOLIC[name]
    n = te.var("n", index)
    x = te.placeholder((2, n), D, name="x")
    condition = lambda k, j: holds(k, j, n)  # noqa: E731
    _, o = dense(te.max, condition, count(n), -np.inf, x=x)
    [solved] = solve_masks([o])
    for size in (8, 20):
        assert estimate_cost(solved, {n: size}).iterations == 2 * count(size) * points
        values = numbers()[:2, :size]
        want = expected(
            values, np.maximum, LOWEST, lambda k, j, m=size: holds(k, j, m), count(size), -np.inf
        )
        got = evaluate_graph([solved], {x: values}, {n: size}, strict=True)
        np.testing.assert_array_equal(got[0], want)


def test_a_symbolic_maximum_with_a_number_that_may_not_count_stays():
    n = te.var("n")
    x = te.placeholder((2, n), D, name="x")
    _, o = dense(te.max, lambda k, j: all_of(k <= j, k > j - 5), n, 0.0, x=x)
    assert tensor_key(solve_masks([o])[0]) == tensor_key(o)


def test_data_that_determine_the_place():
    x, k = te.placeholder((PLACES,), D, name="x"), te.reduce_axis((0, PLACES), "k")
    place = te.placeholder((5,), "int32", name="place")
    o = te.compute(
        (5,), lambda j: te.max(te.if_then_else(k.var == place[j], x[k], -np.inf), axis=k), name="o"
    )
    [solved] = solve_masks([o])
    assert estimate_cost(solved).iterations == 5
    places = np.array([3, -1, PLACES, 0, PLACES - 1], "int32")
    [got] = evaluate_graph([solved], {x: numbers()[0], place: places}, strict=True)
    want = [numbers()[0][p] if 0 <= p < PLACES else LOWEST for p in places]
    np.testing.assert_array_equal(got, want)


def test_several_axes():
    """A pool over all places of an image."""
    x = te.placeholder((8, 9), D, name="x")
    k, m = te.reduce_axis((0, 8), "k"), te.reduce_axis((0, 9), "m")
    o = te.compute(
        (4, 3),
        lambda i, j: te.max(
            te.if_then_else(te.all(k // 2 == i, m // 3 == j), x[k, m], -1e30), axis=[k, m]
        ),
        name="o",
    )
    head = te.placeholder((4, 3), D, name="head")
    [solved], [dx] = solve_masks([o]), differentiate(o, [x], head)
    assert estimate_cost(solved).iterations == 12 * 6
    values = np.random.default_rng(0).integers(0, 3, (8, 9)).astype(D)
    heads = np.arange(1.0, 13).reshape(4, 3)
    want = np.zeros((8, 9))
    for i in range(4):
        for j in range(3):
            block = values[2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
            first = np.unravel_index(block.argmax(), (2, 3))
            want[2 * i + first[0], 3 * j + first[1]] += heads[i, j]
    got = evaluate_graph([solved, dx], {x: values, head: heads}, strict=True)
    np.testing.assert_array_equal(got[0], values.reshape(4, 2, 3, 3).max(axis=(1, 3)))
    np.testing.assert_array_equal(got[1], want)


def gradient_of_maxima(x, head, condition, otherwise, sign):
    """The cotangents of the elements, at the first best one of those that count; a number that is
    written beside them and is as good precedes it.
    """
    found = np.zeros_like(x)
    for (i, j), value in np.ndenumerate(head):
        here = [k for k in range(x.shape[1]) if condition(k, j)]
        best = max(here, key=lambda k: (sign * x[i, k], -k), default=None)
        if best is not None and sign * x[i, best] > sign * otherwise:
            found[i, best] += value
    return found


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("reducer", ["max", "min", "max with -1e30", "max with zero", "chosen"])
def test_gradients_of_extremes(condition, reducer):
    holds, count, points = CONDITIONS[condition]
    combine, _, _, otherwise = REDUCERS[reducer]
    sign = -1 if reducer == "min" else 1
    x, o = dense(combine, holds, count, otherwise)
    head = te.placeholder((ROWS, count), D, name="head")
    direction = te.placeholder((ROWS, PLACES), D, name="direction")
    [dx], [dy] = differentiate(o, [x], head), jvp(o, [x], [direction])
    values, heads = numbers(), np.arange(1.0, ROWS * count + 1).reshape(ROWS, count)
    want = gradient_of_maxima(values, heads, holds, otherwise, sign)
    directions = np.arange(1.0, values.size + 1).reshape(values.shape)
    got = evaluate_graph([dx, dy], {x: values, head: heads, direction: directions}, strict=True)
    np.testing.assert_array_equal(got[0], want)
    assert (got[0] * directions).sum() == (got[1] * heads).sum()
    np.testing.assert_array_equal(run([x, head], [dx], [values, heads])[0], want)
    most = 3 * ROWS * PLACES * (points or 1)  # values or winners, and the sums over windows
    assert estimate_cost(dx).iterations <= most
    assert estimate_cost(dy).iterations <= most


@pytest.mark.parametrize("reducer", ["max", "prod", "compounded"])
@pytest.mark.parametrize("condition", ["blocks by bounds", "a window before", "a few elements"])
def test_derivatives_against_differences(condition, reducer):
    holds, count, _ = CONDITIONS[condition]
    combine, _, _, otherwise = REDUCERS[reducer]
    x, o = dense(combine, holds, count, otherwise)
    counts = lambda value: te.if_then_else(value > -1e3, value * value, 0.0)  # noqa: E731
    squared = te.compute(o.shape, lambda i, j: counts(o[i, j]))
    check_grads(squared, [x], ["reverse", "forward"], order=2)


def test_overrides_name_the_stage_as_written():
    holds, count, _ = CONDITIONS["blocks by a quotient"]
    x, o = dense(te.max, holds, count, -np.inf)
    y = te.compute(o.shape, lambda i, j: o[i, j] * 2.0, name="y")
    head = te.placeholder(o.shape, D, name="head")

    def everywhere(out, deps, cotangent):
        return [te.compute(x.shape, lambda i, k: cotangent[i, k // 4])]

    [dx] = differentiate(y, [x], head, override={o: ([x], everywhere)})
    heads = np.arange(1.0, ROWS * count + 1).reshape(ROWS, count)
    [got] = evaluate_graph([dx], {x: numbers(), head: heads})
    np.testing.assert_array_equal(got, 2 * heads.repeat(4, axis=1))
    both = ad.differentiate(y, [x, o], head)
    [do] = evaluate_graph([both.adjoints[o]], {x: numbers(), head: heads})
    np.testing.assert_array_equal(do, 2 * heads)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("reducer", [te.sum, te.max])
def test_an_output_that_is_an_input_is_written(shape, reducer):
    """A single point of a reduction is left, an element of the input."""
    x, k = te.placeholder(shape, "float64", "x"), te.reduce_axis((0, 2), "k")
    y = te.compute(shape, lambda *i: reducer(x(*i), axis=k, where=tirx.EQ(k.var, 1)), name="y")
    given, out = np.full(shape, 5.0), np.zeros(shape)
    ad.build([x], y, cache=False)(given, out=out)
    np.testing.assert_array_equal(out, given)


def test_loops_that_follow_their_guards_are_no_other_form_of_the_box():
    """The derivative of a ragged product is that of a box with guards, which ends."""
    x, k = te.placeholder((5,), D, "x"), te.reduce_axis((1, 18), "k")

    def element(i):
        counts = (i - k.var) % 4 == k.var
        return PROD(te.if_then_else(counts, x[i], tirx.const(1.0, D)), axis=k)

    y = te.compute((5,), element, name="y")
    check_grads(y, x)
