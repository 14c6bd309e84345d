"""Read sites: conditions on indices, paths that are joined, and what is refused."""

from __future__ import annotations

import pytest
from tvm import te
from tvm.script.ir_builder import IRBuilder, tirx as T

import tvm_autodiff as ad
from tvm_autodiff.sparse.sites import read_sites

F64 = "float64"
X = te.placeholder((8,), F64, name="x")
W = te.placeholder((8,), F64, name="w")
INDEX = te.placeholder((8,), "int32", name="index")
ZERO = te.const(0.0, F64)


def lines(body, shape=(8,)) -> list[str]:
    stage = te.compute(shape, body, name="y")
    return [site.text("y") for site in read_sites(stage, [X])]


def windows():
    k = te.reduce_axis((0, 3), "k")
    return lines(lambda i: te.sum(X[i + k] * W[k], axis=k), (6,))


def begun_with_another():
    k = te.reduce_axis((0, 3), "k")
    return lines(lambda i: te.sum(X[i + k], axis=k, where=i < 2, init=X[i]), (6,))


TABLE = {
    "once for equal reads": (lambda: lines(lambda i: X[i] * X[i] + X[i]), ["y[i] reads x[i]"]),
    "constants of others": (lambda: lines(lambda i: W[i] * 2.0), []),
    "no derivative": (lambda: lines(lambda i: te.floor(X[i]) + W[i]), []),
    "comparisons": (lambda: lines(lambda i: te.if_then_else(X[i] > 0.0, W[i], ZERO)), []),
    "reduce axes": (windows, ["y[i] reads x[i + k] for k < 3"]),
    "an initial value under no condition": (
        begun_with_another, ["y[i] reads x[i + k] for k < 3 where i < 2", "y[i] reads x[i]"],
    ),
    "a branch": (
        lambda: lines(lambda i: te.if_then_else(i < 3, X[i], X[i - 3])),
        ["y[i] reads x[i] where i < 3", "y[i] reads x[i - 3] where i >= 3"],
    ),
    "data decide": (
        lambda: lines(lambda i: te.if_then_else(te.all(W[i] > 0.0, i < 3), X[i], ZERO)),
        ["y[i] reads x[i] where i < 3"],
    ),
    "a weaker condition": (
        lambda: lines(lambda i: te.if_then_else(i < 3, X[i], ZERO) + X[i]),
        ["y[i] reads x[i]"],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_sites(name: str) -> None:
    found, wanted = TABLE[name]
    assert found() == wanted


def test_many_paths_keep_what_they_share() -> None:
    def body(i):
        value = ZERO
        for bound in range(1, 7):
            value = value + te.if_then_else(i != bound, X[i], ZERO)
        return te.if_then_else(i < 7, value, ZERO)

    assert lines(body) == ["y[i] reads x[i] where i < 7"]


def test_components_read_what_they_read() -> None:
    a, b = te.compute((8,), lambda i: (X[i] * 2.0, W[i] * 3.0), name="y")
    assert [site.text("a") for site in read_sites(a, [X, W])] == ["a[i] reads x[i]"]
    assert [site.text("b") for site in read_sites(b, [X, W])] == ["b[i] reads w[i]"]


def gathered():
    return te.compute((8,), lambda i: X[INDEX[i]], name="y")


def jagged():
    def row(i):
        k = te.reduce_axis((0, INDEX[i]), "k")
        return te.sum(X[k], axis=k)

    return te.compute((8,), row, name="y")


def extern():
    def body(ins, outs):
        with IRBuilder() as builder, T.serial(0, 8) as i:
            T.buffer_store(outs[0], ins[0][i], [i])
        return builder.get()

    return te.extern([(8,)], [X], body, name="y", dtype=[F64])


REFUSED = {
    "a place": (gathered, r"stage y reads x\[index\[i\]\], at an index that is data"),
    "a range": (jagged, r"sums k over a range that is data, index\[i\]"),
    "a scatter": (lambda: ad.scatter_add(X, INDEX, (8,)), "is a ScatterAdd stage: its pattern"),
    "an extern": (extern, "is a Opaque stage: its pattern"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ad.NotDifferentiableError, match=message):
        ad.sparsity(make(), X)
