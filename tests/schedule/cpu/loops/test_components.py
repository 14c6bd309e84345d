"""Components of a short last axis as stages of their own: the same values, and where they pay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te

from tests.machines import avx512
from tests.schedule.cases import axis, placeholder
from tests.schedule.fusion.test_groups import groups_of
from tvm_autodiff.compile import build
from tvm_autodiff.schedule.cpu.loops.components import with_components
from tvm_autodiff.schedule.cpu.rows import fused_rows

ROWS, POINTS = 19, 37


def points(parts: int, rows: Any = ROWS) -> tuple[list[Any], list[Any]]:
    """`m = tanh(x + v)`; a rate that differs by component; sums over all of it and over rows."""
    x, v = placeholder("x", rows, POINTS, parts), placeholder("v", rows, POINTS, parts)
    p = placeholder("p", 2)
    shape = (rows, POINTS, parts)
    m = te.compute(shape, lambda t, i, c: te.tanh(x[t, i, c] + v[t, i, c]), name="m")
    rate = te.compute(
        shape,
        lambda t, i, c: te.exp(
            te.if_then_else(
                c == 0,
                p[0] * m[t, i, 0] - m[t, i, 1] * x[t, i, 1],
                m[t, i, 0] * m[t, i, parts - 1] - p[1] * m[t, i, c],
            )
        ),
        name="rate",
    )
    c = axis(parts, "c")
    back = te.compute(
        shape,
        lambda t, i, e: te.sum(
            te.if_then_else(te.any(e == 0, c != 0), rate[t, i, c] * m[t, i, e], 0.0), axis=c
        ),
        name="back",
    )
    second = back if parts == 2 else m  # with more components a sum of products runs alone
    i, k = axis(POINTS, "i"), axis(parts, "k")
    largest = te.compute(
        (rows,), lambda t: te.max(rate[t, i, k] * second[t, i, k], axis=[i, k]), name="largest"
    )
    t, j, q = axis(rows, "t"), axis(POINTS, "j"), axis(parts, "q")
    total = te.compute(
        (),
        lambda: te.sum(
            te.if_then_else(q != 0, rate[t, j, q] * m[t, j, 0] * largest[t], 0.0), axis=[t, j, q]
        ),
        name="total",
    )
    return [x, v, p], [largest, total]


def in_numpy(x: np.ndarray, v: np.ndarray, p: np.ndarray) -> list[np.ndarray]:
    m = np.tanh(x + v)
    first = p[0] * m[..., :1] - m[..., 1:2] * x[..., 1:2]
    rate = np.exp(np.concatenate([first, m[..., :1] * m[..., -1:] - p[1] * m[..., 1:]], -1))
    back = m
    if x.shape[-1] == 2:
        back = rate[..., 1:] * m + rate[..., :1] * m * np.array([1.0, 0.0])
    largest = (rate * back).max((1, 2))
    total = (rate[..., 1:] * m[..., :1] * largest[:, None, None]).sum()
    return [largest, total]


def names(group: Any) -> set[str]:
    return {member.kernel.root.name for member in with_components(group, avx512()).members}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_values_agree_with_numpy(parts: int, threads: int) -> None:
    inputs, outputs = points(parts)
    [group] = groups_of(outputs)
    made = names(group)
    assert {"rate_0", f"rate_{parts - 1}", "m_0"} <= made
    assert ("back_0" in made) == (parts == 2)
    rng = np.random.default_rng(parts)
    arrays = [rng.standard_normal([int(n) for n in t.shape]).astype("float32") for t in inputs]
    results = build(inputs, outputs, num_threads=threads, cache=False)(*arrays)
    for got, want in zip(results, in_numpy(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_a_symbolic_number_of_rows() -> None:
    inputs, outputs = points(2, te.var("rows"))
    function = build(inputs, outputs, cache=False)
    rng = np.random.default_rng(1)
    for rows in (0, 1, 6):
        shapes = [(rows, POINTS, 2), (rows, POINTS, 2), (2,)]
        arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
        for got, want in zip(function(*arrays), in_numpy(*arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_loops_run_along_the_long_axis_and_nothing_is_selected() -> None:
    [group] = groups_of(points(2)[1])
    [launch] = fused_rows(group, avx512())
    text = launch.func.script()
    assert "Select" not in text
    assert "l in T.vectorized(2)" not in text
    assert "vectorized(16)" in text
    # what lies with gaps is copied once: no stage but the copies reads it
    assert sum("p0_x[" in line for line in text.splitlines()) == 2


def same_formula(rows: int) -> list[Any]:
    x = placeholder("x", rows, POINTS, 2)
    m = te.compute(x.shape, lambda t, i, c: te.tanh(x[t, i, c]), name="m")
    i, c = axis(POINTS, "i"), axis(2, "c")
    total = te.compute((rows,), lambda t: te.sum(m[t, i, c], axis=[i, c]), name="total")
    j, d = axis(POINTS, "j"), axis(2, "d")
    square = te.compute(
        (rows,), lambda t: te.sum(m[t, j, d] * m[t, j, d], axis=[j, d]), name="square"
    )
    return [total, square]


def test_components_of_one_formula_stay_together() -> None:
    [group] = groups_of(same_formula(ROWS))
    assert with_components(group, avx512()) is group


def test_components_that_are_read_by_a_number_that_varies_stay_together() -> None:
    largest, total = points(2)[1]
    [group] = groups_of([largest, total])
    rate = next(m.kernel.root for m in group.members if m.kernel.root.name == "rate")
    i, k = axis(POINTS, "i"), axis(2, "k")
    turned = te.compute(
        (ROWS,), lambda t: te.sum(rate.output(0)[t, i, 1 - k], axis=[i, k]), name="turned"
    )
    [group] = groups_of([turned, total])
    assert "rate_0" not in names(group)


def test_a_guarded_read_beyond_its_tensor_is_not_copied() -> None:
    x, y = placeholder("x", ROWS, POINTS - 1, 2), placeholder("y", ROWS, POINTS, 2)

    def moved(t: Any, i: Any, c: Any) -> Any:
        inside = te.if_then_else(i < POINTS - 1, x[t, i, 0], 0.0)
        return te.tanh(te.if_then_else(c == 0, inside, y[t, i, 1]))

    m = te.compute((ROWS, POINTS, 2), moved, name="m")
    i, c = axis(POINTS, "i"), axis(2, "c")
    total = te.compute((ROWS,), lambda t: te.sum(m[t, i, c], axis=[i, c]), name="total")
    j = axis(POINTS, "j")
    mixed = te.compute((ROWS,), lambda t: te.sum(m[t, j, 0] * m[t, j, 1], axis=j), name="mixed")
    [group] = groups_of([total, mixed])
    made = names(group)
    assert "m_0" in made
    assert "y_copy" in made
    assert "x_copy" not in made
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal([int(n) for n in t.shape]).astype("float32") for t in (x, y)]
    got = build([x, y], [total, mixed], cache=False)(*arrays)
    first = np.tanh(np.pad(arrays[0][..., 0], ((0, 0), (0, 1))))
    second = np.tanh(arrays[1][..., 1])
    np.testing.assert_allclose(got[0], first.sum(1) + second.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[1], (first * second).sum(1), rtol=1e-5, atol=1e-5)
