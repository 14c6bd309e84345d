"""Indices and conditions of every integer type: data in narrow types, and conversions that wrap.

What is wanted is numpy's: the forward values by the same conversions, the gradient by adding heads
at the places that the forward pass read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph

Index = Callable[[Any], Any]


def const(value: int, dtype: str) -> Any:
    return tirx.const(value, dtype)


def scattered(extent: int, places: np.ndarray, heads: np.ndarray) -> np.ndarray:
    result = np.zeros((extent, *heads.shape[places.ndim :]))
    np.add.at(result, places, heads)
    return result


#: dtype of the index, dtype that it is read as, rows, guard on the data, offset
TABLES: list[tuple[str, str | None, int, bool, int]] = [
    ("uint8", "int32", 259, False, 0),
    ("uint8", None, 259, False, 0),
    ("uint8", None, 100, True, 0),
    ("uint8", "int64", 600, True, 300),
    ("int8", None, 128, True, 0),
    ("int8", "int32", 600, False, 200),
    ("uint16", None, 70_000, True, 0),
    ("int16", "int32", 300, True, 0),
    ("uint32", None, 300, True, 0),
    ("uint32", "int64", 300, False, 1),
    ("int64", "int32", 300, True, 0),
]


@pytest.mark.parametrize("symbolic", [False, True], ids=["constant", "symbolic"])
@pytest.mark.parametrize("case", TABLES, ids=str)
def test_rows_by_data(case: Any, symbolic: bool) -> None:
    dtype, read_as, rows, guard, offset = case
    extent = te.var("rows") if symbolic else rows
    table = te.placeholder((extent, 4), "float64", name="table")
    places = te.placeholder((6,), dtype, name="places")

    def row(n: Any) -> Any:
        found = places[n].astype(read_as) if read_as else places[n]
        return found + const(offset, read_as) if offset else found

    def body(n: Any, j: Any) -> Any:
        read = table[row(n), j]
        if not guard:
            return read
        return te.if_then_else(places[n] < const(90, dtype), read, const(0, "float64"))

    out = te.compute((6, 4), body, name="out")
    h = te.placeholder((6, 4), "float64", name="h")
    rng = np.random.default_rng(0)
    data = rng.integers(0, min(rows - offset, np.iinfo(dtype).max + 1), 6).astype(dtype)
    data[0] = min(rows - offset - 1, np.iinfo(dtype).max)
    values, heads = rng.random((rows, 4)), rng.random((6, 4))
    counts = (data < 90)[:, None] if guard else np.ones((6, 1))
    read = data.astype(np.int64) + offset
    gradient = ad.gradient(out, [table], h)[0]
    y, dx = ad.build([table, places, h], [out, gradient], cache=False)(values, data, heads)
    np.testing.assert_array_equal(y, values[read] * counts)
    np.testing.assert_allclose(dx, scattered(rows, read, heads * counts), atol=1e-15)


#: name → index of te, the same of numpy, points, extent of what is read
WRAPPED: dict[str, tuple[Index, Index, int, int]] = {
    "uint8": (lambda i: i.astype("uint8").astype("int32"), lambda i: i.astype("uint8"), 600, 256),
    "uint8 as it is": (lambda i: i.astype("uint8"), lambda i: i.astype("uint8"), 600, 256),
    "uint8 that fits": (
        lambda i: i.astype("uint8").astype("int32") * 2,
        lambda i: i * 2,
        200,
        400,
    ),
    "int8": (
        lambda i: i.astype("int8").astype("int32") + 128,
        lambda i: i.astype("int8").astype(int) + 128,
        600,
        256,
    ),
    "uint8 product": (
        lambda i: (i.astype("uint8") * const(3, "uint8")).astype("int32"),
        lambda i: i * 3 % 256,
        200,
        256,
    ),
    "uint16 modulo": (
        lambda i: ((i * 300).astype("uint16") % const(7, "uint16")).astype("int32"),
        lambda i: i * 300 % 65536 % 7,
        500,
        7,
    ),
    "uint32 difference": (
        lambda i: ((i.astype("uint32") - const(5, "uint32")) % const(7, "uint32")).astype("int32"),
        lambda i: (i - 5) % 2**32 % 7,
        30,
        7,
    ),
    "int64 to int32": (
        lambda i: (i.astype("int64") * const(2**32 + 1, "int64")).astype("int32"),
        lambda i: i,
        20,
        20,
    ),
    "clamped": (
        lambda i: te.min(i.astype("uint8").astype("int32"), 100),
        lambda i: np.minimum(i % 256, 100),
        600,
        256,
    ),
    "float16": (
        lambda i: te.floor(i.astype("float16")).astype("int32"),
        lambda i: i.astype("float16").astype(int),
        4001,
        4002,
    ),
    "half in float16": (
        lambda i: te.floor(i.astype("float16") * const(0.5, "float16")).astype("int32"),
        lambda i: np.floor(i.astype("float16") * np.float16(0.5)).astype(int),
        4001,
        2001,
    ),
    "float32 from 2**24": (
        lambda i: te.floor((i + 2**24).astype("float32")).astype("int32") - 2**24,
        lambda i: (i + 2**24).astype("float32").astype(int) - 2**24,
        50,
        51,
    ),
}

#: name → condition of te, the same of numpy
CONDITIONS: dict[str, tuple[Index, Index]] = {
    "uint32(i) - 5 < 10": (
        lambda i: i.astype("uint32") - const(5, "uint32") < const(10, "uint32"),
        lambda i: (i - 5) % 2**32 < 10,
    ),
    "uint64(i) - 5 < 10": (
        lambda i: i.astype("uint64") - const(5, "uint64") < const(10, "uint64"),
        lambda i: (i - 5) % 2**64 < 10 if isinstance(i, int) else (i >= 5) & (i < 15),
    ),
    "int8(i) < 10": (
        lambda i: i.astype("int8") < const(10, "int8"),
        lambda i: i.astype("int8") < 10,
    ),
    "uint8(i) == 10": (
        lambda i: i.astype("uint8").equal(const(10, "uint8")),
        lambda i: i % 256 == 10,
    ),
    "uint8(5 - i) < 10": (
        lambda i: (5 - i).astype("uint8") < const(10, "uint8"),
        lambda i: (5 - i) % 256 < 10,
    ),
    "uint16(300 i) % 7 == 0": (
        lambda i: ((i * 300).astype("uint16") % const(7, "uint16")).equal(const(0, "uint16")),
        lambda i: i * 300 % 65536 % 7 == 0,
    ),
}


def check(
    index: Index, condition: Index | None, reads: np.ndarray, counts: np.ndarray, extent: int
):
    x = te.placeholder((extent,), "float64", name="x")

    def body(i: Any) -> Any:
        if condition is None:
            return x[index(i)]
        return te.if_then_else(condition(i), x[index(i)], const(0, "float64"))

    out = te.compute((len(reads),), body, name="out")
    h = te.placeholder((len(reads),), "float64", name="h")
    gradient = ad.gradient(out, [x], h)[0]
    rng = np.random.default_rng(0)
    data, heads = rng.random(extent), rng.random(len(reads))
    wanted = scattered(extent, np.where(counts, reads, 0).astype(int), heads * counts)
    y, dx = ad.build([x, h], [out, gradient], cache=False)(data, heads)
    np.testing.assert_array_equal(y, np.where(counts, data[np.where(counts, reads, 0)], 0))
    np.testing.assert_allclose(dx, wanted, atol=1e-15)
    [evaluated] = evaluate_graph([gradient], {h: heads})
    np.testing.assert_allclose(evaluated, wanted, atol=1e-15)


@pytest.mark.filterwarnings("ignore::tvm_autodiff.DenseSumWarning")
@pytest.mark.parametrize("name", WRAPPED)
def test_indices_that_wrap_round(name: str) -> None:
    index, numpy_index, points, extent = WRAPPED[name]
    reads = numpy_index(np.arange(points)).astype(int)
    check(index, None, reads, np.ones(points, bool), extent)


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_that_wrap_round(name: str) -> None:
    condition, numpy_condition = CONDITIONS[name]
    points = np.arange(600)
    check(lambda i: i, condition, points, numpy_condition(points), 600)


def test_a_product_over_rows_that_wrap_round() -> None:
    x = te.placeholder((256, 5), "float64", name="x")
    w = te.placeholder((5, 6), "float64", name="w")
    k = te.reduce_axis((0, 5), "k")

    def body(i: Any, j: Any) -> Any:
        return te.sum(x[i.astype("uint8").astype("int32"), k] * w[k, j], axis=k)

    y = te.compute((600, 6), body, name="y")
    rng = np.random.default_rng(0)
    rows, weights = rng.random((256, 5)), rng.random((5, 6))
    got = ad.build([x, w], y, cache=False)(rows, weights)
    np.testing.assert_allclose(got, rows[np.arange(600) % 256] @ weights)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_guarded_rows_under_a_function(dtype: str) -> None:
    """The guard stands in the gradient twice, nested, and TVM subtracts its numbers."""
    table, places, other = (
        te.placeholder((2,), "float64", name="table"),
        te.placeholder((3,), dtype, name="places"),
        te.placeholder((3,), "uint8", name="other"),
    )
    head = te.placeholder((3,), "float64", name="head")

    def row(n: Any) -> Any:
        inside = te.all(places[n] >= const(0, dtype), places[n] < const(2, dtype))
        return te.if_then_else(inside, table[places[n]], 0.0)

    y = te.compute((3,), lambda n: te.tanh(row(n)) * table[other[n]], name="y")
    [gradient] = ad.differentiate(y, [table], head)
    rows, at, beside = np.array([0.3, -0.7]), np.array([1, 5, 0], dtype), np.array([0, 1, 1])
    read = np.where(at < 2, rows[np.minimum(at, 1)], 0.0)
    inner = np.where(at < 2, rows[beside] * (1.0 - np.tanh(read) ** 2), 0.0)
    wanted = scattered(2, np.minimum(at, 1).astype("int64"), inner)
    wanted += scattered(2, beside, np.tanh(read))
    got = ad.build([table, places, other, head], gradient, cache=False)(
        rows, at, beside.astype("uint8"), np.ones(3)
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
