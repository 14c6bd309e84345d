"""Which functions may write their result over an input, from the accesses of their blocks."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir, te
from tvm.script import tirx as T

from tvm_autodiff.codegen.passes.in_place import may_share, shared

A = te.placeholder((8, 8), name="A")


def stage(body):
    return te.create_prim_func([A, te.compute((8, 8), body, name="B")])


def tiled():
    schedule = s_tir.Schedule(stage(lambda i, j: A[i, j] * 2.0))
    i, j = schedule.get_loops(schedule.get_sblock("B"))
    outer, inner = schedule.split(j, [None, 3])
    schedule.reorder(outer, i, inner)
    schedule.parallel(outer)
    return schedule.mod["main"]


def row_sum():
    k = te.reduce_axis((0, 8), "k")
    return stage(lambda i, j: te.sum(A[i, k] * A[i, j], axis=k))


def two_stages(second):
    first = te.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="first")
    return te.create_prim_func([A, te.compute((8, 8), second(first), name="B")])


@T.prim_func(private=True, s_tir=True)
def without_blocks(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = A[7 - i]


@T.prim_func(private=True, s_tir=True)
def read_outside_too(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((1,), "float32")
    for i in range(8):
        C[0] = A[7 - i]
        with T.sblock("B"):
            v = T.axis.spatial(8, i)
            T.reads(A[v])
            T.writes(B[v])
            B[v] = A[v] + C[0]


CASES = [
    ("here", lambda: stage(lambda i, j: A[i, j] + 1.0), True),
    ("here twice", lambda: stage(lambda i, j: A[i, j] * A[i, j]), True),
    ("guarded", lambda: stage(lambda i, j: te.if_then_else(i > 3, A[i, j], 0.0)), True),
    ("tiled", tiled, True),
    ("transposed", lambda: stage(lambda i, j: A[j, i]), False),
    ("shifted", lambda: stage(lambda i, j: A[i, (j + 1) % 8]), False),
    ("here and elsewhere", lambda: stage(lambda i, j: A[i, j] + A[0, j]), False),
    ("reduced", row_sum, False),
    ("copied before", lambda: two_stages(lambda f: lambda i, j: f[i, j] + A[i, j]), False),
    ("not read where written", lambda: two_stages(lambda f: lambda i, j: f[j, i]), False),
    ("no blocks", lambda: without_blocks, False),
    ("outside of its block", lambda: read_outside_too, False),
]


@pytest.mark.parametrize(("make", "verdict"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_may_share(make, verdict):
    func = make()
    assert may_share(func, func.params[0], func.params[1]) is verdict


@pytest.mark.parametrize("make", [c[1] for c in CASES if c[2]], ids=[c[0] for c in CASES if c[2]])
def test_shared_function_gives_the_same(make):
    func = make()
    one = shared(func, func.params[0], func.params[1]).with_attr("global_symbol", "main")
    x = tvm.runtime.tensor(np.arange(64, dtype="float32").reshape(8, 8))
    want = tvm.runtime.empty((8, 8))
    tvm.compile(func.with_attr("global_symbol", "main"), target="llvm")["main"](x, want)
    tvm.compile(one, target="llvm")["main"](x)
    np.testing.assert_array_equal(x.numpy(), want.numpy())
