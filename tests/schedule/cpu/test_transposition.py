"""Transposed reads are turned around in registers: same numbers, whole vectors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.machines import avx512, synthetic, with_usual_caches
from tests.schedule import cases
from tests.schedule.test_rules import check, rules_of
from tvm_autodiff import build
from tvm_autodiff.schedule.cpu.loops.squares import exchanged
from tvm_autodiff.schedule.cpu.transposition import transposition
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.kernel import Kernel


def transposed(n, m, dtype="float32"):
    A = cases.placeholder("A", n, m, dtype=dtype)
    return [A], te.compute((m, n), lambda i, j: A[j, i], name="T")


def permuted(a, b, c, d):
    A = cases.placeholder("A", a, b, c, d)
    return [A], te.compute((a, d, c, b), lambda n, w, k, j: A[n, j, k, w], name="T")


def panels(n, m, width):
    """`A[k, j] → T[j // w, k, j % w]` as a packed operand lies."""
    A = cases.placeholder("A", n, m)
    return [A], te.compute((n // width, m, width), lambda o, k, i: A[o * width + i, k], name="T")


def ending(n, m, width):
    """Panels, the last of which ends with the rows."""
    A, zero = cases.placeholder("A", n, m), tirx.const(0, "float32")
    return [A], te.compute(
        (-(-n // width), m, width),
        lambda o, k, i: te.if_then_else(o * width + i < n, A[o * width + i, k], zero),
        name="T",
    )


def gated(n, m):
    """Several reads, one of them along the rows, and a function of a transposed one."""
    A, B, C = (
        cases.placeholder("A", n, m),
        cases.placeholder("B", m, n),
        cases.placeholder("C", n, m),
    )
    return [A, B, C], te.compute(
        (m, n), lambda i, j: te.tanh(A[j, i]) * B[i, j] + C[n - 1 - j, i] + B[i, 0], name="T"
    )


def shifted(n, m):
    """Reads that slide along both axes."""
    A = cases.placeholder("A", n + 2, m + 3)
    return [A], te.compute((m, n), lambda i, j: A[j + 2, i] - A[j, i + 3], name="T")


TAKEN = [
    ending(100, 24, 32),
    ending(33, 7, 8),
    ending(2000, 5, 16),
    transposed(16, 16),
    transposed(64, 48),
    transposed(17, 33),
    transposed(31, 5),
    transposed(4, 4),
    transposed(4, 1000),
    transposed(257, 130),
    transposed(19, 23, "float64"),
    transposed(40, 70, "float16"),
    transposed(40, 70, "int8"),
    permuted(3, 8, 5, 7),
    permuted(2, 32, 9, 18),
    permuted(1, 32, 1, 18),
    panels(64, 37, 32),
    gated(18, 37),
    shifted(20, 21),
]


@pytest.mark.parametrize("case", TAKEN, ids=range(len(TAKEN)))
def test_turned_around(case):
    assert rules_of(case[1]) == ["transposition"]
    # tanh of our own is not the C library's
    check(case, tolerance=1e-6 if "tanh" in str(case[1].op.body) else 0.0)


ROUNDED = [
    (te.abs, np.abs), (te.ceil, np.ceil), (te.floor, np.floor), (te.nearbyint, np.rint),
    (te.trunc, np.trunc),
]  # fmt: skip


def test_functions_that_round_have_vectors():
    """Each of them as a stage of one program, on halves and their neighbours."""
    A = cases.placeholder("A", 40, 30)

    def stage(function):
        return te.compute((30, 40), lambda i, j: function(A[j, i]) + 1.0, name="y")

    stages = [stage(function) for function, _ in ROUNDED]
    assert [rules_of(stage) for stage in stages] == [["transposition"]] * len(stages)
    array = np.linspace(-30, 29.95, 1200, dtype="float32").reshape(40, 30)
    for got, (_, exact) in zip(build([A], stages, cache=False)(array), ROUNDED, strict=True):
        np.testing.assert_array_equal(got, exact(array.T) + 1)


def diagonal(n):
    A = cases.placeholder("A", n, n, n)
    return [A], te.compute((n, n), lambda i, j: A[j, i, i], name="D")


def strided(n, m):
    A = cases.placeholder("A", n, 2 * m)
    return [A], te.compute((m, n), lambda i, j: A[j, 2 * i], name="S")


def plain(n, m):
    A = cases.placeholder("A", n, m)
    return [A], te.compute((n, m), lambda i, j: A[i, j], name="P")


LEFT = {
    "contiguous": plain(32, 32),
    "two rows of three": transposed(3, 2),
    "three columns": transposed(100, 3),
    "diagonal": diagonal(8),
    "strided": strided(32, 32),
}


@pytest.mark.parametrize("name", LEFT)
def test_left_to_others(name):
    _, output = LEFT[name]
    assert isinstance(transposition(Kernel(output.op), avx512()), Declined)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_share_tiles(threads):
    [A], output = transposed(300, 270)
    array = np.arange(300 * 270, dtype="float32").reshape(300, 270)
    result = build([A], output, num_threads=threads, cache=False)(array)
    np.testing.assert_array_equal(result, array.T)


LANES = {"SSE": 4, "NEON": 4, "AVX2": 8, "AVX-512": 16}


@pytest.mark.parametrize("vectors", LANES)
def test_vectors_of_the_machine(vectors):
    _, output = transposed(64, 64)
    [launch] = transposition(Kernel(output.op), synthetic(vectors, 1))
    assert f"Ramp(i, 1, {LANES[vectors]})" in str(launch.func)


def test_in_place_only_where_no_tile_overlaps():
    for size, expected in ((32, True), (33, False)):
        _, output = transposed(size, size)
        [launch] = transposition(Kernel(output.op), avx512())
        assert ("tvm_autodiff.writes_once" in launch.func.attrs) is expected


@pytest.mark.parametrize("side", [4, 8, 16])
def test_exchanges_transpose(side, monkeypatch):
    """Distances 1, 2, 4, ..: each stage by hand on numbers in place of vectors."""

    def numbers(vectors, places):
        both = [*vectors[0], *vectors[1]]
        return [both[place] for place in places]

    monkeypatch.setattr("tvm_autodiff.schedule.cpu.loops.squares.picked", numbers)
    rows = [[(i, j) for j in range(side)] for i in range(side)]
    distance = 1
    while distance < side:
        rows = exchanged(rows, distance)
        distance *= 2
    assert rows == [[(j, i) for j in range(side)] for i in range(side)]


SYMBOLIC = {"both": ("n", "m"), "rows": ("n", 20), "columns": (20, "n"), "batch": (2, "n", "m")}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``y = 2·xᵀ + 1`` with tiles that overlap, narrower ones, and single elements."""
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.machine_of", with_usual_caches)
    sizes = {"n": te.var("n"), "m": te.var("m")}
    dims = SYMBOLIC[name]
    x = te.placeholder([sizes.get(dim, dim) for dim in dims], name="x")
    turned = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    y = te.compute(turned, lambda *i: x(*i[:-2], i[-1], i[-2]) * 2.0 + 1.0, name="y")
    run = ad.build(x, y, num_threads=2, cache=False)
    for n, m in itertools.product((0, 1, 3, 4, 5, 15, 17, 40), (0, 1, 4, 7, 16, 33)):
        shape = [{"n": n, "m": m}.get(dim, dim) for dim in dims]
        given = np.random.default_rng(0).integers(-9, 9, shape).astype("float32")
        np.testing.assert_array_equal(run(given), np.swapaxes(given, -1, -2) * 2 + 1)
    assert [row.rule for row in run.profile(given).kernels] == ["transposition"]
