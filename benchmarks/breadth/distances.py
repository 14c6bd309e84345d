"""Pairs of all rows of two matrices: distances, nearest rows, additive attention, max-plus.

Each reduces a body that is no product along the columns. PyTorch and JAX get the broadcast that one
would write; for Euclidean and absolute distances PyTorch has `cdist`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ..suite.case import Case, Input


def _pairs(n: int, m: int, k: int, body: Callable[[Any, Any], Any], reducer: Any = te.sum) -> Any:
    """``out[i, j] = ⊕_k body(x[i, k], c[j, k])`` as a function of x and c."""

    def ours(x: Any, c: Any) -> Any:
        r = te.reduce_axis((0, k), "k")
        return te.compute((n, m), lambda i, j: reducer(body(x[i, r], c[j, r]), axis=r), "pairs")

    return ours


def _rows(n: int, m: int, k: int, **options: Any) -> Case:
    """Both gradients of a function of all pairs."""
    return Case(
        inputs={"x": Input((n, k)), "c": Input((m, k))},
        wrt=("x", "c"),
        head=Input((n, m)),
        derivative="pullback",
        tolerance=2e-4,
        **options,
    )


def manhattan(n: int, m: int, k: int) -> Case:
    """Where two elements are equal, JAX has another slope: the arrays of the case have no such."""
    return _rows(
        n,
        m,
        k,
        te=_pairs(n, m, k, lambda x, c: te.abs(x - c)),
        torch=lambda torch, x, c: torch.cdist(x, c, p=1.0),
        jax=lambda jax, x, c: jax.numpy.abs(x[:, None] - c[None]).sum(-1),
    )


def squared(n: int, m: int, k: int) -> Case:
    return _rows(
        n,
        m,
        k,
        te=_pairs(n, m, k, lambda x, c: (x - c) * (x - c)),
        torch=lambda torch, x, c: ((x[:, None] - c[None]) ** 2).sum(-1),
        jax=lambda jax, x, c: ((x[:, None] - c[None]) ** 2).sum(-1),
    )


def max_plus(n: int, m: int, k: int) -> Case:
    """The product of a matrix and a transposed one where + is max and × is +."""
    return _rows(
        n,
        m,
        k,
        te=_pairs(n, m, k, lambda x, c: x + c, te.max),
        torch=lambda torch, x, c: (x[:, None] + c[None]).amax(-1),
        jax=lambda jax, x, c: (x[:, None] + c[None]).max(-1),
    )


def k_means(n: int, m: int, k: int) -> Case:
    """The sum of the distances to the nearest centre, and both gradients."""

    def ours(x: Any, c: Any) -> Any:
        d = squared(n, m, k).te(x, c)
        i, j = te.reduce_axis((0, n), "i"), te.reduce_axis((0, m), "j")
        least = te.compute((n,), lambda a: te.min(d[a, j], axis=j), name="least")
        return te.compute((), lambda: te.sum(least[i], axis=i), name="loss")

    return Case(
        inputs={"x": Input((n, k)), "c": Input((m, k))},
        wrt=("x", "c"),
        te=ours,
        torch=lambda torch, x, c: ((x[:, None] - c[None]) ** 2).sum(-1).amin(1).sum(),
        jax=lambda jax, x, c: ((x[:, None] - c[None]) ** 2).sum(-1).min(1).sum(),
        tolerance=2e-4,
    )


def additive_attention(batch: int, queries: int, keys: int, k: int) -> Case:
    """Scores ``Σ_k v[k]·tanh(q[b, i, k] + s[b, j, k])``, and three gradients."""

    def ours(q: Any, s: Any, v: Any) -> Any:
        r = te.reduce_axis((0, k), "k")
        return te.compute(
            (batch, queries, keys),
            lambda b, i, j: te.sum(v[r] * te.tanh(q[b, i, r] + s[b, j, r]), axis=r),
            name="scores",
        )

    return Case(
        inputs={
            "q": Input((batch, queries, k)),
            "s": Input((batch, keys, k)),
            "v": Input((k,), k**-0.5),
        },
        wrt=("q", "s", "v"),
        head=Input((batch, queries, keys)),
        derivative="pullback",
        te=ours,
        torch=lambda torch, q, s, v: torch.tanh(q[:, :, None] + s[:, None]) @ v,
        jax=lambda jax, q, s, v: jax.numpy.tanh(q[:, :, None] + s[:, None]) @ v,
        tolerance=2e-4,
    )


CASES: dict[str, Callable[[], Case]] = {
    "distances-manhattan-1000x240x60": lambda: manhattan(1000, 240, 60),
    "distances-squared-1000x250x60": lambda: squared(1000, 250, 60),
    "distances-squared-2000x2000x3": lambda: squared(2000, 2000, 3),
    "distances-k-means-4096x64x32": lambda: k_means(4096, 64, 32),
    "distances-k-means-1000x250x60": lambda: k_means(1000, 250, 60),
    "max-plus-200x150x100": lambda: max_plus(200, 150, 100),
    "additive-attention-8x32x48x64": lambda: additive_attention(8, 32, 48, 64),
}
