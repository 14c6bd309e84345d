"""What families draw with: sizes as operators have them, dtypes, axes; and cases from a draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from ..suite.case import Case, Input

#: dtype → (how often it is drawn, largest error relative to the largest answer)
DTYPES = {"float32": (0.8, 5e-4), "float64": (0.12, 1e-10), "float16": (0.08, 2e-2)}


def size(rng: Random, low: int, high: int) -> int:
    """A size between two bounds, log-uniform: half of them multiples of eight where there are."""
    value = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    if rng.random() < 0.5 and high >= 8:
        value = round(value / 8) * 8
    return min(max(value, low), high)


def dtype(rng: Random, narrow: bool = False) -> str:
    """A dtype; float16 only where `narrow` says that few numbers are summed."""
    kinds = [kind for kind in DTYPES if narrow or kind != "float16"]
    return rng.choices(kinds, [DTYPES[kind][0] for kind in kinds])[0]


def shape(rng: Random, rank: int, low: int, high: int) -> tuple[int, ...]:
    """Sizes whose product is between two bounds."""
    total = math.exp(rng.uniform(math.log(low), math.log(high)))
    shares = [rng.uniform(0.5, 1.5) for _ in range(rank)]
    sizes = [math.exp(math.log(total) * share / sum(shares)) for share in shares]
    return tuple(
        min(max(3, round(extent / 8) * 8 if rng.random() < 0.5 else round(extent)), 4096)
        for extent in sizes
    )


def axes(rng: Random, rank: int) -> tuple[int, ...]:
    """Some axes, not all of them."""
    return tuple(sorted(rng.sample(range(rank), rng.randint(1, rank - 1))))


def pullback(
    inputs: Mapping[str, Input],
    out: Sequence[int],
    te: Callable[..., Any],
    torch: Callable[..., Any],
    jax: Callable[..., Any],
    kind: str = "float32",
    **options: Any,
) -> Case:
    """The gradients of all float inputs for a random head."""
    return Case(
        inputs=inputs,
        wrt=tuple(name for name, spec in inputs.items() if spec.below is None),
        te=te,
        torch=torch,
        jax=jax,
        derivative="pullback",
        head=Input(tuple(out), kind=kind),
        tolerance=DTYPES[kind][1],
        **options,
    )
