"""Chains of conversions of data, in values, conditions, guards of reads, and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.cuda_on_cpu.checking import Case, check

#: dtype → data at which conversions and arithmetic wrap
DATA: dict[str, list[int]] = {
    "int8": [0, 7, -1, -128, 127],
    "uint8": [0, 7, 128, 200, 255],
    "int16": [0, 7, -1, -32768, 300],
    "uint16": [0, 7, 200, 32768, 65535],
    "int32": [0, 7, -1, -(2**31), 70000],
    "uint32": [0, 7, 2**31 + 3, 2**32 - 1, 300],
    "int64": [0, 7, -1, 2**31 + 5, 2**33 + 3],
    "uint64": [0, 7, 2**63 + 3, 2**64 - 1, 2**32 + 2**31],
}
#: what is converted, from left to right
CHAINS = (
    "uint32 int64 int32",
    "uint8 int64 int8 int64",
    "uint16 int64 int16 int32",
    "uint64 int64",
    "uint64 int64 int32",
    "int8 uint16 int32",
    "int8 uint64",
    "int32 uint64 int64",
    "int64 uint32 int64 int32",
    "int32 int16 int64",
)
TABLE = np.arange(1, 17, dtype="float32")
HEAD = np.arange(3, 8, dtype="float32")


def program(chain: str) -> tuple[list[Any], list[Any], list[np.ndarray], list[np.ndarray]]:
    """Inputs, outputs, arrays and results of everything that is done with a converted number."""
    first, *targets = chain.split()
    last = targets[-1]
    data = numbers = np.array(DATA[first], first)
    for dtype in targets:
        numbers = numbers.astype(dtype)
    source = te.placeholder(data.shape, first, name="data")
    table = te.placeholder(TABLE.shape, name="table")
    head = te.placeholder(HEAD.shape, name="head")

    def converted(e: Any) -> Any:
        value = source[e]
        for dtype in targets:
            value = value.astype(dtype)
        return value

    def number(value: int) -> Any:
        return tirx.const(value, last)

    def stage(body: Any, extent: int = len(data)) -> Any:
        return te.compute((extent,), body, name="y")

    def inside(e: Any) -> Any:
        return tirx.all(converted(e) >= number(0), converted(e) < number(16))

    def chosen(condition: Any) -> Any:
        return te.if_then_else(condition, 1.0, 0.0)

    read = stage(lambda e: te.if_then_else(inside(e), table[converted(e)] * table[7], 0.0))
    k = te.reduce_axis((0, len(data)), "k")
    masked = stage(
        lambda i: te.sum(te.if_then_else(converted(k).equal(i.astype(last)), head[k], 0.0), axis=k),
        16,
    )
    there = np.array([0 <= int(n) < 16 for n in numbers])
    at = np.where(there, numbers, 0).astype(int)
    scattered, counted = np.zeros((2, 16), "float32")
    np.add.at(counted, at[there], HEAD[there])
    np.add.at(scattered, at[there], 8 * HEAD[there])
    scattered[7] += np.sum(TABLE[at[there]] * HEAD[there])
    pairs = [
        (stage(lambda e: converted(e).astype("float64")), numbers.astype("float64")),
        (stage(lambda e: chosen(converted(e) >= number(0))), numbers >= 0),
        (stage(lambda e: chosen(converted(e) < number(100))), numbers < 100),
        (read, np.where(there, 8 * TABLE[at], 0)),
        (ad.differentiate(read, [table], head)[0], scattered),
        (masked, counted),
        (ad.differentiate(masked, [head], table)[0], np.where(there, TABLE[at], 0)),
        (
            stage(lambda e: table[tirx.floormod(converted(e), number(16))]),
            TABLE[[int(n) % 16 for n in numbers]],
        ),
    ]
    return (
        [source, table, head],
        [y for y, _ in pairs],
        [data, TABLE, HEAD],
        [np.asarray(w) for _, w in pairs],
    )


@pytest.mark.parametrize("chain", CHAINS)
def test_conversions(chain: str) -> None:
    inputs, outputs, arrays, wanted = program(chain)
    found = ad.build(inputs, outputs, cache=False)(*arrays)
    for output, got, want in zip(outputs, found, wanted, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=ad.show(output))


#: what is done with two numbers of a type that wraps
WRAPS = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
}


def wrapping(dtype: str) -> tuple[Sequence[Any], Sequence[Any], list[np.ndarray], list[np.ndarray]]:
    """Arithmetic that wraps, compared, divided, and converted."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    left = np.array([low, low + 1, 3, 5, high // 2, high // 2 + 4, high - 3, high], dtype)
    arrays = [left, left[[4, 7, 5, 2, 0, 6, 1, 3]]]
    a, b = (te.placeholder(left.shape, dtype, name=name) for name in "ab")
    outputs, wanted = [], []
    for name, of in WRAPS.items():

        def stage(body: Any, of: Any = of, name: str = name) -> Any:
            return te.compute(left.shape, lambda e: body(of(a[e], b[e])), name=name)

        with np.errstate(over="ignore"):
            value = of(*arrays)
        nine = tirx.const(9, dtype)
        outputs += [
            stage(lambda v: v),
            stage(lambda v: v.astype("float64")),
            stage(lambda v, nine=nine: te.if_then_else(v < nine, 1.0, 0.0)),
            stage(lambda v, nine=nine: tirx.floormod(v, nine)),
            stage(lambda v, nine=nine: te.max(v, nine)),
        ]
        nine = value.dtype.type(9)
        wanted += [
            value,
            value.astype("float64"),
            value < nine,
            value % nine,
            np.maximum(value, nine),
        ]
    return [a, b], outputs, arrays, wanted


#: the arithmetic of int32 and int64 is that of indices, which counts as exact
WRAPPING = ("int8", "uint8", "int16", "uint16", "uint32", "uint64")


@pytest.mark.parametrize("dtype", WRAPPING)
def test_arithmetic_that_wraps(dtype: str) -> None:
    inputs, outputs, arrays, wanted = wrapping(dtype)
    found = ad.build(inputs, outputs, cache=False)(*arrays)
    for output, got, want in zip(outputs, found, wanted, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=ad.show(output))


@pytest.mark.slow
def test_on_a_gpu() -> None:
    """C computes narrow types in int, and has no type of 128 bits for those of 64."""
    made = {chain: program(chain) for chain in CHAINS[:5:2]}
    made |= {dtype: wrapping(dtype) for dtype in ("int8", "uint16", "uint64")}
    check(
        {
            name: Case(inputs, outputs, [arrays], wanted=lambda *_, wanted=wanted: wanted)
            for name, (inputs, outputs, arrays, wanted) in made.items()
        }
    )
