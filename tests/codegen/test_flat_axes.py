"""The number of a point of several axes, and its indices, as numpy counts them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate
from tvm_autodiff.codegen.flat_axes import (
    flat_dtype,
    flat_extent,
    indices_at,
    number_of_points,
    unflattened,
)
from tvm_autodiff.expr.build import const
from tvm_autodiff.expr.nodes import Axis, dtype_of
from tvm_autodiff.graph.stage import data_axis, reduce_axis

n = te.var("n")

SHAPES = [(), (7,), (3, 5), (4, 1, 6), (1, 2, 1), (2, 3, 4, 5), (1,)]
#: extents, and the dtype of the number of a point
DTYPES = [
    ((3, 5), "int32"),
    ((2**16, 2**15 - 1), "int32"),
    ((2**16, 2**15), "int64"),
    ((n, 8), "int32"),
    ((te.var("m", "int64"), 8), "int64"),
]


def axes_of(extents: tuple) -> list[Axis]:
    return [data_axis(f"i{place}", extent) for place, extent in enumerate(extents)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_indices_are_those_of_rows(shape: tuple[int, ...]) -> None:
    place = te.var("place")
    count = int(np.prod(shape))
    assert int(evaluate(number_of_points(shape, "int32"), {})) == count
    found = unflattened(place, shape)
    for number in range(count):
        got = [int(evaluate(index, {place: np.int32(number)})) for index in found]
        assert tuple(got) == tuple(map(int, np.unravel_index(number, shape)))


def test_symbolic_extents() -> None:
    place, size = te.var("place"), np.int32(5)
    found = unflattened(place, [n, 3])
    for number in range(15):
        given = {place: np.int32(number), n: size}
        assert [int(evaluate(index, given)) for index in found] == [number // 3, number % 3]
    assert int(evaluate(number_of_points([n, 3], "int64"), {n: size})) == 15


@pytest.mark.parametrize(("extents", "dtype"), DTYPES, ids=str)
def test_dtypes(extents: tuple, dtype: str) -> None:
    axes = axes_of(extents)
    assert flat_dtype(axes) == dtype
    assert dtype_of(flat_extent(axes)) == dtype


def test_axes_that_begin_elsewhere_have_their_own_types() -> None:
    first = te.reduce_axis((2, 6), "first")
    wide = reduce_axis("wide", const(3, "int64"))
    table = indices_at([first, wide], tirx.const(7, "int64"))
    indices = [table[axis.var] for axis in (first, wide)]
    got = [(dtype_of(index), int(evaluate(index, {}))) for index in indices]
    assert got == [("int32", 2 + 7 // 3), ("int64", 7 % 3)]
