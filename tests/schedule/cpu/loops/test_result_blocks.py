"""Blocks of results that are reduced together: which results they hold, and their values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check, rules_of
from tvm_autodiff.schedule.cpu.contraction import contraction
from tvm_autodiff.schedule.cpu.loops.result_blocks import blocks_of
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.cpu.tiles.block_choice import best_block
from tvm_autodiff.schedule.fusion.row_kernels import lone_rows
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.operands.far_operands import over_copies_along
from tvm_autodiff.schedule.rule import apply_rules


def steps_of(case, threads=1):
    """The results of a block of a case's only stage along each output axis."""
    member = lone_rows(Kernel(case[1].op))
    found = None if member is None else best_block(member, avx512(threads))
    return None if found is None else found.steps


def pairs(n, m, k, term, reducer=te.sum, dtype="float32"):
    """``out[i, j] = ⊕_k term(x[i, k], y[j, k])``."""
    x, y = cases.placeholder("x", n, k, dtype=dtype), cases.placeholder("y", m, k, dtype=dtype)
    r = cases.axis(k)
    return [x, y], te.compute(
        (n, m), lambda i, j: reducer(term(x[i, r], y[j, r]), axis=r), name="out"
    )


def times(a, b):
    return a * b


def depthwise(n, c, h, w):
    """The gradient of the weights of a depthwise convolution."""
    x, g = cases.placeholder("x", n, c, h + 2, w + 2), cases.placeholder("g", n, c, h, w)
    b, y, z = cases.axis(n, "b"), cases.axis(h, "y"), cases.axis(w, "z")
    return [x, g], te.compute(
        (c, 3, 3),
        lambda f, r, s: te.sum(g[b, f, y, z] * x[b, f, y + r, z + s], axis=[b, y, z]),
        name="out",
    )


def at_data(n, m, k):
    """Products with rows that data choose, where these are inside of the table."""
    x, table = cases.placeholder("x", n, k), cases.placeholder("table", m, k)
    place, r = cases.placeholder("place", n, dtype="int32"), cases.axis(k)

    def body(i, j):
        row = place[i] + j
        inside = te.all(row >= 0, row < m)
        return te.sum(te.if_then_else(inside, x[i, r] * table[row, r], 0.0), axis=r)

    return [x, table, place], te.compute((n, 3), body, name="out")


def winners(n, m, k):
    """The greatest product of a row of `x` with one of `y`, and its first place."""
    x, y, r = cases.placeholder("x", n, k), cases.placeholder("y", m, k), cases.axis(k)

    def better(a, b):
        first = tirx.any(a[1] > b[1], tirx.all(a[1] == b[1], a[0] <= b[0]))
        return tirx.Select(first, a[0], b[0]), tirx.Select(first, a[1], b[1])

    argmax = te.comm_reducer(
        better, lambda t0, t1: (tirx.const(2**31 - 1, t0), te.min_value(t1)), name="argmax"
    )
    place, value = te.compute(
        (n, m), lambda i, j: argmax((r.var, x[i, r] * y[j, r]), axis=r), name="W"
    )
    return [x, y], te.compute((n, m), lambda i, j: place[i, j] + value[i, j], name="out")


def finished(n, m, k):
    """Products with a bias and a ramp."""
    [x, y], out = pairs(n, m, k, times)
    bias = cases.placeholder("bias", m)
    return [x, y, bias], te.compute(
        (n, m), lambda i, j: te.max(out[i, j] + bias[j], te.const(0.0, "float32")), name="ramp"
    )


EXACT = {
    "two columns": (pairs(100, 2, 256, times), (5, 2)),
    "three columns": (pairs(100, 3, 256, times), (5, 3)),
    "a remainder of rows": (pairs(101, 3, 256, times), (6, 3)),
    "a remainder of places": (pairs(100, 3, 251, times), (5, 3)),
    "weights of windows": (depthwise(2, 12, 20, 28), (1, 3, 3)),
    "distances": (pairs(100, 3, 256, lambda a, b: te.abs(a - b)), (4, 3)),
    "max-plus": (pairs(100, 3, 256, lambda a, b: a + b, te.max), (4, 3)),
    "float64": (pairs(100, 3, 256, times, dtype="float64"), (4, 3)),
}


@pytest.mark.parametrize("name", EXACT)
def test_blocks(name):
    case, steps = EXACT[name]
    assert steps_of(case) == steps
    assert rules_of(case[1]) == ["rows"]
    check(case)


@pytest.mark.parametrize(
    "case", [finished(400, 3, 256), finished(61, 5, 300), winners(200, 3, 64)], ids=str
)
def test_blocks_with_more_than_sums(case):
    check(case)


def scaled(n, m, k):
    """Products with a quotient: its scale and its reciprocal are numbers."""
    [x, y], _ = pairs(n, m, k, times)
    c, r, e = cases.placeholder("c"), cases.placeholder("r"), cases.axis(k)
    body = lambda i, j: te.sum(x[i, e] * c() * r() * y[j, e], axis=e)  # noqa: E731
    return [x, y, c, r], te.compute((n, m), body, name="out")


@pytest.mark.parametrize("make", [at_data, scaled])
def test_what_stays_as_it_is_written(make):
    """Guards of operands, and numbers whose product may be zero though each is not."""
    kernel = Kernel(make(101, 3, 17)[1].op)
    found = best_block(lone_rows(kernel), avx512())
    assert not found.are_single
    assert found.kernel is kernel


def test_factors_that_a_block_shares_are_multiplied_first():
    kernel = Kernel(cases.mttkrp(16, 12, 48, 4)[1].op)
    copies, whole = over_copies_along(kernel)
    found = best_block(lone_rows(whole), avx512())
    assert len(copies) == 1
    assert found.kernel is not whole


def test_each_result_of_a_block_has_its_place():
    case, steps = EXACT["a remainder of rows"]
    blocks = blocks_of(Kernel(case[1].op), steps)
    assert blocks.group.extents == (17, 1)
    assert blocks.places == tuple((0, (i, j)) for i in range(6) for j in range(3))
    assert not blocks.are_apart  # the last block begins at row 95
    assert [int(dim) for dim in blocks.group.outputs[0].shape] == [96, 1]


def test_the_last_block_ends_where_the_axis_does():
    inputs, output = EXACT["a remainder of rows"][0]
    text = ad.lower(inputs, output, {"kind": "llvm", "mcpu": "skylake-avx512"}).script()
    assert "T.min(" in text
    assert "writes_once" not in text


def test_symbolic_rows():
    """Blocks along the axes whose extents are numbers."""
    n = te.var("n")
    case = pairs(n, 4, 512, times)
    assert steps_of(case) == (1, 4)
    for size in (0, 1, 7, 300):
        check(case, {"n": size})


def test_operands_that_lie_across_are_copied():
    """``x[i, k]*w[k, j] → x[i, k]*p[j, k]``: one pass over `x`."""
    case = cases.matmul(3000, 3, 900, "nn")
    kernel = Kernel(case[1].op)
    [copy], whole = over_copies_along(kernel)
    assert [int(dim) for dim in copy.root.output(0).shape] == [3, 900]
    launches = contraction(kernel, avx512(1))
    assert [one.kernel.root.name for one in launches] == [copy.root.name, "C"]
    assert [one.rule for one in apply_rules(whole, avx512(1), CPU_RULES)] == ["rows"]
    check(case)


@pytest.mark.parametrize("exact", [False, True])
def test_exact_sums_are_added_up_in_their_order(exact):
    kernel = Kernel(cases.matmul(3000, 3, 900, "nn")[1].op)
    found = contraction(kernel, replace(avx512(1), exact_math=exact))
    assert any("in_order" in str(one.inputs) for one in found) is not exact


def test_large_products_stay_tiles():
    assert rules_of(cases.matmul(512, 512, 512, "nt")[1])[-1] == "contraction"


def test_rows_that_memory_feeds_are_read_one_by_one():
    """Blocks would wait for memory as well."""
    case = pairs(3000, 1, 3000, times)
    assert steps_of(case) == (1, 1)
    assert np.prod([int(dim) for dim in case[0][0].shape]) * 4 > avx512().cache_bytes
