"""Loops of small steps as one function: numpy's values, and which loops they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.machines import with_usual_caches
from tests.schedule.loop_cases import LOOPS, LoopCase
from tests.schedule.test_slow_kernels import WARP
from tvm_autodiff.codegen.stages.primfunc import StageFunction, stage_function
from tvm_autodiff.errors import PlainScheduleWarning
from tvm_autodiff.graph.kinds.loop import Loop, loop_stage, step_of
from tvm_autodiff.schedule.kernel import Kernel


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules do not depend on this host."""
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.machine_of", with_usual_caches)


def rules_of(function: object, arrays: list[np.ndarray]) -> list[str]:
    return [kernel.rule for kernel in function.profile(*arrays, repeats=1).kernels]


@pytest.mark.parametrize("case", LOOPS, ids=lambda case: case.name)
@pytest.mark.parametrize("reverse", [False, True])
def test_small_loops_agree_with_numpy(case: LoopCase, reverse: bool) -> None:
    inputs, outputs = case.program(te.var("steps"), reverse)
    symbolic = ad.build(inputs, outputs, cache=False)
    literal = ad.build(*case.program(5, reverse), cache=False)
    for length in (0, 1, 2, 5):
        arrays = case.arrays(length)
        for function in (symbolic, literal) if length == 5 else (symbolic,):
            expected = case.expected(arrays, length, reverse)
            for got, want in zip(function(*arrays), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    # without a state there is nothing to wait for, and no loop
    whole = {"small_loop", "row_loop"} & set(rules_of(literal, case.arrays(5)))
    assert bool(whole) == bool(case.carries)


def decays(size: int) -> tuple[list[te.Tensor], list[te.Tensor]]:
    h, x = te.placeholder((size,), "float32", "h"), te.placeholder((size,), "float32", "x")
    new = te.compute((size,), lambda i: 0.5 * h[i] + x[i], name="new")
    init, xs = te.placeholder((size,), "float32", "i"), te.placeholder((9, size), "float32", "xs")
    loop = Loop(step_of([h], [x], [], [new], []), (init,), (xs,), (), 9)
    return [init, xs], loop_stage("decays", loop)


FEW = 3  #: the most rows of floats that fill less than half a vector of 32 bytes


@pytest.mark.parametrize(("size", "small"), [(1, True), (FEW, True), (5_000, False)])
def test_the_work_of_a_step_decides(size: int, small: bool) -> None:
    inputs, outputs = decays(size)
    function = ad.build(inputs, outputs, num_threads=1, cache=False)
    arrays = [np.ones(tuple(map(int, t.shape)), "float32") for t in inputs]
    assert (rules_of(function, arrays) == ["small_loop"]) == small
    np.testing.assert_allclose(function(*arrays)[0], np.full(size, 2.0 - 0.5**9), rtol=1e-6)


def test_a_loop_inside_of_a_step_is_called() -> None:
    init = te.placeholder((1,), "float32", "init")
    h, x = te.placeholder((1,), "float32", "h"), te.placeholder((9, 1), "float32", "x")
    inner = Loop(
        step_of([a := te.placeholder((1,), "float32", "a")], [b := te.placeholder((1,), "float32")],
                [], [te.compute((1,), lambda i: a[i] - b[i], name="less")], []),
        (h,), (x,), (), 9,
    )  # fmt: skip
    xs = te.placeholder((3, 9, 1), "float32", "xs")
    step = step_of([h], [x], [], loop_stage("inner", inner), [])
    outer = loop_stage("outer", Loop(step, (init,), (xs,), (), 3))
    function = ad.build([init, xs], outer, cache=False)
    arrays = [np.ones(1, "float32"), np.ones((3, 9, 1), "float32")]
    np.testing.assert_array_equal(function(*arrays)[0], np.full(1, 1.0 - 27.0))
    assert rules_of(function, arrays) == ["small_loop"]


def test_a_function_that_tvm_refuses_becomes_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm_autodiff.schedule.cpu.recurrences import small_loop

    def broken(kernel: Kernel, loop: Loop, *others: Any) -> list[StageFunction]:
        """Code that TVM cannot compile for a CPU: it calls what only GPUs have."""
        [launch] = small_loop.small_loop(kernel, loop, *others)
        made = te.compute((1,), lambda i: WARP, name="made")
        return [replace(launch, func=stage_function([made.op], [made]).func, inputs=())]

    broken.__name__ = "small_loop"
    monkeypatch.setattr("tvm_autodiff.schedule.plan.loop_rules_for", lambda machine: [broken])
    inputs, outputs = decays(1)
    told = "stage decays by rule loop.*small_loop: TVM rejects"
    with pytest.warns(PlainScheduleWarning, match=told):
        function = ad.build(inputs, outputs, cache=False)
    arrays = [np.ones(tuple(map(int, t.shape)), "float32") for t in inputs]
    assert rules_of(function, arrays) == ["elementwise"]
    np.testing.assert_allclose(function(*arrays)[0], np.full(1, 2.0 - 0.5**9), rtol=1e-6)
