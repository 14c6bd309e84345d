"""Rows of a step that never meet: found by how they are read, and run in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.machines import avx512
from tvm_autodiff.graph.kinds.loop import Loop, Step, loop_stage, step_of
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.loop_rows import rows_apart
from tvm_autodiff.schedule.rewrites.loops.row_blocks import row_blocks

ROWS = 8


def placeholders() -> tuple[te.Tensor, ...]:
    shapes = {"h": (ROWS, 3), "x": (ROWS, 3), "w": (3, 3), "scale": (ROWS,), "time": ()}
    return tuple(te.placeholder(shape, "float64", name) for name, shape in shapes.items())


def cell(h: Any, x: Any, w: Any, scale: Any, time: Any) -> tuple[te.Tensor, te.Tensor]:
    k = te.reduce_axis((0, 3), "k")
    product = te.compute((ROWS, 3), lambda i, j: te.sum(h[i, k] * w[k, j], axis=k), name="product")
    new = te.compute(
        (ROWS, 3), lambda i, j: te.tanh(product[i, j] + x[i, 2 - j]) * scale[i] + time(), name="new"
    )
    first = te.compute((ROWS,), lambda i: new[i, 0], name="first")
    return new, first


def cell_step() -> Step:
    h, x, w, scale, time = placeholders()
    new, first = cell(h, x, w, scale, time)
    return step_of([h], [x, time], [w, scale], [new], [first])


def test_a_block_is_the_step_for_some_of_its_rows() -> None:
    step = cell_step()
    blocks = row_blocks(step, 2)
    small = blocks.step
    assert blocks.count == 2
    assert [tuple(map(int, tensor.shape)) for tensor in small.inputs] == [
        *((4, 3), (4, 3), (), (3, 3), (4,)),
    ]
    assert [tensor.op.name for tensor in blocks.shared] == ["w"]
    rng = np.random.default_rng(2)
    values = {t: rng.standard_normal(tuple(map(int, t.shape))) for t in step.inputs}
    whole = evaluate_graph(step.outputs, values)
    for part in (slice(0, 4), slice(4, 8)):
        given = {
            new: values[old][part] if len(new.shape) and int(new.shape[0]) == 4 else values[old]
            for old, new in zip(step.inputs, small.inputs, strict=True)
        }
        for got, want in zip(evaluate_graph(small.outputs, given), whole, strict=True):
            np.testing.assert_array_equal(got, want[part])


def turned(h: Any) -> te.Tensor:
    return te.compute((ROWS, 3), lambda i, j: h[ROWS - 1 - i, j], name="turned")


def neighbours(h: Any) -> te.Tensor:
    return te.compute(
        (ROWS, 3),
        lambda i, j: h[i, j] + te.if_then_else(i > 0, h[i - 1, j], 0.0),
        name="neighbours",
    )


def numbered(h: Any) -> te.Tensor:
    return te.compute((ROWS, 3), lambda i, j: h[i, j] + i.astype("float64"), name="numbered")


def centred(h: Any) -> te.Tensor:
    k = te.reduce_axis((0, ROWS), "k")
    mean = te.compute((3,), lambda j: te.sum(h[k, j], axis=k), name="mean")
    return te.compute((ROWS, 3), lambda i, j: h[i, j] - mean[j], name="centred")


@pytest.mark.parametrize(
    ("function", "stage"),
    [(turned, "turned"), (neighbours, "neighbours"), (numbered, "numbered"), (centred, "mean")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_that_meet_stay_together(function: Callable[..., Any], stage: str) -> None:
    h = te.placeholder((ROWS, 3), "float64", "h")
    found = row_blocks(step_of([h], [], [], [function(h)], []), 2)
    assert isinstance(found, Declined)
    assert f"rows meet in stage {stage}" in found.reason


def test_a_square_state_that_is_turned_meets_itself() -> None:
    h = te.placeholder((ROWS, ROWS), "float64", "h")
    new = te.compute((ROWS, ROWS), lambda i, j: h[j, i] + h[i, j], name="new")
    assert isinstance(row_blocks(step_of([h], [], [], [new], []), 2), Declined)


def test_a_state_that_a_matrix_mixes_meets_itself() -> None:
    """``Σ_k w[i, k]·h[k]``: the rows of w are those of the result, and all rows of h are read."""
    h, w = te.placeholder((ROWS,), "float64", "h"), te.placeholder((ROWS, ROWS), "float64", "w")
    k = te.reduce_axis((0, ROWS), "k")
    new = te.compute((ROWS,), lambda i: te.sum(w[i, k] * h[k], axis=k), name="new")
    assert "rows meet in stage new" in row_blocks(step_of([h], [], [w], [new], []), 2).reason
    first = te.compute((ROWS,), lambda i: h[i] * h[0], name="first")
    assert "rows meet in stage first" in row_blocks(step_of([h], [], [], [first], []), 2).reason


def test_a_result_that_all_rows_share_keeps_them_together() -> None:
    h, _, w, _, _ = placeholders()
    new = te.compute((ROWS, 3), lambda i, j: h[i, j] * 0.5, name="new")
    same = te.compute((3,), lambda j: w[j, j], name="same")
    assert "the same for all rows" in row_blocks(step_of([h], [], [w], [new], [same]), 2).reason


@pytest.mark.parametrize(
    ("rows", "threads", "count"), [(8, 2, 2), (10, 2, 2), (9, 3, 3), (12, 8, None), (7, 2, None)]
)
def test_blocks_are_equal_for_all_threads(rows: int, threads: int, count: int | None) -> None:
    h = te.placeholder((rows,), "float64", "h")
    new = te.compute((rows,), lambda i: 0.5 * h[i], name="new")
    found = row_blocks(step_of([h], [], [], [new], []), threads)
    assert (None if isinstance(found, Declined) else found.count) == count


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kept", ["after", "before", "nothing"])
def test_built_blocks_agree_with_numpy(
    threads: int, reverse: bool, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvm_autodiff.schedule.plan.loop_rules_for", lambda machine: ())
    h, x, w, scale, time = placeholders()
    new, first = cell(h, x, w, scale, time)
    ys = {"after": [new, first], "before": [first, h], "nothing": []}[kept]
    step = step_of([h], [x, time], [w, scale], [new], ys)
    length = 300
    inputs = [
        te.placeholder(shape, "float64", name)
        for name, shape in (
            *(("init", (ROWS, 3)), ("xs", (length, ROWS, 3)), ("times", (length,))),
            *(("weights", (3, 3)), ("scales", (ROWS,))),
        )
    ]
    init, xs, times, weights, scales = inputs
    loop = Loop(step, (init,), (xs, times), (weights, scales), length, reverse)
    function = ad.build(inputs, loop_stage("cells", loop), num_threads=threads, cache=False)
    rng = np.random.default_rng(5)
    arrays = [0.5 * rng.standard_normal(tuple(map(int, t.shape))) for t in inputs]
    state, stacked = arrays[0], [None] * length
    for t in reversed(range(length)) if reverse else range(length):
        old = state
        moved = np.tanh(old @ arrays[3] + arrays[1][t][:, ::-1])
        state = moved * arrays[4][:, None] + arrays[2][t]
        rows = {"after": (state, state[:, 0]), "before": (state[:, 0], old), "nothing": ()}
        stacked[t] = rows[kept]
    results = function(*arrays)
    np.testing.assert_allclose(results[0], state, rtol=1e-12)
    for n, got in enumerate(results[1:]):
        np.testing.assert_allclose(got, [row[n] for row in stacked], rtol=1e-12)
    calls = {kernel.calls for kernel in function.profile(*arrays, repeats=1).kernels}
    assert calls == {threads * length}


def test_one_step_alone_does_not_run_in_blocks() -> None:
    """There is nothing that threads would run through apart: each kernel has them."""
    h = te.placeholder((1 << 16,), "float64", "h")
    new = te.compute(h.shape, lambda i: te.exp(0.5 * h[i]), name="new")
    machine = avx512(2)
    for length, apart in ((1, False), (2, True)):
        loop = Loop(step_of([h], [], [], [new], []), (h,), (), (), length)
        assert (rows_apart(loop, machine) is not None) == apart
