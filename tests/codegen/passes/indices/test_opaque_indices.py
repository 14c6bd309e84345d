"""Index maps with divisions, compiled and compared with Python's own arithmetic.

The table holds forms that TVM alone compiles wrongly or not at all; the random maps look for more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.script.ir_builder import IRBuilder, tirx as script

from tests.numeric import run
from tvm_autodiff.codegen.passes.indices.opaque_indices import (
    confuses_tvm,
    hide_divisions,
    without_carry,
)

Map = Callable[[Any, Any], Any]


def always(i: Any, j: Any) -> Any:
    return i >= 0


def both(left: Any, right: Any) -> Any:
    return left & right if isinstance(left, np.ndarray) else te.all(left, right)


def either(condition: Any, left: Any, right: Any) -> Any:
    choose = np.where if isinstance(condition, np.ndarray) else te.if_then_else
    return choose(condition, left, right)


#: shape of the output, indices of the read, condition of the read
MAPS: list[tuple[tuple[int, int], list[Map], Map]] = [
    ((5, 1), [lambda i, j: (i + 1) // 2 + i // 2], always),
    ((5, 1), [lambda i, j: i % 4 + (i + 2) % 4 * 2], always),
    ((3, 1), [lambda i, j: (i + 1) % 3 + 2 - i], always),
    ((3, 1), [lambda i, j: i * 0, lambda i, j: (i + 1) % 3 + 2 - i], always),
    ((4, 1), [lambda i, j: i * 0], lambda i, j: i - (i + 3) % 4 <= -2),
    ((4, 1), [lambda i, j: (2 - i) % 3], always),
    ((4, 1), [lambda i, j: (-1 - i) // 3 + 2], always),
    (
        (1, 6),
        [
            lambda i, j: (i + j + 1) // 2,
            lambda i, j: (i + j + 1) // 2 * 2 + (i + j + 1) % 2 * 2 - 2,
        ],
        lambda i, j: both(i * -2 >= 0, i * -2 + j <= 4),
    ),
    (
        (4, 6),
        [lambda i, j: (j * 2 + i * 2 + 6) // 10],
        lambda i, j: both(i >= 1, (j + 1) % 2 > 0),
    ),
    ((4, 6), [lambda i, j: (i * 6 + j) // 4, lambda i, j: (i * 6 + j) % 4], always),
    # choices that TVM finds decided
    (
        (6, 2),
        [lambda i, j: either(j <= -1, 0 - j * 2 - 4, i * 2 - j - 3) // 2 + 2],
        lambda i, j: i * 2 <= j + 2,
    ),
    ((4, 2), [lambda i, j: (either(j >= 0, -1 - i - j, i) * 3) // 4 + 4], always),
]


def grid(shape: tuple[int, int]) -> list[np.ndarray]:
    return np.meshgrid(*[np.arange(extent) for extent in shape], indexing="ij")


@pytest.mark.parametrize("case", range(len(MAPS)))
def test_compiles_to_what_it_says(case: int) -> None:
    shape, indices, condition = MAPS[case]
    places = [np.broadcast_to(index(*grid(shape)), shape) for index in indices]
    inside = np.broadcast_to(condition(*grid(shape)), shape)
    places = [np.where(inside, place, 0) for place in places]
    A = te.placeholder([int(place.max()) + 1 for place in places], "float64", name="A")
    B = te.compute(
        shape,
        lambda i, j: te.if_then_else(
            condition(i, j), A(*(index(i, j) for index in indices)), tirx.const(-1, "float64")
        ),
        name="B",
    )
    array = np.random.default_rng(case).random([int(extent) for extent in A.shape])
    [value] = run([A], [B], [array])
    assert np.array_equal(value, np.where(inside, array[tuple(places)], -1))


#: index of the write of ``O[index(i)] = A[i]`` in a te.extern, whose body no other step sees
WRITES: list[Callable[[Any], Any]] = [
    lambda i: (i + 1) // 2 + i // 2,
    lambda i: i % 4 + (i + 2) % 4 * 2,
    lambda i: (2 - i) % 3,
    lambda i: i // 2 + i % 2 * 3,
]


@pytest.mark.parametrize("index", WRITES)
def test_writes_where_it_says(index: Callable[[Any], Any]) -> None:
    def body(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            source, target = script.buffer_proxy(ins[0]), script.buffer_proxy(outs[0])
            with script.seq_scope():
                with script.serial(0, 12) as place:
                    target[place] = tirx.const(0, "float64")
                with script.serial(0, 5) as i:
                    target[index(i)] = source[i]
            return builder.get()

    A = te.placeholder((12,), "float64", name="A")
    array, wanted = np.arange(1.0, 13.0), np.zeros(12)
    for i in range(5):
        wanted[index(i)] = array[i]
    [value] = run([A], [te.extern([(12,)], [A], body, dtype="float64", name="E")], [array])
    assert np.array_equal(value, wanted)


def random_map(rng: np.random.Generator) -> Map:
    """Two divisions and a linear part, all with coefficients of either sign."""
    a, b, c, d, e, f, m, n, p, q = (int(v) for v in rng.integers(-3, 4, 10))

    def index(i: Any, j: Any) -> Any:
        first = (a * i + b * j + c) // (abs(m) + 2)
        return first * p + (d * i + e * j + f) % (abs(n) + 2) * q + a * i - e * j

    return index


def read(shape: tuple[int, int], A: Any, index: Map, low: int) -> Any:
    return te.compute(shape, lambda i, j: A(index(i, j) - low), name="B")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_maps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs, outputs, arrays, wanted = [], [], [], []
    for _ in range(40):
        rows, columns = (int(extent) for extent in rng.integers(1, 7, 2))
        index = random_map(rng)
        place = np.broadcast_to(index(*grid((rows, columns))), (rows, columns))
        low = int(place.min())
        A = te.placeholder((int(place.max()) - low + 1,), "float64", name="A")
        inputs.append(A)
        outputs.append(read((rows, columns), A, index, low))
        arrays.append(rng.random(int(A.shape[0])))
        wanted.append(arrays[-1][place - low])
    for got, want in zip(run(inputs, outputs, arrays), wanted, strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("rows", "columns", "tile"), [(64, 48, 48), (70, 100, 48), (9, 33, 16), (31, 7, 4)]
)
def test_tiles_of_fused_loops_stay_visible_and_right(rows: int, columns: int, tile: int) -> None:
    """Packed panels read by a fused parallel loop: the indices must not be hidden from TVM."""
    panels = -(-columns // tile)
    packed = te.placeholder((panels, rows, tile), name="packed")
    wide = panels * tile
    copy = te.compute((rows, wide), lambda i, j: packed[j // tile, i, j % tile], name="copy")
    schedule = s_tir.Schedule(te.create_prim_func([packed, copy]))
    row, column = schedule.get_loops(schedule.get_sblock("copy"))
    outer, inner = schedule.split(column, [None, tile])
    row_outer, row_inner = schedule.split(row, [None, 8])
    schedule.reorder(outer, row_outer, row_inner, inner)
    schedule.parallel(schedule.fuse(outer, row_outer))
    func = hide_divisions(schedule.mod["main"])
    assert "reinterpret" not in func.script()
    given = np.random.default_rng(0).random((panels, rows, tile), dtype="float32")
    result = tvm.runtime.tensor(np.zeros((rows, wide), "float32"))
    tvm.compile(func, target="llvm")(tvm.runtime.tensor(given), result)
    np.testing.assert_array_equal(result.numpy(), given.transpose(1, 0, 2).reshape(rows, wide))


@pytest.mark.parametrize(
    ("index", "shown"),
    [
        (lambda i, j: [(i + 3) % 8, j], 'A[T.reinterpret("int32", (v_i + 3) % 8), v_j]'),
        (lambda i, j: [(i + 1) // 2 + i // 2 + j, 0], "v_i // 2) + v_j, 0]"),
        (lambda i, j: [i + j, (j + 1) % 5], 'A[T.reinterpret("int32", v_j) + v_i, T.reinterpret('),
    ],
    ids=["another index", "a summand", "what shares a variable"],
)
def test_places_along_other_loops_stay_visible(index: Callable[..., Any], shown: str) -> None:
    """Otherwise neighbours along them are read one by one, not in vectors."""
    A = te.placeholder((16, 16), name="A")
    B = te.compute((8, 5), lambda i, j: A[tuple(index(i, j))], name="B")
    text = hide_divisions(te.create_prim_func([A, B])).script()
    assert shown in text[text.rindex("A[") :]


def test_a_sum_that_may_carry_stays_hidden() -> None:
    f, i = te.var("f"), te.var("i")
    ranges = {i: (0, 49)}
    [index] = without_carry([(f // 32 * 48 + i) // 48], ranges)
    assert confuses_tvm([index])
