"""Parts of stages that some axes do not change: which are stages of their own, and equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import check_numbers
from tvm_autodiff.graph.graph import tensors_read_by
from tvm_autodiff.rules.parts.repeated_parts import repeated_parts

x = te.placeholder((5, 4), "float64", name="x")
w = te.placeholder((5,), "float64", name="w")
places = te.placeholder((5,), "int32", name="places")


def dot(b: Any) -> Any:
    return x[b, 0] * x[b, 1] + x[b, 2] * x[b, 3]


def chosen(condition: Any, value: Any) -> Any:
    return te.if_then_else(condition, value, te.const(0, "float64"))


def select(condition: Any, value: Any) -> Any:
    return tirx.Select(condition, value, te.const(0, "float64"))


#: the body over b < 5 and c < 4, and how many parts are stages
CASES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "a function of two elements": (lambda b, c: te.exp(x[b, 0] * w[b]) * x[b, c], 1),
    "a quotient": (lambda b, c: x[b, 0] / (w[b] * w[b] + 1) + x[b, c], 1),
    "two functions": (lambda b, c: te.sin(x[b, 0] * w[b]) * x[b, c] + te.cos(x[b, 1] * w[b]), 2),
    "what two functions share": (
        lambda b, c: te.sin(te.exp(dot(b)) * w[b]) * x[b, c] + te.cos(te.exp(dot(b))),
        3,
    ),
    "of the last axis": (lambda b, c: te.exp(x[0, c] * x[1, c]) * x[b, c], 1),
    "of no axis": (lambda b, c: te.exp(x[0, 0] * w[0]) * x[b, c], 1),
    "at places that data give": (lambda b, c: te.exp(x[places[b], 0] * w[b]) * x[b, c], 1),
    "guarded inside": (
        lambda b, c: te.exp(chosen(b > 0, x[te.max(b - 1, 0), 0]) * w[b]) * x[b, c],
        1,
    ),
    "one element": (lambda b, c: te.exp(w[b]) * x[b, c], 0),
    "one element at a place of data": (lambda b, c: te.exp(x[places[b], 0]) * x[b, c], 0),
    "few operations": (lambda b, c: (x[b, 0] * w[b] + w[b]) * x[b, c], 0),
    "of all axes": (lambda b, c: te.exp(x[b, c] * w[b]), 0),
    "a whole choice": (lambda b, c: chosen(w[b] > 1, te.sqrt(w[b] * x[b, 0])) * x[b, c], 1),
    "a side of a branch": (lambda b, c: chosen(c > 0, te.sqrt(w[b] * x[b, 0])) * x[b, c], 0),
    "a side of a selection": (lambda b, c: select(c > 0, te.log(w[b] * x[b, 0])) * x[b, c], 0),
    "a side of a maximum": (lambda b, c: te.max(te.exp(w[b] * x[b, 0]), x[b, c]), 0),
}


def stage_of(name: str) -> tuple[Any, int]:
    body, parts = CASES[name]
    return te.compute((5, 4), body, name="y"), parts


def data() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    values = [rng.uniform(0.5, 1.5, shape) for shape in ((5, 4), (5,))]
    return [(x, values[0]), (w, values[1]), (places, np.array([3, 0, 4, 0, 1], "int32"))]


def parts_of(stage: Any) -> set[str]:
    """The names of the stages below one that are no inputs."""
    found, pending = set(), [stage]
    while pending:
        for tensor in tensors_read_by(pending.pop().op):
            if "repeated" in tensor.op.name:
                found.add(tensor.op.name)
                pending.append(tensor)
    return found


@pytest.mark.parametrize("name", CASES)
def test_parts_and_values(name: str) -> None:
    stage, parts = stage_of(name)
    found = repeated_parts(stage.op)
    if not parts:
        assert found is None
        return
    assert found is not None
    assert len(parts_of(found[0])) == parts
    assert repeated_parts(found[0].op) is None
    want, got = (evaluate_graph([one], data())[0] for one in (stage, found[0]))
    np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    stage, _ = stage_of(name)
    check_numbers(stage, [x, w], values=dict(data()))


def test_an_axis_of_one_element_repeats_nothing() -> None:
    assert repeated_parts(te.compute((5, 1), CASES["a quotient"][0], name="y").op) is None


def test_parts_are_not_read_for_axes_that_may_be_empty() -> None:
    """``x[b, 0]`` is no element of x where it has no columns."""
    n = te.var("n")
    rows, columns = (te.placeholder(shape, "float64", name="z") for shape in ((n, 4), (5, n)))
    of_rows = te.compute((n, 4), lambda b, c: te.exp(rows[b, 0] * rows[b, 1]) * rows[b, c])
    assert repeated_parts(of_rows.op) is not None
    of_columns = te.compute((5, n), lambda b, c: te.exp(columns[b, 0] * w[b]) * columns[b, c])
    assert repeated_parts(of_columns.op) is None
    empty = te.compute((5, 4, 0), lambda b, c, _: CASES["a quotient"][0](b, c))
    assert repeated_parts(empty.op) is None


def test_a_jacobian_keeps_the_stage() -> None:
    """Its zeros are found in one expression."""
    stage, _ = stage_of("a function of two elements")
    jacobian = ad.jacobian(stage, w)
    assert not any("repeated" in tensor.op.name for tensor in tensors_read_by(jacobian.op))
