"""A drawn program, as te code, whose gradient TVM was still lowering after 75 minutes.

Its windows read windows at clamped and guarded places: written as one expression, the gradient's
conditions are far larger than as a graph. Its forward part compiles at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

import tvm_autodiff as ad
from tests.differences import central_differences
from tests.evaluate import evaluate_graph
from tests.random_programs.checking import quietly

ZERO = te.const(0.0, "float64")


def windows() -> tuple[Any, Any]:
    """The input and the output."""
    x = te.placeholder((4, 5), "float64", name="x")
    k, m = te.reduce_axis((0, 2), "k"), te.reduce_axis((0, 3), "m")
    p, q = te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 2), "q")

    def products(i: Any) -> Any:
        wrapped = x[(3 * k - 2) % 4, k - m + 2]
        clamped = x[te.max(te.min(1 - i + k, 3), 0), (3 * m - k) % 5]
        factor = wrapped * x[1 + 2 * k, 2 - 2 * k + m] + wrapped
        return te.sum(factor * te.sigmoid(clamped), axis=[k, m])

    first = te.compute((5,), products, name="first")

    def least(i: Any) -> Any:
        place = 2 + 3 * i + p - q
        value = te.if_then_else(te.all(place >= 0, place < 5), first[place], ZERO)
        return te.min(te.sigmoid(te.sin(value)), axis=[p, q])

    second = te.compute((4,), least, name="second")

    def larger(i: Any, j: Any) -> Any:
        value = te.if_then_else(te.all(-j >= 0, -j < 4), x[-j, 2 - i], ZERO)
        return te.exp(0.3 * te.max(second[te.max(te.min(-2 * i, 3), 0)], value))

    return x, te.compute((3, 2), larger, name="out")


@dataclass(frozen=True)
class LongBuild:
    """The gradient, built and called with some arrays."""

    def perform(self) -> list[str]:
        """What is wrong with the values, beside numpy, and with slopes, beside differences."""
        x, out = windows()
        head = te.placeholder(out.shape, "float64", name="head")
        with quietly():
            built = ad.build([x, head], [out, *ad.differentiate(out, [x], head)], cache=False)
        wrong: list[str] = []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            given, weights = rng.uniform(-1, 1, (4, 5)), rng.uniform(0.5, 1, (3, 2))
            value, slopes = built(given, weights)
            [wanted] = evaluate_graph([out], [(x, given)])
            [(steps, uncertain)] = central_differences(out, [x], [(x, given)], weights)
            found = {"value": value - wanted, "slope": slopes - steps}
            allowed = {"value": 1e-14, "slope": uncertain + 1e-9}
            wrong += [f"{n} {off}" for n, off in found.items() if (abs(off) > allowed[n]).any()]
            wrong += [] if np.count_nonzero(slopes) > 5 else ["few slopes"]
        return wrong
