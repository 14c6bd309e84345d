"""What loops read away from their borders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te

from tvm_autodiff.expr.nodes import is_load
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.stage import loop_axes, sources_of
from tvm_autodiff.schedule.nest.access import strides_along
from tvm_autodiff.schedule.nest.inside import reads_within, unit_strides_inside

N = 20
X = te.placeholder((N, N), "float32", name="x")
n = te.var("n")
HALF = n // 2 * 2 + 1
S = te.placeholder((HALF,), "float32", name="s")


def row(body: Callable[[Any, Any], Any]) -> Any:
    return te.compute((N, N), body, name="y")


def where(condition: Any, value: Any) -> Any:
    return te.if_then_else(condition, value, 0.0)


#: name → the stage, and the strides of its reads along the last axis, inside of the borders
CASES: dict[str, tuple[Any, list[int] | None]] = {
    "plain": (row(lambda i, j: X[i, j]), [1]),
    "clamped": (row(lambda i, j: X[i, te.max(j - 1, 0)]), [1]),
    "wrapped": (row(lambda i, j: X[i, (j + 1) % N]), [1]),
    "the border turns": (row(lambda i, j: X[i, j] + where(j.equal(0), X[i, -j])), [1]),
    "both borders turn": (
        row(
            lambda i, j: (
                X[i, j] + where(j < 1, X[i, -j]) + where(j >= N - 1, X[i, 2 * N - 2 - j])
            )
        ),
        [1],
    ),
    "all turns": (row(lambda i, j: X[i, N - 1 - j]), None),
    "a symbolic extent with a quotient": (
        te.compute((HALF,), lambda i: S[te.if_then_else(i < 2, 0, i)]),
        [1],
    ),
    "another loop decides": (row(lambda i, j: X[i, j] + where(i.equal(0), X[i, N - 1 - j])), None),
}


@pytest.mark.parametrize("name", CASES)
def test_strides_inside(name: str) -> None:
    stage, strides = CASES[name]
    axes = loop_axes(stage.op)
    variables = [axis.var for axis in axes]
    reads = reads_within(sources_of(stage.op), axes, axes[-1].var)
    assert all(map(is_load, reads))
    assert strides_along(reads, axes[-1].var, variables) == strides
    assert unit_strides_inside(stage.op, axes[-1].var) == (strides == [1])
    assert len(reads) <= sum(map(is_load, postorder(sources_of(stage.op))))
