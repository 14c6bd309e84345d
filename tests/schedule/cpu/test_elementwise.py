"""Rows of an elementwise kernel that are written in whole vectors, beside numpy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tvm import s_tir, te, tirx

from tests.machines import avx512
from tvm_autodiff import build
from tvm_autodiff.schedule.cpu.elementwise import elementwise
from tvm_autodiff.schedule.kernel import Kernel

ROWS = 37
AT = np.random.default_rng(1).integers(0, 5, ROWS).astype("int32")


def place(shape, dtype="float32", name="x"):
    return te.placeholder(shape, dtype, name=name)


#: name → (shapes of the inputs for a width, the element, the result in numpy)
CASES = {
    "scaled": (
        lambda n: [(ROWS, n), (ROWS,)],
        lambda n, x, w: lambda i, j: x[i, j] * w[i],
        lambda n, x, w: x * w[:, None],
    ),
    "outer": (
        lambda n: [(ROWS,), (n,)],
        lambda n, a, b: lambda i, j: te.exp(a[i]) * b[j] + a[i],
        lambda n, a, b: np.exp(a)[:, None] * b + a[:, None],
    ),
    "a part of longer rows": (
        lambda n: [(ROWS, n + 3)],
        lambda n, x: lambda i, j: x[ROWS - 1 - i, j + 2] - te.tanh(x[i, j]),
        lambda n, x: x[::-1, 2 : n + 2] - np.tanh(x[:, :n]),
    ),
    "rows that some have": (
        lambda n: [(4, n)],
        lambda n, x: lambda i, j: te.if_then_else(i < 4, x[i, j], x[3, j] + 1.0),
        lambda n, x: np.concatenate([x, np.repeat(x[3:] + 1, ROWS - 4, 0)]),
    ),
    "the number of the column": (
        lambda n: [(ROWS, n)],
        lambda n, x: lambda i, j: x[i, j] * j.astype("float32"),
        lambda n, x: x * np.arange(n),
    ),
    "a choice by elements": (
        lambda n: [(ROWS, n)],
        lambda n, x: lambda i, j: tirx.Select(x[i, j] > te.const(0.5, "float32"), x[i, j], 2.0),
        lambda n, x: np.where(x > 0.5, x, 2),
    ),
    "backwards": (
        lambda n: [(ROWS, n)],
        lambda n, x: lambda i, j: x[i, n - 1 - j],
        lambda n, x: x[:, ::-1],
    ),
    "a choice by columns": (
        lambda n: [(ROWS, n)],
        lambda n, x: lambda i, j: te.if_then_else(j < 3, x[i, j + 1], x[i, j]),
        lambda n, x: np.concatenate([x[:, 1:4], x[:, 3:]], 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_short_rows(name: str) -> None:
    """All widths in one program: whole registers, parts of them, and beyond what is unrolled."""
    shapes, element, wanted = CASES[name]
    inputs, outputs, arrays, results = [], [], [], []
    rng = np.random.default_rng(0)
    for width in (5, 8, 12, 16, 17, 32, 63, 64):
        own = [place(shape, name=f"x{width}_{n}") for n, shape in enumerate(shapes(width))]
        given = [rng.random(shape).astype("float32") for shape in shapes(width)]
        outputs.append(te.compute((ROWS, width), element(width, *own), f"y{width}"))
        inputs += own
        arrays += given
        results.append(wanted(width, *given))
    found = build(inputs, outputs, cache=False)(*arrays)
    for got, want in zip(found, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


def test_rows_that_are_fetched() -> None:
    x, at = place((5, 24)), place((ROWS,), "int32", "at")
    y = te.compute((ROWS, 24), lambda i, j: x[at[i], j] * 2.0, "y")
    rows = np.random.default_rng(0).random((5, 24)).astype("float32")
    np.testing.assert_array_equal(build([x, at], y, cache=False)(rows, AT), 2 * rows[AT])


@pytest.mark.parametrize("columns", [1, 3, 7, 100, 4096])
def test_symbolic_rows_on_threads(columns: int) -> None:
    """Pieces of threads are runs of memory for LLVM, too: no element is gathered."""
    n = te.var("n")
    x = te.placeholder((n, columns), name="x")
    y = te.compute((n, columns), lambda i, j: te.exp(x[i, j]) * 2.0, name="y")
    run = build(x, y, num_threads=2, cache=False)
    assert "gather" not in run.source()
    for rows in (0, 1, 5, 1030):
        array = np.linspace(-1, 1, rows * columns, dtype="float32").reshape(rows, columns)
        np.testing.assert_allclose(run(array), np.exp(array) * 2, rtol=1e-6)


def loops_of(output: Any) -> tuple[Any, list[int]]:
    """The schedule of an output, and the extents of its loops, outermost first."""
    [launch] = elementwise(Kernel(output.op), avx512())
    schedule = s_tir.Schedule(launch.func)
    block = schedule.get_sblock(output.op.name)
    return schedule, [int(schedule.get(one).extent) for one in schedule.get_loops(block)]


def test_rows_read_backwards_are_not_tiled() -> None:
    """They run through memory: ``p[i, i - j]`` has the same lines for neighbours j."""
    p = place((50, 9), name="p")
    band = lambda i, j: te.if_then_else(te.all(j <= i, i <= j + 8), p[i, i - j], 0.0)  # noqa: E731
    y = te.compute((50, 50), band, "y")
    assert loops_of(y)[1] == [50, 50]
    array = np.random.default_rng(0).random((50, 9)).astype("float32")
    wanted = sum(np.diag(array[k:, k], -k) for k in range(9))
    np.testing.assert_array_equal(build([p], y, cache=False)(array), wanted)


def test_short_axes_are_whole_in_a_tile() -> None:
    """A part of 16 of 8 channels would need a condition in the innermost loop."""
    x = place((8, 5, 48))
    y = te.compute((5, 48, 8), lambda i, j, c: te.popcount(x[c, i, j].astype("int32")), "y")
    schedule, extents = loops_of(y)
    assert extents == [5, 3, 16, 8]
    assert "T.where" not in schedule.mod.script()
    array = np.arange(8 * 5 * 48, dtype="float32").reshape(8, 5, 48)
    wanted = [[[bin(int(v)).count("1") for v in row] for row in part] for part in array]
    np.testing.assert_array_equal(
        build([x], y, cache=False)(array), np.transpose(wanted, (1, 2, 0))
    )


#: the channels and the width of an image → the extents of the loops over its planes
PIXELS = {
    (3, 600): [5, 3, 600],  # 7 kB stay in the cache while each plane is written
    (16, 1024): [5, 4, 16, 256],  # 16 kB, half of the first cache
    (48, 608): [5, 3, 38, 16, 16],  # each pixel has lines of its own
}


@pytest.mark.parametrize("sizes", PIXELS)
def test_pixels_that_share_lines_are_read_in_long_rows(sizes: tuple[int, int]) -> None:
    channels, width = sizes
    x, scale = place((5, width, channels)), place((channels,), name="scale")
    body = lambda i, c, j: te.popcount(x[i, j, c].astype("int32")) * scale[c]  # noqa: E731
    y = te.compute((5, channels, width), body, "y")
    _, extents = loops_of(y)
    assert extents == PIXELS[sizes]
    array = np.arange(5 * width * channels, dtype="float32").reshape(5, width, channels)
    counted = np.vectorize(lambda v: bin(int(v)).count("1"))(array)
    scales = np.arange(channels, dtype="float32")
    wanted = np.transpose(counted * scales, (0, 2, 1))
    np.testing.assert_array_equal(build([x, scale], y, cache=False)(array, scales), wanted)


def half(value: Any) -> Any:
    return te.const(value, "float32")


#: choices by elements between what reads a parameter of the row, of all rows, or of neither: the
#: element, the result in numpy, and whether it is written in vectors here, not by LLVM
CHOICES = {
    "a slope of the row": (
        lambda x, s, r: lambda i, j: te.if_then_else(x[i, j] > half(0), x[i, j], x[i, j] * s[i]),
        lambda x, s, r: np.where(x > 0, x, x * s[:, None]),
        True,
    ),
    "a slope of all": (
        lambda x, s, r: lambda i, j: tirx.Select(x[i, j] > half(0), x[i, j], x[i, j] * r()),
        lambda x, s, r: np.where(x > 0, x, x * r),
        True,
    ),
    "a quotient": (
        lambda x, s, r: lambda i, j: te.if_then_else(x[i, j] > half(0), s[i] / x[i, j], half(0)),
        lambda x, s, r: np.divide(s[:, None], x, out=np.zeros_like(x), where=x > 0),
        True,
    ),
    "a choice in a choice": (
        lambda x, s, r: lambda i, j: te.if_then_else(
            x[i, j] > r(), te.if_then_else(x[i, j] > s[i], s[i], x[i, j]), -r()
        ),
        lambda x, s, r: np.where(x > r, np.minimum(x, s[:, None]), -r),
        True,
    ),
    "elements of the row alone": (
        lambda x, s, r: lambda i, j: te.if_then_else(x[i, j] > half(0), x[i, j], -x[i, j]),
        lambda x, s, r: np.abs(x),
        False,
    ),
    "a choice of the row": (
        lambda x, s, r: lambda i, j: te.if_then_else(s[i] > half(0), x[i, j] * r(), x[i, j]),
        lambda x, s, r: np.where(s[:, None] > 0, x * r, x),
        False,
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_between_parameters(name: str) -> None:
    element, wanted, in_vectors = CHOICES[name]
    tensors = place((ROWS, 75)), place((ROWS,), name="s"), place((), name="r")
    y = te.compute((ROWS, 75), element(*tensors), "y")
    [launch] = elementwise(Kernel(y.op), avx512())
    assert ("T.vectorized(16)" in launch.func.script()) == in_vectors
    rng = np.random.default_rng(0)
    shapes = (ROWS, 75), (ROWS,), ()
    given = [np.asarray(rng.normal(size=shape), "float32") for shape in shapes]
    found = build(tensors, y, cache=False)(*given)
    np.testing.assert_allclose(found, wanted(*given), rtol=1e-6)


#: expensive functions along an axis for which LLVM has no vectors: the columns, the element, the
#: result in numpy, and the lanes of the vectors that are written here
EXPENSIVE = {
    "elements of points": (
        20,
        lambda x, a: lambda i, j: te.exp(x[i, 0] * a[j, 0] + x[i, 1] * a[j, 1]),
        lambda x, a: np.exp(x @ a.T),
        16,
    ),
    "a row, and every other element": (
        23,
        lambda x, a: lambda i, j: te.tanh(a[j, 1]) * x[i, 0],
        lambda x, a: np.tanh(a[:, 1]) * x[:, :1],
        16,
    ),
    "fewer elements than lanes": (
        12,
        lambda x, a: lambda i, j: te.exp(x[i, 0] * a[j, 0] + x[i, 1]),
        lambda x, a: np.exp(x[:, :1] * a[:, 0] + x[:, 1:]),
        8,
    ),
    "at clamped places": (
        12,
        lambda x, a: lambda i, j: te.exp(x[te.max(te.min(i + j - 3, ROWS - 1), 0), 0] * a[j, 0]),
        lambda x, a: np.exp(
            x[np.clip(np.arange(ROWS)[:, None] + np.arange(12) - 3, 0, ROWS - 1), 0] * a[:, 0]
        ),
        8,
    ),
    "too few elements": (
        3,
        lambda x, a: lambda i, j: te.exp(x[i, 0] * a[j, 0] + x[i, 1]),
        lambda x, a: np.exp(x[:, :1] * a[:, 0] + x[:, 1:]),
        None,
    ),
    "a long loop, which LLVM writes in vectors": (
        64,
        lambda x, a: lambda i, j: te.exp(x[i, 0] * a[j, 0]),
        lambda x, a: np.exp(x[:, :1] * a[:, 0]),
        None,
    ),
    "whole vectors, which LLVM writes, too": (
        32,
        lambda x, a: lambda i, j: te.exp(x[i, 0] * a[j, 0]),
        lambda x, a: np.exp(x[:, :1] * a[:, 0]),
        None,
    ),
    "nothing expensive": (
        20,
        lambda x, a: lambda i, j: x[i, 0] * a[j, 0] + a[j, 1],
        lambda x, a: x[:, :1] * a[:, 0] + a[:, 1],
        None,
    ),
}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_expensive_functions_along_a_short_axis(name: str) -> None:
    columns, element, wanted, lanes = EXPENSIVE[name]
    tensors = place((ROWS, 2)), place((columns, 2), name="a")
    y = te.compute((ROWS, columns), element(*tensors), "y")
    [launch] = elementwise(Kernel(y.op), avx512())
    found = re.findall(r"T\.vectorized\((\d+)\)", launch.func.script())
    assert set(found) == ({str(lanes)} if lanes else set())
    rng = np.random.default_rng(0)
    given = [np.asarray(rng.normal(size=shape), "float32") for shape in ((ROWS, 2), (columns, 2))]
    np.testing.assert_allclose(
        build(tensors, y, cache=False)(*given), wanted(*given), rtol=1e-5
    )


@pytest.mark.parametrize(("around", "lanes"), [(5, {"4"}), (200, set())])
def test_the_loop_around_a_short_axis_has_vectors_if_it_is_long(around: int, lanes: set) -> None:
    x = place((40, around + 4, 3))
    element = lambda i, u, v: te.exp(x[i, u + v % 5, 0] - x[i, u, 1] * x[0, v, 2])  # noqa: E731
    y = te.compute((40, around, 5), element, "y")
    [launch] = elementwise(Kernel(y.op), avx512())
    assert set(re.findall(r"T\.vectorized\((\d+)\)", launch.func.script())) == lanes
    given = np.random.default_rng(0).standard_normal((40, around + 4, 3)).astype("float32")
    windows = np.stack([given[:, v : v + around, 0] for v in range(5)], -1)
    wanted = np.exp(windows - given[:, :around, 1:2] * given[0, :5, 2])
    np.testing.assert_allclose(build([x], y, cache=False)(given), wanted, rtol=1e-5)
