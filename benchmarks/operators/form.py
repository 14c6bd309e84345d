"""How an operator of this set is written: the value of a tensor and the gradients of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te

from ..suite.case import Case, Input

Extents = tuple[int, ...]
Axes = Any


def operator(
    inputs: dict[str, Input],
    out: Extents,
    ours: Callable[..., Any],
    torch: Callable[..., Any],
    jax: Callable[..., Any],
    fixed: Sequence[str] = (),
    tolerance: float = 2e-4,
) -> Case:
    """The value and the gradients of all inputs of real numbers but the fixed ones.

    A tensor of rank 0 is a loss; others get a cotangent as one more input.
    """
    wrt = tuple(name for name, spec in inputs.items() if spec.below is None and name not in fixed)
    return Case(
        inputs=inputs,
        wrt=wrt,
        te=ours,
        torch=torch,
        jax=jax,
        derivative="both" if out else "gradient",
        head=Input(out) if out else None,
        tolerance=tolerance,
    )


def reduced(shape: Extents, over: Extents, body: Callable[..., Any], reduce: Any = te.sum) -> Any:
    """``out[i...] = ⊕_k body(i..., k...)`` for k in the box `over`."""
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(over)]
    return te.compute(shape, lambda *place: reduce(body(*place, *axes), axis=axes), "reduced")


def mapped(shape: Extents, body: Callable[..., Any]) -> Any:
    """``out[i...] = body(i...)``."""
    return te.compute(shape, body, "mapped")


def softmax(scores: Any) -> Any:
    """Along the last axis, with the maximum subtracted."""
    *rest, width = map(int, scores.shape)
    top = reduced(tuple(rest), (width,), lambda *place: scores[place], te.max)
    powers = mapped(scores.shape, lambda *place: te.exp(scores[place] - top[place[:-1]]))
    total = reduced(tuple(rest), (width,), lambda *place: powers[place])
    return mapped(scores.shape, lambda *place: powers[place] / total[place[:-1]])
