"""Which scatter-adds are added up by one group, and which stay apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te

from tvm_autodiff import scatter_add
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.schedule.fusion.added_scatters import AddedScatters
from tvm_autodiff.schedule.fusion.kernels import cut

SHAPE = (20, 4)
U, V = (te.placeholder((8, 4), "float32", name) for name in ("U", "V"))
P, Q = (te.placeholder((8,), "int32", name) for name in ("P", "Q"))
R = te.placeholder(SHAPE, "float32", "R")


def scattered() -> list[Any]:
    return [scatter_add(U, P, SHAPE), scatter_add(V, Q, SHAPE)]


def stage(body: Callable[[Any, Any, Any, Any], Any]) -> list[Any]:
    """A stage over the results s and t at i, j."""
    s, t = scattered()
    return [te.compute(SHAPE, lambda i, j: body(s, t, i, j), name="y")]


#: the outputs, what a group begins with, and the stage that reads the sum
TOGETHER: dict[str, tuple[Callable[[], list[Any]], str | None, str | None]] = {
    "a sum": (lambda: stage(lambda s, t, i, j: s[i, j] + t[i, j]), None, None),
    "with a tensor": (
        lambda: stage(lambda s, t, i, j: s[i, j] + (R[i, j] * 2.0 + t[i, j])),
        "R[i, j]*2.0",
        None,
    ),
    "in a difference": (
        lambda: stage(lambda s, t, i, j: R[i, j] - (s[i, j] + t[i, j])),
        None,
        "R[i, j] - y_scatters[i, j]",
    ),
    "with a function": (
        lambda: stage(lambda s, t, i, j: s[i, j] + t[i, j] + te.exp(R[i, j])),
        None,
        "y_scatters[i, j] + exp(R[i, j])",
    ),
}

def results(s: Any, t: Any) -> list[Any]:
    return [s, t, te.compute(SHAPE, lambda i, j: s[i, j] + t[i, j], name="y")]


APART: dict[str, Callable[[], list[Any]]] = {
    "results": lambda: results(*scattered()),
    "read twice": lambda: stage(lambda s, t, i, j: s[i, j] + t[i, j] * s[i, j] + t[i, j]),
    "another place": lambda: stage(lambda s, t, i, j: s[19 - i, j] + t[19 - i, j]),
    "a product": lambda: stage(lambda s, t, i, j: s[i, j] * t[i, j]),
    "one of a difference": lambda: stage(lambda s, t, i, j: R[i, j] - s[i, j]),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str) -> None:
    outputs, start, reader = TOGETHER[name]
    kernels, _ = cut(outputs())
    [group] = kernels
    assert isinstance(group, AddedScatters)
    assert len(group.scatters) == 2
    assert (None if group.start is None else text(group.start)) == start
    assert (None if group.reader is None else text(group.reader.root.body[0])) == reader


@pytest.mark.parametrize("name", APART)
def test_apart(name: str) -> None:
    kernels, _ = cut(APART[name]())
    assert not any(isinstance(kernel, AddedScatters) for kernel in kernels)


def test_exact_math_adds_as_written() -> None:
    kernels, _ = cut(stage(lambda s, t, i, j: s[i, j] + t[i, j]), exact_math=True)
    assert not any(isinstance(kernel, AddedScatters) for kernel in kernels)
