"""Divisions by sizes under conditions: LLVM compiled these programs wrongly."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.ir import prim

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.codegen.loop_nest import PARALLEL, SERIAL
from tvm_autodiff.codegen.passes.indices.hoisted_divisions import with_hoisted_divisions


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(4, 3), (2, 5), (7, 4)])
def test_jacobians_read_their_rows(sizes, dtype):
    """``b[i % (2*h), i]`` under a condition that holds in other lanes than the first."""
    n, h = te.var("n"), te.var("h")
    a = te.placeholder((n, h), dtype, name="a")
    b = te.placeholder((h * 2, h), dtype, name="b")
    one, half = (tirx.const(value, dtype) for value in (1, 0.5))
    z = te.compute(
        (3,),
        lambda i: (
            te.if_then_else(i < h, b[i % (h * 2), i], one)
            * te.if_then_else(te.all(i <= n - 1, i >= 1, i * 2 - 2 <= h - 1), a[i, i * 2 - 2], half)
        ),
        name="z",
    )
    y = te.compute((n, n // 2), lambda p, q: z[1] * z[2], name="y")
    [da] = ad.differentiate(y, [a])
    rng = np.random.default_rng(0)
    given = [rng.integers(1, 9, shape).astype(dtype) for shape in (sizes, (2 * sizes[1], sizes[1]))]
    [wanted] = evaluate_graph([da], {a: given[0], b: given[1]}, {n: sizes[0], h: sizes[1]})
    np.testing.assert_array_equal(ad.build([a, b], da, cache=False)(*given), wanted)


#: kinds of the loops over i and j, the divisor, and how many loops are around the division then
FORMS = [
    ((SERIAL, SERIAL), lambda n, i, j: n, 0),
    ((PARALLEL, SERIAL), lambda n, i, j: n, 1),
    ((SERIAL, SERIAL), lambda n, i, j: n + i, 1),
    ((SERIAL, SERIAL), lambda n, i, j: n + j, 2),
    ((SERIAL, SERIAL), lambda n, i, j: tirx.const(7, "int32"), 2),  # LLVM divides anywhere by it
]


@pytest.mark.parametrize(("kinds", "divisor", "depth"), FORMS)
def test_forms(kinds, divisor, depth):
    n, i, j = (tirx.Var(name, "int32") for name in "nij")
    out = tirx.decl_buffer((100,), "int32", name="out")
    body = tirx.BufferStore(out, tirx.truncmod(n + 5, divisor(n, i, j)), [i + j])
    for var, kind in zip((j, i), reversed(kinds), strict=True):
        body = tirx.For(var, 0, 10, kind, body)
    module = tvm.IRModule({"main": tirx.PrimFunc([out, n], body)})
    assert depths(with_hoisted_divisions(module)["main"].body) == [depth]


def depths(body):
    """How many loops are around each division."""
    found = []
    tvm_ffi.structural_walk(body, (prim.Mod, lambda _: found.append(0)))
    loops = []
    tvm_ffi.structural_walk(body, (tirx.For, loops.append))
    for loop in loops:
        inside = []
        tvm_ffi.structural_walk(loop.body, (prim.Mod, inside.append))
        found[: len(inside)] = [depth + 1 for depth in found[: len(inside)]]
    return found


def test_nothing_divides_by_zero():
    """An index and a value, whose divisors vary with the loop."""
    n, i = tirx.Var("n", "int32"), tirx.Var("i", "int32")
    out = tirx.decl_buffer((100,), "uint32", name="out")
    value = tirx.truncmod(tirx.Cast("uint32", n + 5), tirx.Cast("uint32", i))
    stored = tirx.BufferStore(out, value, [tirx.truncmod(n, n - i)])
    loop = tirx.For(i, 0, 10, SERIAL, stored)
    changed = with_hoisted_divisions(tvm.IRModule({"main": tirx.PrimFunc([out, n], loop)}))
    found = []
    tvm_ffi.structural_walk(changed["main"].body, (prim.Mod, found.append))
    assert [type(division.b) for division in found] == [prim.Select] * 2
