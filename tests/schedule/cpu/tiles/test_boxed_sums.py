"""Sums whose bounds vary along the output, taken over boxes."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tests.machines import synthetic
from tests.schedule.guard_pages import at_a_guard
from tvm_autodiff import build
from tvm_autodiff.codegen.stages.primfunc import StageFunction
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.schedule.cpu.ragged import ragged
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.sums.boxed import boxed

ROWS, COLUMNS, DEPTH = 96, 80, 112
AVX512 = synthetic("AVX-512", 1)

#: name → the first k, the end, the indices of x; reads lie inside of x within the bounds only
BOUNDS = {
    "to a column": (lambda i, j: 0, lambda i, j: j + 1, lambda i, j, k: (i, k)),
    "from a column to a row": (lambda i, j: j, lambda i, j: i + 1, lambda i, j, k: (i, k)),
    "from a column on": (lambda i, j: j, lambda i, j: DEPTH, lambda i, j, k: (i, k)),
    "half of a column": (lambda i, j: j // 2, lambda i, j: j + 9, lambda i, j, k: (i, k)),
    "to the lesser": (lambda i, j: 0, lambda i, j: te.min(i, j) + 1, lambda i, j, k: (i, k)),
    "triangle stored at its end": (
        lambda i, j: 0, lambda i, j: j + 1, lambda i, j, k: (i, k + COLUMNS - 1 - j)
    ),
}  # fmt: skip


def product(name, reduce=te.sum, turned=False):
    first, end, places = BOUNDS[name]
    x = te.placeholder((ROWS, DEPTH), "float32", name="x")
    y = te.placeholder((COLUMNS, DEPTH) if turned else (DEPTH, COLUMNS), "float32", name="y")

    def body(i, j):
        k = te.reduce_axis((first(i, j), end(i, j)), "k")
        return reduce(x[places(i, j, k)] * (y[j, k] if turned else y[k, j]), axis=k)

    return x, y, te.compute((ROWS, COLUMNS), body, name="z")


def values(x, y):
    rng = np.random.default_rng(0)
    return [rng.standard_normal([int(n) for n in t.shape]).astype("float32") for t in (x, y)]


def number(bound):
    return int(getattr(bound, "value", bound))


@functools.cache
def wanted(name):
    """The sums of `values`, one element after the other."""
    first, end, places = BOUNDS[name]
    left, right = values(*product(name)[:2])
    found = np.zeros((ROWS, COLUMNS))
    for i, j in itertools.product(range(ROWS), range(COLUMNS)):
        for k in range(number(first(i, j)), number(end(i, j))):
            found[i, j] += float(left[places(i, j, k)]) * right[k, j]
    return found


@pytest.mark.parametrize("name", BOUNDS)
def test_a_box_has_the_same_sums_and_reads_within_the_bounds(name):
    x, y, z = product(name)
    whole = boxed(Kernel(z.op))
    given = values(x, y)
    [got] = evaluate_graph(whole.outputs, list(zip((x, y), given, strict=True)), strict=True)
    np.testing.assert_allclose(got, wanted(name), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", BOUNDS)
def test_compiled_with_an_epilogue(name, threads):
    x, y, z = product(name)
    out = te.compute(z.shape, lambda i, j: te.max(z[i, j], 0.0) * 2.0, name="out")
    function = build([x, y], out, num_threads=threads, cache=False)
    want = np.maximum(wanted(name), 0) * 2
    for place in ("begin", "end"):
        got = function(*(at_a_guard(array, place) for array in values(x, y)))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=place)


@pytest.mark.parametrize("name", ["to a column", "from a column to a row"])
def test_large_ones_are_left_to_the_rules_for_boxes(name):
    [rest] = ragged(Kernel(product(name)[2].op), AVX512)
    assert not isinstance(rest, StageFunction)
    assert [tensor_key(t) for t in rest.kernel.outputs] != [tensor_key(product(name)[2])]


def triangle(n, width=None, jagged=False):
    a, b = (te.placeholder((n, n), "float32", name=name) for name in "ab")
    lengths = te.placeholder((n,), "int32", name="lengths")

    def body(i, j):
        low = 0 if width is None else te.max(j - width, 0)
        k = te.reduce_axis((low, lengths[i] if jagged else j + 1), "k")
        return te.sum(a[i, k] * b[k, j], axis=k)

    return Kernel(te.compute((n, n), body, name="c").op)


#: name → the kernel, whether math is exact, why it keeps its bounds
KEPT = {
    "exact math": (lambda: triangle(256), True, "exact math"),
    "a narrow band": (lambda: triangle(4096, 2), False, "too much of its box"),
    "few terms": (lambda: triangle(8), False, "no large product"),
    "symbolic": (lambda: triangle(te.var("n")), False, "no constant bounds"),
}


@pytest.mark.parametrize("name", KEPT)
def test_the_others_keep_their_bounds(name):
    kernel, exact, reason = KEPT[name]
    found = ragged(kernel(), replace(AVX512, exact_math=exact))
    assert isinstance(found, Declined)
    assert reason in found.reason


def test_jagged_rows_have_no_box():
    assert boxed(triangle(64, jagged=True)) is None


def test_a_maximum_over_a_box():
    x, y, z = product("to a column", te.max)
    given = values(x, y)
    got = build([x, y], z, cache=False)(*given)
    terms = given[0][:, :, None] * given[1][None]
    below = np.arange(DEPTH)[None, :, None] <= np.arange(COLUMNS)
    np.testing.assert_allclose(got, np.where(below, terms, -np.inf).max(axis=1), rtol=1e-6)
