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
from tvm_autodiff.codegen.loop_nest import PARALLEL, SERIAL, UNROLLED
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


def circular(length, dtype, place):
    """``Σ_{i <= t < n + i} h[t]·x[place(t)]``, whose loop over t LLVM unrolls."""
    n, q = te.var("n"), te.var("q")
    x = te.placeholder((q,), dtype, name="x")
    h = te.placeholder((length,), dtype, name="h")
    t, zero = te.reduce_axis((0, length), "t"), tirx.const(0, dtype)

    def entry(i):
        inside = te.all(t >= i, t < n + i)
        return te.sum(te.if_then_else(inside, h[t] * x[place(t, n)], zero), axis=t)

    extent = te.placeholder((n,), dtype, name="extent")
    return ad.build([x, h, extent], te.compute((n,), entry, name="s"), cache=False)


PLACES = {
    "remainder": lambda t, n: t % n,
    "next": lambda t, n: (t + 1) % n,
    "quotient": lambda t, n: t // n,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [5, 9, 15, 24])
@pytest.mark.parametrize("place", PLACES)
def test_short_sums_read_their_places(place, length, dtype):
    """The sum is unrolled and the loop around it vectorised: no place varies along that."""
    function = circular(length, dtype, PLACES[place])
    h, x = np.arange(1, length + 1).astype(dtype), np.arange(1, 32).astype(dtype)
    for n in (1, 4, 8, 9, 17):
        t, i = np.arange(length), np.arange(n)[:, None]
        terms = np.where((t >= i) & (t < n + i), h * x[[PLACES[place](k, n) for k in t]], 0)
        np.testing.assert_array_equal(function(x, h, np.zeros(n, dtype)), terms.sum(1))


@pytest.mark.parametrize(("stride", "length"), [(3, 5), (2, 7), (1, 9)])
def test_gradients_of_outer_products_by_rows(stride, length):
    """``s[i] = x[i // n]·x[i % n]``, of which a few are read."""
    n = te.var("n")
    x = te.placeholder((n,), "float32", name="x")
    h = te.placeholder((length,), "float32", name="h")
    s = te.compute((n * n,), lambda i: x[i // n] * x[i % n], name="s")
    y = te.compute((length,), lambda i: s[stride * i], name="y")
    [dx] = ad.differentiate(y, [x], h)
    function = ad.build([x, h], dx, cache=False)
    for size in (4, 8, 9, 16):
        values, heads = np.arange(1.0, size + 1), 2.0 ** np.arange(length)
        wanted = np.zeros(size)
        for number, head in enumerate(heads):
            row, column = divmod(stride * number, size)
            wanted[row] += head * values[column]
            wanted[column] += head * values[row]
        got = function(values.astype("float32"), heads.astype("float32"))
        np.testing.assert_array_equal(got, wanted)


#: kinds of the loops over i and j, the divisor, and how many loops are around the division then
FORMS = [
    ((SERIAL, SERIAL), lambda n, i, j: n, 0),
    ((PARALLEL, SERIAL), lambda n, i, j: n, 1),
    ((SERIAL, SERIAL), lambda n, i, j: n + i, 1),
    ((SERIAL, SERIAL), lambda n, i, j: n + j, 1),  # in a table, for all turns of j
    ((SERIAL, UNROLLED), lambda n, i, j: n + j, 2),
    ((SERIAL, SERIAL), lambda n, i, j: n + j + i, 2),
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
