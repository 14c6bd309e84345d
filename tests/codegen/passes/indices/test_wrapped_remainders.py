"""Remainders by powers of two: LLVM compiled the programs of this table wrongly."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.codegen.passes.indices.wrapped_remainders import choose_remainders
from tvm_autodiff.expr.nodes import op_name
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
