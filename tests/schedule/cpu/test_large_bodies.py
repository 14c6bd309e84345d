"""Bodies that are too large for TVM's passes run in vectors: elementwise, reduced, several in one
pass.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from tvm import te, tirx

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.fusion.test_groups import groups_of
from tests.schedule.test_rules import check, rules_of
from tvm_autodiff import build, differentiate, scatter_add
from tvm_autodiff.expr.rewrite import expand_lets, postorder
from tvm_autodiff.schedule.cpu.elementwise import joined_maps
from tvm_autodiff.schedule.cpu.stored_terms import stored_part, stored_terms
from tvm_autodiff.schedule.declined import Cause, Declined
from tvm_autodiff.schedule.fusion.added_scatters import AddedScatters
from tvm_autodiff.schedule.kernel import Kernel, too_large

product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")


def doubled(value, times=10):
    """A value whose graph has so many nodes, and whose tree 2 to so many."""
    for number in range(times):
        value = (value * 0.5 + value * value * 0.25) - float(number % 2)
    return value


def mapped(*shape):
    x = cases.placeholder("x", *shape)
    return [x], te.compute(shape, lambda *i: doubled(x(*i)), name="y")


def clamped(n):
    """Neighbours up to four away, clamped: nine pieces of the loop."""
    x = cases.placeholder("x", n)
    reads = lambda i: sum(x[te.max(te.min(i + k, n - 1), 0)] for k in range(-4, 5))  # noqa: E731
    return [x], te.compute((n,), lambda i: doubled(reads(i) * 0.125), name="y")


def wide(value):
    """Many operations on a value, none of which occurs twice."""
    return sum(te.max(value, te.const(number / 64 - 2, "float32")) for number in range(400))


def unshared(n):
    x = cases.placeholder("x", n)
    return [x], te.compute((n,), lambda i: wide(x[i]), name="y")


def summed(n, m, epilogue=False):
    x, k = cases.placeholder("x", n, m), cases.axis(m)
    total = te.compute((n,), lambda i: te.sum(wide(x[i, k]), axis=k), name="total")
    return [x], te.compute((n,), lambda i: total[i] * 0.5, name="y") if epilogue else total


def columns(n, m):
    x, k = cases.placeholder("x", m, n), cases.axis(m)
    return [x], te.compute((n,), lambda i: te.max(wide(x[k, i]), axis=k), name="total")


def apart(n, m):
    """Reads along columns, at what data say, and along rows, in one body."""
    x, y = cases.placeholder("x", m, n), cases.placeholder("y", n, m)
    at = cases.placeholder("at", m, dtype="int32")
    read = lambda i, j: x[j, i] * y[i, te.min(te.max(at[j], 0), m - 1)] + y[i, j]  # noqa: E731
    return [x, y, at], te.compute((n, m), lambda i, j: doubled(read(i, j)), name="z")


def springs(n, m, neighbours=16):
    """Forces of points of three components on their neighbours, by components."""
    x = cases.placeholder("x", n, m, 3)

    def force(i, j, c, far):
        apart = [x[i, j + far, d] - x[i, j, d] for d in range(3)]
        length = te.sqrt(sum(one * one for one in apart) + 1e-6)
        return [
            te.if_then_else(te.all(c == d, j + far < m), one * (1.0 - 1.0 / length), 0.0)
            for d, one in enumerate(apart)
        ]

    def total(i, j, c):
        return sum(one for far in range(1, neighbours) for one in force(i, j, c, far))

    return [x], te.compute((n, m, 3), total, name="y")


TAKEN = {
    "a map": (mapped(100), "windows"),
    "a map of rows": (mapped(3, 37), "windows"),
    "clamped": (clamped(50), "windows"),
    "reads that lie apart": (apart(7, 37), "windows"),
    "forces by components": (springs(3, 500), "stored_part"),
    "a sum of rows": (summed(6, 33), "stored_terms"),
    "a sum and its epilogue": (summed(6, 33, epilogue=True), "stored_terms"),
    "a maximum of columns": (columns(20, 7), "stored_terms"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name):
    case, rule = TAKEN[name]
    assert too_large(Kernel(case[1].op)) is not None or "epilogue" in name
    assert rules_of(case[1]) == [rule]
    check(case, tolerance=1e-5)


def test_only_large_expressions_have_parts():
    small = springs(3, 500, neighbours=3)[1]
    declined = stored_part(Kernel(small.op), avx512(1))
    assert isinstance(declined, Declined)
    assert declined.reason == "its expression is small"
    assert declined.cause == Cause.OTHER_KIND  # no reason for plain loops
    for elements, taken in (5000, True), (16, True), (15, False):
        choice = mapped(elements)[1]
        parts = stored_part(Kernel(choice.op), avx512(1))
        assert isinstance(parts, Declined) != taken


def test_parts_are_no_larger_than_the_whole():
    """Guards of reads that need none made parts of 27,000 nodes out of 400, again and again: the
    loss of the best of five matchings of three speakers was never built.
    """
    score = cases.placeholder("score", 16, 3, 3)

    def best(b):
        total = lambda order: sum(score[b, n, m] for n, m in enumerate(order))  # noqa: E731
        return reduce(te.max, map(total, [*itertools.permutations(range(3))][:5]))

    loss = te.compute((16,), best, name="loss")
    [gradient] = differentiate(loss, [score], cases.placeholder("head", 16))
    pending, count = [Kernel(gradient.op)], 0
    while pending:
        whole = pending.pop()
        parts = stored_part(whole, avx512(1))
        if isinstance(parts, Declined):
            continue
        pending += [part.kernel for part in parts]
        assert all(nodes(part.kernel) < nodes(whole) for part in parts)
        count += 1
    assert count > 1


def nodes(kernel):
    return len(postorder(expand_lets(kernel.root.body[0])))


@pytest.mark.slow
def test_what_is_not_shared_is_cut_too():
    case = unshared(9)
    assert too_large(Kernel(case[1].op)) is not None
    check(case, tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tvm_autodiff.errors.PlainScheduleWarning")
def test_branches_are_kept_where_there_are_no_vectors():
    """Each element needs one of twenty formulas, and rows of three have no vectors."""
    x = cases.placeholder("x", 9, 3)

    def entry(i, c, j):
        value = te.const(0.0, "float32")
        for place in range(20):
            value = te.if_then_else(c == place, doubled(x[i, j], 5) * float(place), value)
        return value

    y = te.compute((9, 20, 3), entry, name="y")
    assert too_large(Kernel(y.op)) is not None
    assert rules_of(y) == ["fallback"]
    check(([x], y), tolerance=1e-5)


def test_terms_are_stored_within_the_last_cache():
    small = replace(avx512(1), last_cache_bytes=1024)
    declined = stored_terms(Kernel(summed(64, 64)[1].op), small)
    assert isinstance(declined, Declined)
    assert declined.reason == "its terms take more than the last cache"


def updates(n, m, work=5):
    """Three columns of a gradient, from values that are read by index."""
    at, x = cases.placeholder("at", n, dtype="int32"), cases.placeholder("x", m, 3)
    value = lambda i, c: doubled(x[te.max(at[i], 0), c], work)  # noqa: E731
    whole = lambda i: value(i, 0) + value(i, 1) * value(i, 2)  # noqa: E731
    column = [
        te.compute((n,), lambda i: whole(i) * value(i, c), name=f"u{c}")  # noqa: B023
        for c in range(3)
    ]
    parts = [scatter_add(one, at, (m,), name=f"s{c}") for c, one in enumerate(column)]
    return [at, x], te.compute((m,), lambda j: parts[0][j] + parts[1][j] - parts[2][j], name="y")


@pytest.mark.slow
def test_maps_that_share_work_run_in_one_pass():
    case = updates(40, 5)
    assert rules_of(case[1]).count("joined_maps") == 1
    check(case, tolerance=1e-5)


def test_maps_that_share_little_work_stay_apart():
    assert "joined_maps" not in rules_of(updates(40, 5, work=0)[1])


def test_a_map_of_what_another_one_computes_stays_behind_it():
    x = cases.placeholder("x", 90)
    first = te.compute((90,), lambda i: doubled(x[i]), name="first")
    k = cases.axis(90)
    total = te.compute((), lambda: te.sum(first[k], axis=k), name="total")
    second = te.compute((90,), lambda i: doubled(x[i]) * total(), name="second")
    y = te.compute((90,), lambda i: second[89 - i] + first[i], name="y")
    assert not [group for group in groups_of([y]) if not group.members]
    check(([x], y), tolerance=1e-5)


def test_the_pass_writes_each_map():
    groups = [group for group in groups_of([updates(40, 5)[1]]) if not group.members]
    [group] = [group for group in groups if not isinstance(group, AddedScatters)]
    [launch] = joined_maps(group, avx512(1))
    assert [tensor.op.name for tensor in launch.outputs] == ["u0", "u1", "u2"]


def test_terms_over_an_axis_of_one_element_need_no_sizes_at_the_call():
    """The extents of what is stored hold no axis any more, and are literals."""
    x = te.placeholder((5,), "float64", "x")

    def entry(i, e):
        k = te.reduce_axis((0, te.max(e, 1 - e)), "k")
        m = te.reduce_axis((0, e + 1), "m")
        return product(te.min(x[4 - m], x[k + 3]), axis=[k, m], where=i + 3 > e)

    y = te.compute((4, 1), entry, name="y")
    head = te.placeholder((4, 1), "float64", "head")
    step = build([x, head], [y, *differentiate(y, [x], head)], cache=False)
    value, slope = step(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.full((4, 1), 2.0))
    np.testing.assert_array_equal(value, np.full((4, 1), 4.0))
    np.testing.assert_array_equal(slope, [0.0, 0.0, 0.0, 8.0, 0.0])
