"""Reductions along columns of any extent, and under conditions on them."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check
from tvm_autodiff.schedule.cpu.loops.column_axis import vector_columns
from tvm_autodiff.schedule.cpu.loops.columns import columns
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.rewrites.normal_form import normal_form


def reduced_columns(kernel, machine):
    found = vector_columns(kernel, machine.lanes(*kernel.dtypes))
    return found if isinstance(found, Declined) else columns(found, machine)


product = te.comm_reducer(lambda a, b: a * b, lambda kind: tirx.const(1, kind), name="product")


def guarded(
    columns, terms, condition, index, reduce=te.sum, other=0.0, width=None, dtype="float32"
):
    """``S[i, j] = ⊕_k if condition(i, j, k) then X[i, index(j, k)] else other``."""
    X = cases.placeholder("X", 3, width or columns, dtype=dtype)
    k = te.reduce_axis((0, terms), "k")

    def body(i, j):
        value = X[i, index(j, k)]
        if condition is not None:
            value = tirx.if_then_else(condition(i, j, k), value, tirx.const(other, dtype))
        return reduce(value, axis=k)

    return [X], te.compute((3, columns), body, name="S")


def spread(columns, terms, **options):
    """The gradient of a moving sum."""
    last = columns - terms
    return guarded(
        columns,
        terms,
        lambda i, j, k: tirx.all(k <= j, j <= k + last),
        lambda j, k: j - k,
        width=last + 1,
        **options,
    )


def boxes(size):
    """The gradient of sums over boxes of 5 x 5, of values that are rounded up at the end."""
    X, Y = cases.placeholder("X", size - 4, size - 4), cases.placeholder("Y", size, size)
    k, m = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 5), "m")

    def body(i, j):
        inside = tirx.all(k <= i, i <= k + size - 5, m <= j, j <= m + size - 5)
        value = X[i - k, j - m] * Y[i, j]
        return te.sum(tirx.if_then_else(inside, value, 0.0), axis=[k, m])

    S = te.compute((size, size), body, name="S")
    return [X, Y], te.compute((size, size), lambda i, j: S[i, j] * 2.0 + Y[i, j], name="T")


def dilated(size, edge):
    """A maximum over a clamped window, to which something is added."""
    X, W = cases.placeholder("X", size), cases.placeholder("W", edge)
    k = te.reduce_axis((0, edge), "k")
    place = lambda j: tirx.max(tirx.min(j - edge // 2, size - 1), 0)  # noqa: E731
    return [X, W], te.compute((size,), lambda j: te.max(X[place(j + k)] - W[k], axis=k), name="S")


CASES = {
    "a moving sum": spread(99, 20),
    "of float64": spread(75, 18, dtype="float64"),
    "a product": spread(70, 17, reduce=product, other=1.0, dtype="float64"),
    "boxes": boxes(41),
    "a clamped window": dilated(83, 21),
    "no conditions": guarded(67, 19, None, lambda j, k: j + k, width=90),
    "less and greater": guarded(
        50, 17, lambda i, j, k: tirx.all(k < j, 49 - j > k), lambda j, k: j - k + 3, width=60
    ),
    "an axis before": guarded(
        37, 18, lambda i, j, k: tirx.all(k > i, j + k >= 18), lambda j, k: j + k - 18
    ),
    "every second": guarded(
        90, 18, lambda i, j, k: tirx.all(2 * k <= j, tirx.NE(j, 3)), lambda j, k: j - 2 * k
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    check(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_middle_has_vectors(name):
    [kernel] = separate(normal_form([CASES[name][1]]))[0]
    made = reduced_columns(kernel, avx512(1))
    assert not isinstance(made, Declined)
    assert "T.vectorized(16)" in str(made.func) or "T.vectorized(8)" in str(made.func)


n = te.var("n")


def weighted(terms, columns, reduce=te.sum, dtype="float32"):
    """Few results, whose vectors would wait for each other."""
    X = cases.placeholder("X", terms, columns, dtype=dtype)
    w = cases.placeholder("w", terms, dtype=dtype)
    k = te.reduce_axis((0, terms), "k")
    return [X, w], te.compute((columns,), lambda j: reduce(X[k, j] * w[k], axis=k), name="S")


#: case, how many sums of each result there are, the values of the symbolic size
COPIES = {
    "one vector": (weighted(64, 16), 4, (0,)),
    "a rest": (weighted(67, 16), 4, (0,)),
    "half a vector": (weighted(64, 8), 4, (0,)),
    "two vectors": (weighted(65, 32), 2, (0,)),
    "two vectors of float64": (weighted(65, 16, dtype="float64"), 2, (0,)),
    "maxima": (weighted(64, 16, te.max), 4, (0,)),
    "products": (weighted(64, 16, product), 4, (0,)),
    "vectors enough": (weighted(64, 64), 1, (0,)),
    "few terms": (weighted(9, 16), 1, (0,)),
    "any number of terms": (weighted(n, 16), 4, (0, 1, 3, 4, 5, 70)),
}


@pytest.mark.parametrize("name", COPIES)
def test_several_sums_of_few_results(name):
    """``acc += x[k]  →  acc0 += x[4*o]; .. acc3 += x[4*o + 3]``, then their sum."""
    case, copies, sizes = COPIES[name]
    [kernel] = separate(normal_form([case[1]]))[0]
    made = reduced_columns(kernel, avx512(1))
    assert not isinstance(made, Declined)
    text = str(made.func)
    assert (f"T.unroll({copies})" in text) if copies > 1 else "copy" not in text
    for size in sizes:
        check(case, {"n": size})


def test_short_rows_are_left_to_others():
    [kernel] = separate(normal_form([spread(20, 17)[1]]))[0]
    assert isinstance(reduced_columns(kernel, avx512(1)), Declined)
