"""The gradient of products over rows of 22 and 23 numbers, whose code LLVM 22 never finished.

It was given vectors of six and of seven lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

import tvm_autodiff as ad

PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype))


@dataclass(frozen=True)
class OddRows:
    """Rows of so many numbers."""

    columns: int

    def perform(self) -> list[str]:
        """What is wrong with the gradient, beside a product of the other numbers."""
        n = self.columns
        a, h = te.placeholder((3, n), name="a"), te.placeholder((3, n), name="h")
        k = te.reduce_axis((0, n), "k")
        scale = lambda j: (j + 1).astype("float32") * 0.1  # noqa: E731
        y = te.compute((3, n), lambda i, j: PRODUCT(a[i, k] * scale(j), axis=k), name="y")
        [da] = ad.differentiate(y, [a], h)
        rng = np.random.default_rng(0)
        x, head = rng.uniform(0.5, 2, (3, n)), rng.normal(size=(3, n))
        got = ad.build([a, h], da, num_threads=1, cache=False)(*map(np.float32, (x, head)))
        scales = (np.arange(n) + 1) * 0.1
        totals = np.prod(x, 1)[:, None] * scales**n
        want = (head * totals).sum(1)[:, None] / x
        close = np.allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())
        return [] if close else [f"{n} columns: {np.abs(got - want).max()}"]
