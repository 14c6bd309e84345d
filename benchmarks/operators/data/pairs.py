"""Functions of all pairs: log-sum-exp, soft histograms, rankings, kernels, distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def log_sum_exp_of_sums(n: int, m: int, k: int) -> Case:
    """``log Σ_k exp(x[i, k] + y[j, k])``, as a formula is written, without a maximum."""

    def ours(x: Any, y: Any) -> Any:
        total = reduced((n, m), (k,), lambda i, j, r: te.exp(x[i, r] + y[j, r]))
        return mapped((n, m), lambda i, j: te.log(total[i, j]))

    return operator(
        {"x": Input((n, k)), "y": Input((m, k))},
        (n, m),
        ours,
        lambda torch, x, y: torch.log(torch.exp(x[:, None] + y).sum(2)),
        lambda jax, x, y: jax.numpy.log(jax.numpy.exp(x[:, None] + y).sum(2)),
    )


def log_sum_exp_of_distances(n: int, m: int) -> Case:
    """``log Σ_j exp(b[j] - (x[i] - c[j])²)``: a mixture of Gaussians on a line."""

    def ours(x: Any, c: Any, b: Any) -> Any:
        total = reduced((n,), (m,), lambda i, j: te.exp(b[j] - (x[i] - c[j]) * (x[i] - c[j])))
        return mapped((n,), lambda i: te.log(total[i]))

    return operator(
        {"x": Input((n,)), "c": Input((m,)), "b": Input((m,))},
        (n,),
        ours,
        lambda torch, x, c, b: torch.log(torch.exp(b - (x[:, None] - c) ** 2).sum(1)),
        lambda jax, x, c, b: jax.numpy.log(jax.numpy.exp(b - (x[:, None] - c) ** 2).sum(1)),
    )


def soft_histogram(n: int, bins: int) -> Case:
    """``Σ_i exp(-((x[i] - c[b])·w[b])²)``."""

    def ours(x: Any, c: Any, w: Any) -> Any:
        def body(b: Any, i: Any) -> Any:
            z = (x[i] - c[b]) * w[b]
            return te.exp(-z * z)

        return reduced((bins,), (n,), body)

    return operator(
        {"x": Input((n,)), "c": Input((bins,)), "w": Input((bins,))},
        (bins,),
        ours,
        lambda torch, x, c, w: torch.exp(-(((x[:, None] - c) * w) ** 2)).sum(0),
        lambda jax, x, c, w: jax.numpy.exp(-(((x[:, None] - c) * w) ** 2)).sum(0),
    )


def noisy_or(n: int, m: int, k: int) -> Case:
    """``1 - Π_k (1 - p[i, k]·q[k, j])`` with p and q as logits."""
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, dtype=t), name="product")

    def ours(p: Any, q: Any) -> Any:
        a = mapped((n, k), lambda i, r: te.sigmoid(p[i, r]))
        b = mapped((k, m), lambda r, j: te.sigmoid(q[r, j]))
        rest = reduced(
            (n, m), (k,), lambda i, j, r: 1.0 - a[i, r] * b[r, j], lambda e, axis: product(e, axis)
        )
        return mapped((n, m), lambda i, j: 1.0 - rest[i, j])

    def array(sigmoid: Any, p: Any, q: Any) -> Any:
        return 1.0 - (1.0 - sigmoid(p)[:, :, None] * sigmoid(q)).prod(1)

    return operator(
        {"p": Input((n, k), mean=-3.0), "q": Input((k, m), mean=-1.0)},
        (n, m),
        ours,
        lambda torch, p, q: array(torch.sigmoid, p, q),
        lambda jax, p, q: array(jax.nn.sigmoid, p, q),
    )


def pairwise_ranking(n: int) -> Case:
    """``Σ_ij [y[i] > y[j]]·log(1 + exp(s[j] - s[i]))``."""

    def ours(s: Any, y: Any) -> Any:
        return reduced(
            (),
            (n, n),
            lambda i, j: te.if_then_else(y[i] > y[j], te.log(1.0 + te.exp(s[j] - s[i])), 0.0),
        )

    def in_torch(torch: Any, s: Any, y: Any) -> Any:
        loss = torch.log(1.0 + torch.exp(s - s[:, None]))
        return torch.where(y[:, None] > y, loss, 0.0).sum()

    def in_jax(jax: Any, s: Any, y: Any) -> Any:
        loss = jax.numpy.log(1.0 + jax.numpy.exp(s - s[:, None]))
        return jax.numpy.where(y[:, None] > y, loss, 0.0).sum()

    return operator({"s": Input((n,)), "y": Input((n,))}, (), ours, in_torch, in_jax, fixed=("y",))


def mahalanobis(n: int, m: int, k: int) -> Case:
    """``Σ_ab (x[i, a] - c[j, a])·p[a, b]·(x[i, b] - c[j, b])``."""

    def ours(x: Any, c: Any, p: Any) -> Any:
        d = mapped((n, m, k), lambda i, j, a: x[i, a] - c[j, a])
        return reduced((n, m), (k, k), lambda i, j, a, b: d[i, j, a] * p[a, b] * d[i, j, b])

    def array(einsum: Any, x: Any, c: Any, p: Any) -> Any:
        d = x[:, None] - c
        return einsum("ija,ab,ijb->ij", d, p, d)

    return operator(
        {"x": Input((n, k)), "c": Input((m, k)), "p": Input((k, k))},
        (n, m),
        ours,
        lambda torch, x, c, p: array(torch.einsum, x, c, p),
        lambda jax, x, c, p: array(jax.numpy.einsum, x, c, p),
        tolerance=1e-3,
    )


CASES: dict[str, Callable[[], Case]] = {
    "log-sum-exp-of-sums": lambda: log_sum_exp_of_sums(200, 150, 48),
    "log-sum-exp-of-distances": lambda: log_sum_exp_of_distances(2000, 300),
    "soft-histogram": lambda: soft_histogram(20000, 64),
    "noisy-or": lambda: noisy_or(128, 96, 40),
    "pairwise-ranking": lambda: pairwise_ranking(1200),
    "mahalanobis": lambda: mahalanobis(300, 40, 16),
}
