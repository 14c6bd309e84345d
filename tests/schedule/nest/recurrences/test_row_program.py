"""A step for one row, and the factors of its states: values of expressions against numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate
from tvm_autodiff.graph.kinds.loop import Step, step_of
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.nest.recurrences import row_program as module
from tvm_autodiff.schedule.nest.recurrences.affine_states import AffineStates, affine_states
from tvm_autodiff.schedule.nest.recurrences.row_program import RowProgram, row_program
from tvm_autodiff.schedule.nest.recurrences.state_latency import latency_of

Numbers = dict[Any, Any]


def tensors(shapes: Sequence[tuple[int, ...]], name: str) -> list[Any]:
    return [te.placeholder(shape, "float64", f"{name}{n}") for n, shape in enumerate(shapes)]


def values_of(
    program: RowProgram, rows: Sequence[int], states: Sequence[float], arrays: Numbers
) -> Numbers:
    """The values of all variables of a program for one row."""
    known: Numbers = dict(zip(program.rows, rows, strict=True))
    flat = [var for vars in program.states for var in vars]
    known.update(zip(flat, states, strict=True))
    for var, value in program.bindings:
        known[var] = evaluate(value, known, arrays, strict=True)
    return known


def product_step() -> Step:
    [h], [x], [w] = tensors([(5, 3)], "h"), tensors([(5, 3)], "x"), tensors([(3, 3)], "w")
    k = te.reduce_axis((0, 3), "k")
    mixed = te.compute((5, 3), lambda i, c: te.sum(w[c, k] * h[i, k], axis=k), name="mixed")
    new = te.compute(
        (5, 3), lambda i, c: te.if_then_else(c == 1, mixed[i, c] - x[i, 0], te.tanh(mixed[i, c]))
    )
    last = te.compute((5,), lambda i: new[i, 2] - h[i, 0], name="last")
    return step_of([h], [x], [w], [new], [last])


def test_components_and_terms_are_written_out() -> None:
    step = product_step()
    program = row_program(step, 1, 100)
    assert isinstance(program, RowProgram)
    assert (program.extents, program.components) == ((5,), 3)
    rng = np.random.default_rng(0)
    h, x, w = rng.standard_normal((5, 3)), rng.standard_normal((5, 3)), rng.standard_normal((3, 3))
    arrays = {step.xs[0]: x, step.consts[0]: w}
    mixed = h @ w.T
    want = np.tanh(mixed)
    want[:, 1] = mixed[:, 1] - x[:, 0]
    for row in range(5):
        known = values_of(program, [row], h[row], arrays)
        got = [evaluate(value, known) for value in program.news[0]]
        np.testing.assert_allclose(got, want[row], rtol=1e-13)
        [last] = program.ys[0]
        np.testing.assert_allclose(evaluate(last, known), want[row, 2] - h[row, 0], rtol=1e-12)


def test_without_rows_everything_is_a_component() -> None:
    program = row_program(product_step(), 0, 200)
    assert isinstance(program, RowProgram)
    assert (program.rows, program.components) == ((), 15)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda h, x, i: h[4 - i] + 1.0, "rows of h0 meet"),
        (lambda h, x, i: h[x[i].astype("int32")], "an index is data"),
        (lambda h, x, i: h[i] + te.if_then_else(i > 0, x[i - 1], 0.0), "under a condition"),
        (
            lambda h, x, i: h[i] + te.if_then_else(i > 0, (7 // i).astype("float64"), 0.0),
            "divides under a condition",
        ),
        (lambda h, x, i: te.round(h[i]), "calls round"),
    ],
)
def test_why_a_step_is_none(value: Callable[..., Any], reason: str) -> None:
    [h], [x] = tensors([(5,)], "h"), tensors([(5,)], "x")
    new = te.compute((5,), lambda i: value(h, x, i), name="new")
    found = row_program(step_of([h], [x], [], [new], []), 1, 100)
    assert isinstance(found, Declined)
    assert reason in found.reason


def test_points_are_counted() -> None:
    found = row_program(product_step(), 1, 12)
    assert isinstance(found, Declined)
    assert "more than 12 points" in found.reason
    # nine terms of three sums, three choices, one result
    assert isinstance(row_program(product_step(), 1, 13), RowProgram)


def test_a_large_stage_is_declined_before_its_points_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module._Writer, "program", lambda writer: pytest.fail("it was written"))
    found = row_program(product_step(), 1, 8)
    assert isinstance(found, Declined)
    assert "more than 8 points" in found.reason


def scalar(value: Any) -> te.Tensor:
    return te.compute((), lambda: value, name="v")


def scalar_program(step: Callable[..., Any], states: int) -> tuple[RowProgram, list[Any]]:
    """A step ``(h, x) → (news, ys)`` on scalars, with two inputs."""
    h, x = tensors([()] * states, "h"), tensors([(), ()], "x")
    news, ys = step([t() for t in h], [t() for t in x])
    made = [[scalar(value) for value in part] for part in (news, ys)]
    program = row_program(step_of(h, x, [], *made), 0, 100)
    assert isinstance(program, RowProgram)
    return program, x


@pytest.mark.parametrize(
    ("step", "levels", "results"),
    [
        (lambda h, x: ([x[0] * h[0] + x[1]], [h[0]]), (0,), (1,)),
        (lambda h, x: ([h[0] + x[0] * (x[1] - h[0])], [x[0]]), (0,), (0,)),
        (lambda h, x: ([(h[0] - 2.0 * h[0] * x[0]) / (1.5 + x[1] * x[1])], []), (0,), ()),
        (lambda h, x: ([te.if_then_else(x[0] > 0.0, x[1], -h[0])], [h[0]]), (0,), (1,)),
        (lambda h, x: ([x[0] * x[1]], [h[0]]), (0,), (1,)),
        (lambda h, x: ([h[0] * x[0], h[1] + te.exp(h[0])], [h[0], h[1]]), (0, 1), (1, 2)),
        (lambda h, x: ([h[0] * te.tanh(h[1]), h[1] - x[0]], [h[1]]), (1, 0), (1,)),
        (lambda h, x: ([h[1], h[2] + x[0], 0.5 * h[2]], [h[0]]), (2, 1, 0), (3,)),
    ],
)
def test_factors_are_slopes(
    step: Callable[..., Any], levels: tuple[int, ...], results: tuple[int, ...]
) -> None:
    program, x = scalar_program(step, len(levels))
    found = affine_states(program)
    assert isinstance(found, AffineStates)
    assert (found.levels, found.result_levels) == (levels, results)
    rng = np.random.default_rng(4)
    for values in rng.standard_normal((5, len(levels) + 2)):
        states, arrays = values[: len(levels)], dict(zip(x, values[len(levels) :], strict=True))
        known = values_of(found.program, [], states, arrays)
        for number, factor in enumerate(found.factors):
            ends = []
            for moved in (states[number] + 1.0, states[number] - 1.0):
                here = states.copy()
                here[number] = moved
                [new] = found.program.news[number]
                ends.append(evaluate(new, values_of(found.program, [], here, arrays)))
            np.testing.assert_allclose(
                evaluate(factor, known), (ends[0] - ends[1]) / 2, rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize(
    "step",
    [
        lambda h, x: ([h[0] * h[0], h[1]], []),
        lambda h, x: ([x[0] / h[0], h[1]], []),
        lambda h, x: ([te.max(h[0], 0.0), h[1]], []),
        lambda h, x: ([te.if_then_else(h[0] > 0.0, x[0], x[1]), h[1]], []),
        lambda h, x: ([h[1], h[0]], []),
        lambda h, x: ([x[0] * te.exp(h[0]), h[1]], []),
    ],
)
def test_states_that_are_not_affine(step: Callable[..., Any]) -> None:
    program, _ = scalar_program(step, 2)
    assert affine_states(program) is None


@pytest.mark.parametrize(
    ("step", "length"),
    [
        (lambda h, x: ([x[0] * h[0] + x[1]], []), 1),
        (lambda h, x: ([h[0] + x[0] * (x[1] - h[0])], []), 2),
        (lambda h, x: ([h[0] + (x[0] + x[1] * x[0])], []), 1),
        (lambda h, x: ([h[0] / x[0]], []), 3),
        (lambda h, x: ([x[0]], []), 0),
    ],
)
def test_how_long_a_step_waits(step: Callable[..., Any], length: int) -> None:
    assert latency_of(scalar_program(step, 1)[0]) == length
