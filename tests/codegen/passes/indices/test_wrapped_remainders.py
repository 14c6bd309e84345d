"""Remainders by powers of two: LLVM compiled the programs of this table wrongly."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import te
from tvm.ir import prim

import tvm_autodiff as ad
from tvm_autodiff.codegen.loop_nest import SERIAL, VECTORIZED, Places, counter, function, loop
from tvm_autodiff.codegen.passes.indices.wrapped_remainders import choose_remainders
from tvm_autodiff.expr.nodes import load, op_name
from tvm_autodiff.expr.rewrite import contains

#: shape of x, and what is read for i, j
READS = [
    ((16, 16), [("i", "j + 15"), ("i + 1", "j + 15"), ("i + 15", "j + 15"), ("i", "j + 14")]),
    ((32, 128), [("i + 20", "j + 38 + i"), ("i + 13", "j + 75"), ("i + 13", "j*3 + 8")]),
    ((16, 8), [("i*2 + 12", "j*3 + i"), ("i + 9", "j + 1"), ("i*2 + 4", "j")]),
    ((8, 128), [("i*2 + 5", "j + 76"), ("i + 6", "j*2 + 21"), ("i + 3", "j + 64"),
                ("i*2 + 5", "j*2 + 100 + i")]),
    ((16, 16), [("i", "31 - j"), ("i + 1", "15 - j*2"), ("i + 15", "3 - j"), ("i + 3", "j")]),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "reads"), READS, ids=str)
def test_values(shape, reads):
    def total(x, i, j):
        places = [(eval(a, {"i": i}), eval(b, {"i": i, "j": j})) for a, b in reads]
        return sum(x[a % shape[0], b % shape[1]] * (n + 1) for n, (a, b) in enumerate(places))

    x = te.placeholder(shape, name="x")
    y = te.compute(shape, lambda i, j: total(x, i, j), name="y")
    given = np.random.default_rng(0).integers(-9, 10, shape).astype("float32")
    got = ad.build(x, y, num_threads=1, cache=False)(given)
    np.testing.assert_array_equal(got, total(given, *np.indices(shape)))


FORMS = [
    (lambda i: (i + 3) % 8, False),  # a choice
    (lambda i: (i * 5 + 3) % 16, False),  # a product and a shift
    (lambda i: (i + 3) % 7, True),
    (lambda i: i % 8, True),  # it does not wrap
    (lambda i: i % 4, True),  # where a schedule splits the loop
]


@pytest.mark.parametrize(("index", "stays"), FORMS)
def test_forms(index, stays):
    x = te.placeholder((16,), name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[index(i)], name="y")])
    made = choose_remainders(func, lambda var: (0, 7))
    [place] = made.body.block.body.body.block.body.value.indices
    assert contains(place, lambda node: op_name(node) == "floormod") == stays


def nested(kinds):
    """``for ...: y[...] = x[first % 4]`` in loops of some kinds and extents, outermost first."""
    loops = [(counter(name, extent), kind, extent) for name, (kind, extent) in kinds.items()]
    x = te.placeholder((4,), name="x")
    y = te.placeholder([extent for *_, extent in loops], name="y")
    places, buffers = Places.of([x, y])
    first, here = loops[0][0], [var for var, *_ in loops]
    body = places.write(y, places.read(load(x, [first % 4])), here)
    for var, kind, extent in reversed(loops):
        body = loop(var, extent, body, kind)
    return function(buffers, body)


#: loops → whether the remainder of the outermost stays
LOOPS = {
    "LLVM may make vectors of it": ({"i": (SERIAL, 16)}, False),
    "a short loop in it": ({"i": (SERIAL, 16), "k": (SERIAL, 99)}, False),
    "a long loop in it": ({"i": (SERIAL, 16), "k": (SERIAL, 999)}, True),
    "vectors in it": ({"i": (SERIAL, 16), "l": (VECTORIZED, 8)}, True),
    "a vector": ({"l": (VECTORIZED, 16)}, True),
}


@pytest.mark.parametrize("name", LOOPS)
def test_remainders_of_a_loop(name):
    kinds, stays = LOOPS[name]
    made = choose_remainders(nested(kinds), lambda var: (0, 15))
    found = []
    tvm_ffi.structural_walk(made.body, (prim.FloorMod, found.append))
    assert bool(found) == stays


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_maximum_over_windows_of_a_flat_place(dtype):
    """Its gradient reads at ``i % 4 - p``, which LLVM took for a run of memory."""
    a, b = te.placeholder((5, 16), dtype, name="a"), te.placeholder((3, 2), dtype, name="b")
    m, p = te.reduce_axis((0, 3), "m"), te.reduce_axis((0, 2), "p")

    def body(i, j, k):
        place = (i * 4 + j + m) * 4 + k + p
        return te.max(a[place // 16, place % 16] * b[m, p], axis=[m, p])

    y = te.compute((5, 2, 3), body, name="y")
    head = te.placeholder(y.shape, dtype, name="head")
    [da] = ad.differentiate(y, [a], head)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype(dtype) for shape in ((5, 16), (3, 2), (5, 2, 3))]
    [got] = ad.build([a, b, head], [da], cache=False)(*values)
    wanted = np.zeros((5, 16))
    for i, j, k in np.ndindex(5, 2, 3):
        terms = {
            (m, p): values[0].ravel()[(i * 4 + j + m) * 4 + k + p] * values[1][m, p]
            for m, p in np.ndindex(3, 2)
        }
        m, p = max(terms, key=lambda place: terms[place])
        wanted.ravel()[(i * 4 + j + m) * 4 + k + p] += values[2][i, j, k] * values[1][m, p]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_stride_with_a_remainder():
    """LLVM read ``w[2*i - i % 4]`` as every second row, beside a choice that is never taken."""
    x, w = (te.placeholder((3, 80, 2), name=name) for name in "xw")
    b = te.reduce_axis((0, 3), "b")

    def body(i):
        place, never = i * 2 - i % 4, 7 - (i * 6 + i % 4 + 3) % 8 < 4
        other = te.if_then_else(never, place + 4, place) + 4
        return te.sum(w[b, place + 4, 1] * x[b, other, 1], axis=b)

    y = te.compute((32,), body, name="y")
    rng, i = np.random.default_rng(0), np.arange(32)
    values = [rng.integers(-9, 9, (3, 80, 2)).astype("float32") for _ in "xw"]
    place = i * 2 - i % 4 + 4
    wanted = (values[0][:, place, 1] * values[1][:, place, 1]).sum(0)
    np.testing.assert_array_equal(ad.build([x, w], [y], cache=False)(*values)[0], wanted)
