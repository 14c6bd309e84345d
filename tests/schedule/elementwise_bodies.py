"""Reductions of bodies that are no products, by name: as te tensors, and in numpy.

Each takes sizes n, m, k and a dtype; its inputs hold small integers unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from tests.schedule.cases import Case, axis, placeholder


@dataclass(frozen=True)
class Pairwise:
    """``out[i, j] = ⊕_k body(x[i, k], c[j, k])``; numpy sees x as [n, 1, k], c as [1, m, k]."""

    body: Callable[[Any, Any], Any]
    wanted: Callable[[np.ndarray, np.ndarray], np.ndarray]
    reducer: Callable[..., Any] = te.sum
    combine: Any = np.sum

    def case(self, n: Any, m: int, k: int, dtype: str = "float32", layout: str = "nk,mk") -> Case:
        left, right = layout.split(",")
        X = placeholder("X", *((n, k) if left == "nk" else (k, n)), dtype=dtype)
        C = placeholder("C", *((m, k) if right == "mk" else (k, m)), dtype=dtype)
        r = axis(k)

        def value(i: Any, j: Any) -> Any:
            x = X[i, r] if left == "nk" else X[r, i]
            c = C[j, r] if right == "mk" else C[r, j]
            return self.reducer(self.body(x, c), axis=r)

        return [X, C], te.compute((n, m), value, name="D")

    def answer(self, x: np.ndarray, c: np.ndarray, layout: str = "nk,mk") -> np.ndarray:
        left, right = layout.split(",")
        x, c = (x if left == "nk" else x.T), (c if right == "mk" else c.T)
        return self.combine(self.wanted(x[:, None, :], c[None, :, :]), axis=-1)


def _root(v: Any) -> Any:
    return te.sqrt(te.abs(v) + 1)


PAIRWISE = {
    "squared": Pairwise(lambda x, c: (x - c) * (x - c), lambda x, c: (x - c) ** 2),
    "absolute": Pairwise(lambda x, c: te.abs(x - c), lambda x, c: np.abs(x - c)),
    "max-plus": Pairwise(lambda x, c: x + c, lambda x, c: x + c, te.max, np.max),
    "min-plus": Pairwise(lambda x, c: x + c, lambda x, c: x + c, te.min, np.min),
    "max of products": Pairwise(lambda x, c: x * c, lambda x, c: x * c, te.max, np.max),
    "intersection": Pairwise(lambda x, c: te.min(x, c), np.minimum),
    "equal": Pairwise(
        lambda x, c: tirx.Select(x == c, x + x, c - c), lambda x, c: np.where(x == c, x + x, 0)
    ),
    "hinge": Pairwise(
        lambda x, c: te.if_then_else(x > c, (x - c) * x, c - c),
        lambda x, c: np.where(x > c, (x - c) * x, 0),
    ),
}
FLOATS = {
    "additive attention": Pairwise(lambda x, c: te.tanh(x + c), lambda x, c: np.tanh(x + c)),
    "kernel": Pairwise(
        lambda x, c: te.exp(-(x - c) * (x - c)) / (te.abs(x) + 1),
        lambda x, c: np.exp(-((x - c) ** 2)) / (np.abs(x) + 1),
    ),
    "function of one side": Pairwise(
        lambda x, c: te.abs(_root(x) - c), lambda x, c: np.abs(np.sqrt(np.abs(x) + 1) - c)
    ),
}


def weighted(n: int, m: int, k: int) -> Case:
    """``Σ_k w[k]·|x - c|``: three reads."""
    X, C, W = placeholder("X", n, k), placeholder("C", m, k), placeholder("W", k)
    r = axis(k)
    return [X, C, W], te.compute(
        (n, m), lambda i, j: te.sum(W[r] * te.abs(X[i, r] - C[j, r]), axis=r), name="D"
    )


def causal(n: int, m: int, _k: int) -> Case:
    """A guard around the whole body: ``Σ_{r <= i} |x[i, j] - c[r, j]|``."""
    X, C = placeholder("X", n, m), placeholder("C", n, m)
    r = axis(n)
    return [X, C], te.compute(
        (n, m), lambda i, j: te.sum(te.abs(X[i, j] - C[r, j]), axis=r, where=r <= i), name="D"
    )


def masked(n: int, m: int, k: int) -> Case:
    """A mask of truth values that is read."""
    X, C, M = placeholder("X", n, k), placeholder("C", m, k), placeholder("M", n, k, dtype="bool")
    r = axis(k)
    zero = tirx.const(0, "float32")

    def body(i: Any, j: Any) -> Any:
        return te.sum(tirx.Select(M[i, r], te.abs(X[i, r] - C[j, r]), zero), axis=r)

    return [X, C, M], te.compute((n, m), body, name="D")


def gathered(n: int, m: int, k: int) -> Case:
    """Rows that are data, read where the index is in range."""
    X, C = placeholder("X", n, k), placeholder("C", 5, k)
    I = placeholder("I", m, dtype="int32")  # noqa: E741
    r = axis(k)

    def body(i: Any, j: Any) -> Any:
        inside = te.all(I[j] >= 0, I[j] < 5)
        return te.sum(te.if_then_else(inside, te.abs(X[i, r] - C[I[j], r]), 0.0), axis=r)

    return [X, C, I], te.compute((n, m), body, name="D")


def dilation(n: int, m: int, _k: int) -> Case:
    """``max_{p, q} x[y + p - 1, x + q - 1] + w[p, q]`` inside of the image, for eight w."""
    X, W = placeholder("X", n, m), placeholder("W", 8, 3, 3)
    p, q = axis(3, "p"), axis(3, "q")

    def body(f: Any, y: Any, x: Any) -> Any:
        inside = te.all(y + p >= 1, y + p < n + 1, x + q >= 1, x + q < m + 1)
        value = X[y + p - 1, x + q - 1] + W[f, p, q]
        return te.max(te.if_then_else(inside, value, te.min_value("float32")), axis=[p, q])

    return [X, W], te.compute((8, n, m), body, name="D")


def adder_convolution(n: int, m: int, k: int) -> Case:
    """``Σ |padded x - w|``: a branch around one read."""
    X, W = placeholder("X", k, n, m), placeholder("W", 8, k, 3, 3)
    a, p, q = axis(k, "a"), axis(3, "p"), axis(3, "q")

    def body(f: Any, y: Any, x: Any) -> Any:
        inside = te.all(y + p >= 1, y + p < n + 1, x + q >= 1, x + q < m + 1)
        padded = te.if_then_else(inside, X[a, y + p - 1, x + q - 1], 0.0)
        return te.sum(te.abs(padded - W[f, a, p, q]), axis=[a, p, q])

    return [X, W], te.compute((8, n, m), body, name="D")


def batched(n: int, m: int, k: int) -> Case:
    X, C = placeholder("X", 3, n, k), placeholder("C", 3, m, k)
    r = axis(k)
    return [X, C], te.compute(
        (3, n, m), lambda b, i, j: te.sum(te.abs(X[b, i, r] - C[b, j, r]), axis=r), name="D"
    )


def with_epilogue(n: int, m: int, k: int) -> Case:
    [X, C], D = PAIRWISE["squared"].case(n, m, k)
    S = placeholder("S", m)
    return [X, C, S], te.compute((n, m), lambda i, j: te.max(D[i, j] - S[j], 0.0) * 2.0, name="E")


def by_position(n: int, m: int, k: int) -> Case:
    """Loop variables as values."""
    X, C = placeholder("X", n, k), placeholder("C", m, k)
    r = axis(k)

    def body(i: Any, j: Any) -> Any:
        far = te.abs(i - j).astype("float32")
        return te.sum(te.abs(X[i, r] - C[j, r]) * (far + r.var.astype("float32")), axis=r)

    return [X, C], te.compute((n, m), body, name="D")


OTHERS = {
    "weighted": weighted,
    "causal": causal,
    "masked": masked,
    "gathered": gathered,
    "dilation": dilation,
    "adder convolution": adder_convolution,
    "batched": batched,
    "with an epilogue": with_epilogue,
    "by position": by_position,
}


def streamed(n: int, m: int, k: int) -> Case:
    """Most is read once, and a function of what is read again does not vary along memory."""
    X, M = placeholder("X", n, m, k), placeholder("M", n)
    H = placeholder("H", n, m, k)
    a, r = axis(n, "a"), axis(k)

    def body(j: Any) -> Any:
        value = (X[a, j, r] - M[a]) * te.rsqrt(M[a] * M[a] + 1.0)
        return te.sum(H[a, j, r] * value, axis=[a, r])

    return [X, M, H], te.compute((m,), body, name="D")
