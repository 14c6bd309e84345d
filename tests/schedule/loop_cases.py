"""Loops for tests of their lowering, each with the same step in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

from tvm_autodiff.graph.kinds.loop import Loop, loop_stage, step_of

Arrays = Sequence[Any]
Shape = tuple[int, ...]


def placeholders(shapes: Sequence[Shape], dtype: str, name: str) -> list[Any]:
    return [te.placeholder(shape, dtype, f"{name}{n}") for n, shape in enumerate(shapes)]


@dataclass(frozen=True)
class LoopCase:
    """Shapes of carries, of one element of each sequence and of consts; the step on te tensors, and
    on arrays: ``step(carries, xs, consts) → (news, ys)``.
    """

    name: str
    carries: Sequence[Shape]
    xs: Sequence[Shape]
    consts: Sequence[Shape]
    in_te: Callable[[Arrays, Arrays, Arrays], tuple[Arrays, Arrays]]
    in_numpy: Callable[[Arrays, Arrays, Arrays], tuple[Arrays, Arrays]]

    def program(
        self, length: Any, reverse: bool = False, dtype: str = "float64"
    ) -> tuple[list[Any], list[Any]]:
        """Inputs and outputs of a program that is this loop."""
        c, x, k = (
            placeholders(part, dtype, name)
            for part, name in ((self.carries, "c"), (self.xs, "x"), (self.consts, "k"))
        )
        news, ys = self.in_te(c, x, k)
        init = placeholders(self.carries, dtype, "init")
        consts = placeholders(self.consts, dtype, "const")
        sequences = placeholders([(length, *shape) for shape in self.xs], dtype, "s")
        step = step_of(c, x, k, news, ys)
        loop = Loop(step, tuple(init), tuple(sequences), tuple(consts), length, reverse)
        return [*init, *sequences, *consts], loop_stage(self.name, loop)

    def arrays(self, length: int, dtype: str = "float64") -> list[np.ndarray]:
        rng = np.random.default_rng(7)
        shapes = [*self.carries, *((length, *shape) for shape in self.xs), *self.consts]
        if np.dtype(dtype).kind == "f":
            return [rng.standard_normal(shape).astype(dtype) for shape in shapes]
        return [rng.integers(-3, 4, shape).astype(dtype) for shape in shapes]

    def expected(self, arrays: Arrays, length: int, reverse: bool = False) -> list[np.ndarray]:
        first, second = len(self.carries), len(self.carries) + len(self.xs)
        carries, xs, consts = arrays[:first], arrays[first:second], arrays[second:]
        stacked: list[Any] = [None] * length
        for t in reversed(range(length)) if reverse else range(length):
            carries, stacked[t] = self.in_numpy(carries, [x[t] for x in xs], consts)
        count = len(stacked[0]) if length else len(self._results())
        shapes = self._results()
        dtype = arrays[0].dtype
        ys = [
            np.array([row[n] for row in stacked], dtype).reshape(length, *shapes[n])
            for n in range(count)
        ]
        return [np.array(carry, dtype) for carry in carries] + ys

    def _results(self) -> list[Shape]:
        zeros = [[np.zeros(s) for s in part] for part in (self.carries, self.xs, self.consts)]
        return [np.shape(y) for y in self.in_numpy(*zeros)[1]]


def _matmul(a: Any, b: Any, name: str) -> Any:
    k = te.reduce_axis((0, b.shape[0]), "k")
    shape = (a.shape[0], b.shape[1])
    return te.compute(shape, lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name)


def _map(function: Any, like: Any, name: str) -> Any:
    return te.compute(like.shape, function, name=name)


def _recurrent(c: Arrays, x: Arrays, k: Arrays) -> tuple[Arrays, Arrays]:
    product = _matmul(c[0], k[0], "product")
    new = _map(lambda i, j: te.tanh(product[i, j] + x[0][i, j] + k[1][j]), c[0], "new")
    return [new], [new]


def _before_and_after(c: Arrays, x: Arrays, k: Arrays) -> tuple[Arrays, Arrays]:
    new = _map(lambda i: c[0][3 - i] * 0.5 + x[0][i], c[0], "new")
    return [new], [c[0], new, _map(lambda i: new[i] - c[0][i], new, "change")]


def _fibonacci(c: Arrays, x: Arrays, k: Arrays) -> tuple[Arrays, Arrays]:
    return [c[1], _map(lambda i: c[0][i] + c[1][i], c[0], "next")], [c[0]]


def _shifted(c: Arrays, x: Arrays, k: Arrays) -> tuple[Arrays, Arrays]:
    new = _map(lambda i: te.if_then_else(i > 0, c[0][i - 1], c[0][4]) + x[0][i], c[0], "new")
    return [new], []


def _unchanged(c: Arrays, x: Arrays, k: Arrays) -> tuple[Arrays, Arrays]:
    return [c[0], _map(lambda i: c[0][i] * c[1][i] + 1.0, c[0], "scaled")], [x[0], k[0]]


def _counting(c: Arrays, x: Arrays, k: Arrays) -> tuple[Arrays, Arrays]:
    new = te.compute((), lambda: c[0]() + 1.0, name="count")
    return [new], [te.compute((3,), lambda i: c[0]() * k[0][i] + x[0][i], name="ramp")]


def _mapped(c: Arrays, x: Arrays, k: Arrays) -> tuple[Arrays, Arrays]:
    return [], [_map(lambda i: x[0][2 - i] * k[0][i], x[0], "turned")]


def _prepared(c: Arrays, x: Arrays, k: Arrays) -> tuple[Arrays, Arrays]:
    squared = _matmul(k[0], k[0], "squared")
    product = _matmul(c[0], squared, "moved")
    new = _map(lambda i, j: 0.1 * product[i, j] + x[0][i, j], c[0], "new")
    return [new], [te.compute((3,), lambda i: new[i, 0] + squared[i, i], name="edge")]


def _stencil(c: Arrays, x: Arrays, k: Arrays) -> tuple[Arrays, Arrays]:
    def flow(i: Any, j: Any) -> Any:
        left = te.if_then_else(j > 0, c[0][i, j - 1], 0.0)
        right = te.if_then_else(j < 15, c[0][i, j + 1], 0.0)
        return c[0][i, j] + 0.25 * (left + right - 2.0 * c[0][i, j])

    return [_map(flow, c[0], "flow")], []


LOOPS = [
    LoopCase(
        "recurrent", [(3, 4)], [(3, 4)], [(4, 4), (4,)], _recurrent,
        lambda c, x, k: 2 * ([np.tanh(c[0] @ k[0] + x[0] + k[1])],),
    ),
    LoopCase(
        "before_and_after", [(4,)], [(4,)], [], _before_and_after,
        lambda c, x, k: ([n := c[0][::-1] * 0.5 + x[0]], [c[0], n, n - c[0]]),
    ),
    LoopCase(
        "fibonacci", [(2,), (2,)], [(1,)], [], _fibonacci,
        lambda c, x, k: ([c[1], c[0] + c[1]], [c[0]]),
    ),
    LoopCase(
        "shifted", [(5,)], [(5,)], [], _shifted, lambda c, x, k: ([np.roll(c[0], 1) + x[0]], [])
    ),
    LoopCase(
        "unchanged", [(4,), (4,)], [(2,)], [(3,)], _unchanged,
        lambda c, x, k: ([c[0], c[0] * c[1] + 1.0], [x[0], k[0]]),
    ),
    LoopCase(
        "counting", [()], [(3,)], [(3,)], _counting,
        lambda c, x, k: ([c[0] + 1.0], [c[0] * k[0] + x[0]]),
    ),
    LoopCase("mapped", [], [(3,)], [(3,)], _mapped, lambda c, x, k: ([], [x[0][::-1] * k[0]])),
    LoopCase(
        "prepared", [(3, 3)], [(3, 3)], [(3, 3)], _prepared,
        lambda c, x, k: (
            [n := 0.1 * c[0] @ (k[0] @ k[0]) + x[0]], [n[:, 0] + np.diag(k[0] @ k[0])]
        ),
    ),
    LoopCase(
        "stencil", [(3, 16)], [(1,)], [], _stencil,
        lambda c, x, k: (
            [
                c[0] + 0.25 * (
                    np.pad(c[0], ((0, 0), (1, 0)))[:, :-1]
                    + np.pad(c[0], ((0, 0), (0, 1)))[:, 1:]
                    - 2.0 * c[0]
                )
            ],
            [],
        ),
    ),
]  # fmt: skip
