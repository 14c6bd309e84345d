"""Programs of numbers in 16 bits that LLVM 22 compiled wrongly, or not at all.

Of nine results in the vectors of a short loop, it stored the last one in 32 bits. Nine functions
side by side ended its process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

import tvm_autodiff as ad
from tests.random_programs.interpreter import numpy_dtype

MARK = 99  #: what follows the results


def maxima(rows: int, dtype: str) -> tuple[Any, Any]:
    """Maxima of rows, the first two of which are others."""
    x, k = te.placeholder((rows, 5), name="x"), te.reduce_axis((0, 5), "k")
    most = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="most")
    value = lambda i: te.if_then_else(i > 1, most[i] * 2.0, most[i])  # noqa: E731
    return x, te.compute((rows,), lambda i: value(i).astype(dtype), name="y")


def distances(rows: int, dtype: str) -> tuple[Any, Any]:
    """Sums over pairs of rows, in tiles."""
    x, k = te.placeholder((rows, 3), dtype, "x"), te.reduce_axis((0, rows), "k")
    gap = lambda i: x[i, 2] - x[k, 2]  # noqa: E731
    term = lambda i: te.tanh(gap(i) * gap(i) - x[k, 1])  # noqa: E731
    return x, te.compute((rows,), lambda i: te.sum(term(i), axis=k), name="y")


def windows(rows: int, dtype: str) -> tuple[Any, Any]:
    """Functions in windows of three by three of a flattened array."""
    x = te.placeholder(((rows + 2) * 10,), dtype, "x")
    k, m = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 3), "m")
    place = lambda i, j, c: ((i + k) * 5 + (j + m)) * 2 + c  # noqa: E731
    return x, te.compute(
        (rows, 3, 2), lambda i, j, c: te.sum(te.tanh(x[place(i, j, c)]), axis=[k, m]), name="y"
    )


PROGRAMS: dict[str, Callable[[int, str], tuple[Any, Any]]] = {
    "maxima": maxima,
    "distances": distances,
    "windows": windows,
}


@dataclass(frozen=True)
class NarrowResults:
    """A program of so many rows."""

    program: str
    rows: int
    dtype: str

    def perform(self) -> list[str]:
        """What is wrong with the memory behind the results."""
        x, y = PROGRAMS[self.program](self.rows, self.dtype)
        function = ad.build([x], y, num_threads=1, cache=False)
        array = np.linspace(0.0, 1.0, int(np.prod([int(n) for n in x.shape])))
        shape = tuple(int(n) for n in y.shape)
        size = int(np.prod(shape))
        memory = np.full(size + 16, MARK).astype(numpy_dtype(self.dtype))
        given = array.astype(numpy_dtype(str(x.dtype))).reshape([int(n) for n in x.shape])
        function(given, out=memory[:size].reshape(shape))
        wrong = np.flatnonzero(memory[size:].astype("float64") != MARK)
        return [f"{self}: elements {wrong} behind the results are changed"] if wrong.size else []
