"""Sums of products of integers in floats: equal for the largest numbers, and which stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.rewrites.contractions.integer_products import with_float_products


def wide(value: Any) -> Any:
    return value.astype("int32")


def tensor(name: str, dtype: str, *shape: int) -> Any:
    return te.placeholder(shape, dtype, name=name)


def product(left: str, right: str, terms: int, rows: int = 6, columns: int = 5) -> list[Any]:
    a, b = tensor("a", left, rows, terms), tensor("b", right, terms, columns)
    k = te.reduce_axis((0, terms), "k")
    body = lambda i, j: te.sum(wide(a[i, k]) * wide(b[k, j]), axis=k)  # noqa: E731
    return [a, b, te.compute((rows, columns), body, name="y")]


def convolution() -> list[Any]:
    x, w = tensor("x", "int8", 2, 70, 5, 5), tensor("w", "int8", 4, 70, 3, 3)
    return [x, w, topi.nn.conv2d_nchw(x, w, 1, 1, 1, out_dtype="int32")]


def guarded() -> list[Any]:
    a, b = tensor("a", "int8", 90, 90), tensor("b", "int8", 90, 90)
    k = te.reduce_axis((0, 90), "k")

    def body(i: Any, j: Any) -> Any:
        return te.sum(te.if_then_else(k <= i, wide(a[i, k]) * wide(b[k, j]), 0), axis=k)

    return [a, b, te.compute((90, 90), body, name="y")]


def squares() -> list[Any]:
    a, k = tensor("a", "int8", 60, 100), te.reduce_axis((0, 100), "k")
    body = lambda i: te.sum(wide(a[i, k]) * wide(a[i, k]), axis=k)  # noqa: E731
    return [a, te.compute((60,), body, name="y")]


#: the inputs and the output, and the extents of the sums of floats
CASES: dict[str, tuple[Callable[[], list[Any]], list[list[int]]]] = {
    "int8": (lambda: product("int8", "int8", 200), [[6, 5]]),
    "as many as are exact": (lambda: product("int8", "int8", 1024), [[6, 5]]),
    "one more": (lambda: product("int8", "int8", 1025), [[5, 6, 5]]),
    "uint8": (lambda: product("uint8", "int8", 3000), [[6, 6, 5]]),
    "a convolution": (convolution, [[2, 4, 5, 5]]),
    "behind a condition": (guarded, [[90, 90]]),
    "int16": (lambda: product("int16", "int16", 200), []),
    "int16 by int8": (lambda: product("int16", "int8", 3200, 3, 2), []),
    "a prime number of many": (lambda: product("int8", "int8", 1031), []),
    "few points": (lambda: product("int8", "int8", 20), []),
    "no operand is shared": (squares, []),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_of_the_largest_numbers(name: str) -> None:
    make, shapes = CASES[name]
    *inputs, y = make()
    [found] = with_float_products([y])
    floats = [op for op in Graph([found]).ops if "_floats" in op.name]
    assert [list(shape_of(op.output(0))) for op in floats] == shapes
    rng, dtypes = np.random.default_rng(0), [np.dtype(str(t.dtype)) for t in inputs]
    shapes_of = [[int(n) for n in t.shape] for t in inputs]
    of_all = list(zip(shapes_of, dtypes, strict=True))
    least = [np.full(shape, np.iinfo(kind).min or 255, kind) for shape, kind in of_all]
    drawn = [
        rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)
        for shape, kind in of_all
    ]
    for arrays in (least, drawn):
        values = list(zip(inputs, arrays, strict=True))
        [want], [got] = evaluate_graph([y], values), evaluate_graph([found], values)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("terms", [64, 1030])
def test_compiled_with_a_scale(terms: int, exact: bool) -> None:
    a, b, y = product("int8", "int8", terms, 33, 40)
    scaled = te.compute(y.shape, lambda i, j: y[i, j].astype("float32") * 0.5, name="scaled")
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-128, 128, [int(n) for n in t.shape], "int8") for t in (a, b))
    got = ad.build([a, b], [y, scaled], exact_math=exact, cache=False)(left, right)
    want = left.astype("int64") @ right.astype("int64")
    np.testing.assert_array_equal(got[0], want)
    np.testing.assert_array_equal(got[1], want * np.float32(0.5))
