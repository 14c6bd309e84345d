"""Checks of forward mode: against differences along a direction, against the transpose, and of
second derivatives against reverse over reverse. Everything is evaluated in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te

import tvm_autodiff as ad
from tests.differences import STEP
from tests.evaluate import evaluate_batch, evaluate_graph
from tests.gradient_case import Case
from tvm_autodiff.expr.nodes import is_float

_EPS = {"float64": 2.3e-16, "float32": 1.2e-7}


def directions(tensors: Sequence[Any], prefix: str, seed: int) -> list[tuple[Any, np.ndarray]]:
    """A placeholder of the shape and dtype of each tensor, and numbers for it."""
    rng = np.random.default_rng(seed)
    made = []
    for tensor in tensors:
        shape = tuple(int(extent) for extent in tensor.shape)
        name = f"{prefix}_{tensor.op.name}"
        placeholder = te.placeholder(tensor.shape, str(tensor.dtype), name=name)
        made.append((placeholder, rng.uniform(-1, 1, shape).astype(str(tensor.dtype))))
    return made


def check_forward(case: Case, seed: int = 0) -> None:
    """Compare the pushforward of a case with differences, and with the pullback."""
    placeholders, output = case.tensors()
    pairs = list(zip(placeholders, case.arrays(seed), strict=True))
    floats = [tensor for tensor in placeholders if is_float(tensor)]
    given = directions(floats, "t", seed + 1)
    [head] = directions([output], "h", seed + 2)
    with case.expecting():
        adjoints = ad.gradient(output, floats, head[0])
    [tangent] = ad.jvp(output, floats, [t for t, _ in given])
    values = evaluate_graph([tangent, *adjoints], [*pairs, *given, head])
    pushed, pulled = np.asarray(values[0], "float64"), values[1:]
    eps = _EPS[case.dtype]
    _compare_transposes(pushed, pulled, given, head[1], eps)
    slopes, uncertain = slope_along(output, pairs, dict(zip(map(id, floats), given, strict=True)))
    rough = 1e-7 if case.dtype == "float64" else 2e-4
    allowed = uncertain + rough * np.abs(slopes) + rough * np.abs(slopes).max(initial=0)
    assert pushed.shape == slopes.shape
    assert np.all(np.abs(pushed - slopes) <= allowed), (pushed, slopes)


def _compare_transposes(
    pushed: np.ndarray,
    pulled: Sequence[np.ndarray],
    given: Sequence[tuple[Any, np.ndarray]],
    head: np.ndarray,
    eps: float,
) -> None:
    """``⟨u, Jv⟩ = ⟨Jᵀu, v⟩`` to rounding of the terms that are added."""
    left = np.sum(head.astype("float64") * pushed)
    terms = [
        np.asarray(g, "float64") * v.astype("float64")
        for g, (_, v) in zip(pulled, given, strict=True)
    ]
    right = sum(float(term.sum()) for term in terms)
    size = sum(float(np.abs(term).sum()) for term in terms) + float(np.abs(head * pushed).sum())
    assert abs(left - right) <= 200 * eps * size, (left, right)


def slope_along(
    output: Any, pairs: Sequence[tuple[Any, np.ndarray]], given: dict[int, tuple[Any, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Differences of fourth order along a direction in float64, and their possible errors."""
    steps = np.array([-2, -1, 1, 2]) * STEP
    batch = []
    for tensor, array in pairs:
        wide = array.astype("float64") if is_float(tensor) else array
        rows = np.repeat(wide[None], 4, axis=0)
        if id(tensor) in given:
            along = given[id(tensor)][1].astype("float64")
            rows = rows + steps.reshape((4,) + (1,) * array.ndim) * along
        batch.append((tensor, rows))
    [ends] = evaluate_batch([output], batch)
    outer, inner = (ends[3] - ends[0]) / (4 * STEP), (ends[2] - ends[1]) / (2 * STEP)
    size = np.abs(ends).max(axis=0)
    slope = (4 * inner - outer) / 3
    return slope, 0.01 * np.abs(inner - outer) + 64 * _EPS["float64"] * size / STEP


def check_second_order(case: Case, seed: int = 0) -> None:
    """Forward over reverse equals reverse over reverse: a Hessian is symmetric."""
    placeholders, output = case.tensors()
    pairs = list(zip(placeholders, case.arrays(seed), strict=True))
    floats = [tensor for tensor in placeholders if is_float(tensor)]
    [head] = directions([output], "h", seed + 2)
    with case.expecting():
        adjoints = ad.gradient(output, floats, head[0])
        given = directions(adjoints, "t", seed + 1)
        forward = ad.jvp(adjoints, floats, [t for t, _ in given])
        reverse = list(ad.vjp(adjoints, floats, [t for t, _ in given]))
    values = evaluate_graph([*forward, *reverse], [*pairs, head, *given])
    for one, other in zip(values[: len(floats)], values[len(floats) :], strict=True):
        scale = 1e-10 * (1 + np.abs(other).max(initial=0))
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=scale)
