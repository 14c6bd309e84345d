"""Loops whose rows never meet, with rows in vectors: numpy's values, and which loops they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.machines import with_usual_caches
from tests.schedule.loop_cases import LoopCase
from tests.schedule.test_slow_kernels import WARP
from tvm_autodiff.codegen.stages.primfunc import StageFunction, stage_function
from tvm_autodiff.errors import PlainScheduleWarning
from tvm_autodiff.schedule.cpu.recurrences import row_loop as rule
from tvm_autodiff.schedule.cpu.recurrences.small_loop import small_loop


def each(like: Any, value: Callable[..., Any], name: str = "v") -> te.Tensor:
    return te.compute(like.shape, value, name=name)


def lorenz(c: Any, x: Any, k: Any) -> Any:
    [y], [p] = c, k

    def rate(i: Any, n: Any) -> Any:
        a, b = y[i, 0], y[i, 1]
        return te.if_then_else(
            n == 0,
            p[0] * (b - a),
            te.if_then_else(n == 1, a * (p[1] - y[i, 2]) - b, a * b - p[2] * y[i, 2]),
        )

    k1 = each(y, rate, "rate")
    new = each(y, lambda i, n: y[i, n] + 0.01 * k1[i, n], "new")
    return [new], [new]


def lorenz_numpy(c: Any, x: Any, k: Any) -> Any:
    [y], [p] = c, k
    a, b, d = y.T
    rate = np.stack([p[0] * (b - a), a * (p[1] - d) - b, a * b - p[2] * d], 1)
    return 2 * ([y + 0.01 * rate],)


def mixing(c: Any, x: Any, k: Any) -> Any:
    """A product with a small matrix in each row, of two carries."""
    h, m = c
    j = te.reduce_axis((0, 4), "j")
    mixed = te.compute(h.shape, lambda i, n: te.sum(h[i, j] * k[0][j, n], axis=j), name="mixed")
    new = each(h, lambda i, n: te.tanh(mixed[i, n] + x[0][i, n] + m[i, n // 2]), "new")
    r = te.reduce_axis((0, 2), "r")
    best = te.compute(m.shape, lambda i, n: te.max(new[i, 2 * n + r], axis=r), name="best")
    return [new, best], [best, h]


def mixing_numpy(c: Any, x: Any, k: Any) -> Any:
    h, m = c
    new = np.tanh(h @ k[0] + x[0] + np.repeat(m, 2, axis=1))
    best = new.reshape(len(h), 2, 2).max(axis=2)
    return [new, best], [best, h]


def choosing(c: Any, x: Any, k: Any) -> Any:
    """Conditions on data, and one number for all rows."""
    [h], [now, alone] = c, x

    def value(i: Any) -> Any:
        kept = te.if_then_else(h[i] > k[0][i], h[i] / (1.0 + h[i] * h[i]), now[i])
        return kept + te.max(alone(), te.abs(now[i])) * i.astype("float64") / 64.0

    new = each(h, value, "new")
    return [new], [each(h, lambda i: new[i] - h[i], "change")]


def choosing_numpy(c: Any, x: Any, k: Any) -> Any:
    [h], [now, alone] = c, x
    new = np.where(h > k[0], h / (1.0 + h * h), now)
    new = new + np.maximum(alone, np.abs(now)) * np.arange(len(h)) / 64.0
    return [new], [new - h]


def counting(c: Any, x: Any, k: Any) -> Any:
    """Row numbers in the arithmetic, an outer factor of the step, a table that is read across."""
    [h] = c
    scale = te.compute((2,), lambda n: x[0][n] * 0.5 + 1.0, name="scale")
    new = each(
        h, lambda i: te.abs(h[i]) * 0.5 + scale[1] * k[0][2, i] - scale[0] * k[0][0, i], "new"
    )
    return [new], [new]


def counting_numpy(c: Any, x: Any, k: Any) -> Any:
    scale = x[0] * 0.5 + 1.0
    return 2 * ([np.abs(c[0]) * 0.5 + scale[1] * k[0][2] - scale[0] * k[0][0]],)


def planar(c: Any, x: Any, k: Any) -> Any:
    """Two axes of rows, with what is the same along one of them."""
    [h] = c
    new = each(h, lambda i, j: h[i, j] * k[0][j] + x[0][i, j] * k[1][i], "new")
    return [new], [new]


def planar_numpy(c: Any, x: Any, k: Any) -> Any:
    return 2 * ([c[0] * k[0] + x[0] * k[1][:, None]],)


def shifting(c: Any, x: Any, k: Any) -> Any:
    """A row keeps the last three numbers."""
    [h] = c
    new = each(h, lambda i, n: te.if_then_else(n < 2, h[i, te.min(n + 1, 2)], x[0][i]), "new")
    return [new], []


def shifting_numpy(c: Any, x: Any, k: Any) -> Any:
    return [np.concatenate([c[0][:, 1:], x[0][:, None]], 1)], []


def recurrent(c: Any, x: Any, k: Any) -> Any:
    """More components than vectors have lanes: squares of them are transposed, the last of which
    overlap.
    """
    [h] = c
    j = te.reduce_axis((0, 11), "j")
    mixed = te.compute(h.shape, lambda i, n: te.sum(h[i, j] * k[0][j, n], axis=j), name="mixed")
    new = each(h, lambda i, n: te.tanh(mixed[i, n] + x[0][i, n]), "new")
    return [new], [new]


def recurrent_numpy(c: Any, x: Any, k: Any) -> Any:
    return 2 * ([np.tanh(c[0] @ k[0] + x[0])],)


def long(c: Any, x: Any, k: Any) -> Any:
    """A row of more numbers than are held in registers."""
    [h], [f], [w] = c, x, k
    j = te.reduce_axis((0, 2), "j")
    at = lambda i, n: te.sum(h[i, te.min(n + j, 69)] * w[j], axis=j)  # noqa: E731
    mixed = te.compute(h.shape, at, name="mixed")
    new = each(h, lambda i, n: te.tanh(mixed[i, n] + f[i, n]), "new")
    return [new], [new]


def long_numpy(c: Any, x: Any, k: Any) -> Any:
    after = np.concatenate([c[0][:, 1:], c[0][:, -1:]], 1)
    return 2 * ([np.tanh(c[0] * k[0][0] + after * k[0][1] + x[0])],)


def cases(rows: int) -> list[LoopCase]:
    return [
        LoopCase("lorenz", [(rows, 3)], [(1,)], [(3,)], lorenz, lorenz_numpy),
        LoopCase("mixing", [(rows, 4), (rows, 2)], [(rows, 4)], [(4, 4)], mixing, mixing_numpy),
        LoopCase("choosing", [(rows,)], [(rows,), ()], [(rows,)], choosing, choosing_numpy),
        LoopCase("counting", [(rows,)], [(2,)], [(3, rows)], counting, counting_numpy),
        LoopCase(
            "planar", [(5, rows)], [(5, rows)], [(rows,), (5,)], planar, planar_numpy
        ),
        LoopCase(
            "recurrent", [(rows, 11)], [(rows, 11)], [(11, 11)], recurrent, recurrent_numpy
        ),
        LoopCase("shifting", [(rows, 3)], [(rows,)], [], shifting, shifting_numpy),
    ]  # fmt: skip


NAMES = [case.name for case in cases(8)]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules do not depend on this host."""
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.machine_of", with_usual_caches)


def rules_of(function: Any, arrays: list[np.ndarray]) -> list[str]:
    return [kernel.rule for kernel in function.profile(*arrays, repeats=1).kernels]


@pytest.mark.parametrize(("rows", "reverse"), [(4, 0), (13, 1), (16, 0), (100, 1)])
@pytest.mark.parametrize("name", NAMES)
def test_rows_in_vectors_agree_with_numpy(name: str, rows: int, reverse: int) -> None:
    case = cases(rows)[NAMES.index(name)]
    function = ad.build(*case.program(te.var("steps"), bool(reverse)), num_threads=1, cache=False)
    for length in (0, 1, 2, 7):
        arrays = case.arrays(length)
        assert rules_of(function, arrays) == ["row_loop"]
        expected = case.expected(arrays, length, bool(reverse))
        for got, want in zip(function(*arrays), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("rows", [8, 11])
def test_long_rows_are_transposed(rows: int) -> None:
    case = LoopCase("long", [(rows, 70)], [(rows, 70)], [(2,)], long, long_numpy)
    arrays = case.arrays(3)
    function = ad.build(*case.program(3), num_threads=1, cache=False)
    assert rules_of(function, arrays) == ["row_loop"]
    for got, want in zip(function(*arrays), case.expected(arrays, 3), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("rows", [1_000, 1_001])
@pytest.mark.parametrize("name", NAMES[:4])
def test_blocks_of_rows_on_threads(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, so that there are several of them for each thread."""
    small = lambda *given: replace(with_usual_caches(*given), first_cache_bytes=2_048)  # noqa: E731
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.machine_of", small)
    monkeypatch.setattr(rule, "KERNEL_CALL", 10_000)
    case = cases(rows)[NAMES.index(name)]
    arrays = case.arrays(40)
    function = ad.build(*case.program(40), num_threads=3, cache=False)
    assert rules_of(function, arrays) == ["row_loop"]
    for got, want in zip(function(*arrays), case.expected(arrays, 40), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [8, 16, 50])
def test_integers_and_float32(rows: int) -> None:
    def step(c: Any, x: Any, k: Any) -> Any:
        return [each(c[0], lambda i: c[0][i] * 3 - te.max(x[0][i], 0) // 2, "n")], [c[0]]

    def in_numpy(c: Any, x: Any, k: Any) -> Any:
        return [c[0] * 3 - np.maximum(x[0], 0) // 2], [c[0]]

    case = LoopCase("integers", [(rows,)], [(rows,)], [], step, in_numpy)
    for dtype in ("int32", "int64"):
        arrays = case.arrays(9, dtype)
        function = ad.build(*case.program(9, dtype=dtype), cache=False)
        assert rules_of(function, arrays) == ["row_loop"]
        for got, want in zip(function(*arrays), case.expected(arrays, 9), strict=True):
            np.testing.assert_array_equal(got, want)
    for other in [*cases(rows)[:2], *cases(rows)[5:6]]:
        arrays = other.arrays(9, "float32")
        function = ad.build(*other.program(9, dtype="float32"), cache=False)
        assert rules_of(function, arrays) == ["row_loop"]
        for got, want in zip(function(*arrays), other.expected(arrays, 9), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def neighbours(c: Any, x: Any, k: Any) -> Any:
    return [each(c[0], lambda i: te.if_then_else(i > 0, c[0][i - 1], x[0][i]), "n")], []


def gathered(c: Any, x: Any, k: Any) -> Any:
    place = x[0]
    return [each(c[0], lambda i: c[0][i] + k[0][place[i].astype("int32")], "n")], []


def guarded(c: Any, x: Any, k: Any) -> Any:
    """A read that is inside only where its condition holds."""
    return [each(c[0], lambda i: c[0][i] + te.if_then_else(i > 0, x[0][i - 1], 0.0), "n")], []


@pytest.mark.parametrize(
    ("step", "in_numpy"),
    [
        (neighbours, lambda c, x, k: ([np.r_[x[0][:1], c[0][:-1]]], [])),
        (gathered, lambda c, x, k: ([c[0] + k[0][x[0].astype(int)]], [])),
        (guarded, lambda c, x, k: ([c[0] + np.r_[0.0, x[0][:-1]]], [])),
    ],
    ids=["neighbours", "gathered", "guarded"],
)
def test_steps_that_are_none(step: Any, in_numpy: Any) -> None:
    case = LoopCase("none", [(32,)], [(32,)], [(40,)], step, in_numpy)
    arrays = [np.abs(array) for array in case.arrays(6)]
    function = ad.build(*case.program(6), cache=False)
    assert "row_loop" not in rules_of(function, arrays)
    for got, want in zip(function(*arrays), case.expected(arrays, 6), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_wide_rows_of_one_kernel_are_called() -> None:
    def step(c: Any, x: Any, k: Any) -> Any:
        return [each(c[0], lambda i: 0.5 * c[0][i] + x[0][i], "new")], []

    for rows, whole in ((400, True), (2_000, False)):
        case = LoopCase("wide", [(rows,)], [(rows,)], [], step, lambda c, x, k: ([], []))
        inputs, outputs = case.program(8)
        rules = rules_of(ad.build(inputs, outputs, num_threads=1, cache=False), case.arrays(8))
        assert (rules == ["row_loop"]) == whole


def test_a_function_that_tvm_refuses_becomes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    real = rule.row_loop

    def broken(*arguments: Any) -> list[StageFunction]:
        """Code that TVM cannot compile for a CPU: it calls what only GPUs have."""
        [launch] = real(*arguments)
        made = te.compute((4,), lambda i: WARP, name="made")
        return [replace(launch, func=stage_function([made.op], [made]).func, inputs=())]

    broken.__name__ = "row_loop"
    rules = [broken, small_loop]
    monkeypatch.setattr("tvm_autodiff.schedule.plan.loop_rules_for", lambda machine: rules)
    case = cases(16)[-1]
    with pytest.warns(PlainScheduleWarning, match="row_loop: TVM rejects"):
        function = ad.build(*case.program(5), cache=False)
    arrays = case.arrays(5)
    for got, want in zip(function(*arrays), case.expected(arrays, 5), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
