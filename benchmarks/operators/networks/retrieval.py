"""Embeddings compared, pooled and transported: retrieval and metric learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced, softmax


def image_text(n: int, width: int) -> Case:
    """Cross entropy of both directions over the cosines of pairs, with a learned temperature."""

    def ours(a: Any, b: Any, sharp: Any) -> Any:
        def unit(x: Any) -> Any:
            square = reduced((n,), (width,), lambda i, k: x[i, k] * x[i, k])
            return mapped((n, width), lambda i, k: x[i, k] * te.rsqrt(square[i] + 1e-6))

        u, v = unit(a), unit(b)
        raw = reduced((n, n), (width,), lambda i, j, k: u[i, k] * v[j, k])
        s = mapped((n, n), lambda i, j: raw[i, j] * te.exp(sharp()))

        def half(s: Any) -> Any:
            top = reduced((n,), (n,), s, te.max)
            total = reduced((n,), (n,), lambda i, j: te.exp(s(i, j) - top[i]))
            return reduced((), (n,), lambda i: te.log(total[i]) + top[i] - s(i, i))

        rows, columns = half(lambda i, j: s[i, j]), half(lambda i, j: s[j, i])
        return mapped((), lambda: (rows() + columns()) / (2.0 * n))

    def in_torch(torch: Any, a: Any, b: Any, sharp: Any) -> Any:
        u = a * ((a * a).sum(1, keepdim=True) + 1e-6) ** -0.5
        v = b * ((b * b).sum(1, keepdim=True) + 1e-6) ** -0.5
        s = u @ v.T * torch.exp(sharp)
        target = torch.arange(n)
        entropy = torch.nn.functional.cross_entropy
        return (entropy(s, target) + entropy(s.T, target)) / 2

    def in_jax(jax: Any, a: Any, b: Any, sharp: Any) -> Any:
        u = a * ((a * a).sum(1, keepdims=True) + 1e-6) ** -0.5
        v = b * ((b * b).sum(1, keepdims=True) + 1e-6) ** -0.5
        s = u @ v.T * jax.numpy.exp(sharp)
        lse, right = jax.nn.logsumexp, jax.numpy.trace(s)
        return (lse(s, 1).sum() + lse(s, 0).sum() - 2 * right) / (2 * n)

    return operator(
        {"a": Input((n, width)), "b": Input((n, width)), "sharp": Input((), 0.1, 2.5)},
        (),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def supervised_contrastive(n: int, width: int, classes: int) -> Case:
    """Contrastive over all others, with every other of the same class as a partner."""

    def ours(z: Any, label: Any) -> Any:
        s = reduced((n, n), (width,), lambda i, j, k: z[i, k] * z[j, k])
        low = te.const(-1e9, "float32")
        top = reduced((n,), (n,), lambda i, j: te.if_then_else(i == j, low, s[i, j]), te.max)
        total = reduced(
            (n,), (n,), lambda i, j: te.if_then_else(i == j, 0.0, te.exp(s[i, j] - top[i]))
        )
        lse = mapped((n,), lambda i: te.log(total[i]) + top[i])

        def partner(i: Any, j: Any, value: Any) -> Any:
            return te.if_then_else(te.all(label[i] == label[j], i != j), value, 0.0)

        count = reduced((n,), (n,), lambda i, j: partner(i, j, te.const(1.0, "float32")))
        near = reduced((n,), (n,), lambda i, j: partner(i, j, s[i, j]))
        return reduced(
            (), (n,), lambda i: lse[i] - near[i] / te.max(count[i], te.const(1.0, "float32"))
        )

    def in_torch(torch: Any, z: Any, label: Any) -> Any:
        s = z @ z.T
        eye = torch.eye(n, dtype=torch.bool)
        same = ((label[:, None] == label) & ~eye).to(s.dtype)
        lse = torch.logsumexp(s.masked_fill(eye, -1e9), 1)
        return (lse - (same * s).sum(1) / same.sum(1).clamp_min(1.0)).sum()

    def in_jax(jax: Any, z: Any, label: Any) -> Any:
        numpy = jax.numpy
        s, eye = z @ z.T, numpy.eye(n, dtype=bool)
        same = ((label[:, None] == label) & ~eye).astype(s.dtype)
        lse = jax.nn.logsumexp(numpy.where(eye, -1e9, s), 1)
        return (lse - (same * s).sum(1) / numpy.maximum(same.sum(1), 1.0)).sum()

    return operator(
        {"z": Input((n, width), 0.3), "label": Input((n,), below=classes)},
        (),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def hard_triplets(n: int, width: int, classes: int) -> Case:
    """The farthest of the same class beside the nearest of another, for each row, softly."""

    def ours(x: Any, label: Any) -> Any:
        d2 = reduced((n, n), (width,), lambda i, j, k: (x[i, k] - x[j, k]) * (x[i, k] - x[j, k]))
        d = mapped((n, n), lambda i, j: te.sqrt(d2[i, j] + 1e-6))
        far = reduced(
            (n,), (n,), lambda i, j: te.if_then_else(label[i] == label[j], d[i, j], 0.0), te.max
        )
        near = reduced(
            (n,), (n,), lambda i, j: te.if_then_else(label[i] == label[j], 1e9, d[i, j]), te.min
        )
        return reduced((), (n,), lambda i: te.log(1.0 + te.exp(far[i] - near[i])))

    def in_torch(torch: Any, x: Any, label: Any) -> Any:
        square = (x * x).sum(1)
        d = (square[:, None] + square - 2 * x @ x.T).clamp_min(0.0).add(1e-6).sqrt()
        same = label[:, None] == label
        far = torch.where(same, d, 0.0).amax(1)
        near = torch.where(same, 1e9, d).amin(1)
        return torch.nn.functional.softplus(far - near).sum()

    def in_jax(jax: Any, x: Any, label: Any) -> Any:
        numpy = jax.numpy
        d = numpy.sqrt(((x[:, None] - x) ** 2).sum(2) + 1e-6)
        same = label[:, None] == label
        far = numpy.where(same, d, 0.0).max(1)
        near = numpy.where(same, 1e9, d).min(1)
        return jax.nn.softplus(far - near).sum()

    return operator(
        {"x": Input((n, width)), "label": Input((n,), below=classes)},
        (),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def earth_mover(rows: int, bins: int) -> Case:
    """Distances of distributions on a line: sums of absolute differences of their cumulatives."""

    def ours(x: Any, target: Any) -> Any:
        p = softmax(x)
        gap = reduced(
            (rows, bins),
            (bins,),
            lambda r, t, k: te.if_then_else(k <= t, p[r, k] - target[r, k], 0.0),
        )
        return reduced((rows,), (bins,), lambda r, t: te.abs(gap[r, t]))

    return operator(
        {"x": Input((rows, bins)), "target": Input((rows, bins), 0.001, 1.0 / bins)},
        (rows,),
        ours,
        lambda torch, x, t: torch.cumsum(torch.softmax(x, 1) - t, 1).abs().sum(1),
        lambda jax, x, t: abs(jax.numpy.cumsum(jax.nn.softmax(x, 1) - t, 1)).sum(1),
        fixed=("target",),
    )


def embedding_bag(bags: int, size: int, entries: int, width: int) -> Case:
    """Weighted means of rows of a table."""

    def ours(table: Any, index: Any, weight: Any) -> Any:
        total = reduced((bags,), (size,), lambda b, k: weight[b, k])
        return reduced(
            (bags, width),
            (size,),
            lambda b, c, k: table[index[b, k], c] * weight[b, k] / total[b],
        )

    def in_torch(torch: Any, table: Any, index: Any, weight: Any) -> Any:
        share = weight / weight.sum(1, keepdim=True)
        return torch.nn.functional.embedding_bag(index, table, mode="sum", per_sample_weights=share)

    def in_jax(jax: Any, table: Any, index: Any, weight: Any) -> Any:
        share = weight / weight.sum(1, keepdims=True)
        return jax.numpy.einsum("bk,bkc->bc", share, table[index])

    return operator(
        {
            "table": Input((entries, width)),
            "index": Input((bags, size), below=entries),
            "weight": Input((bags, size), 0.2, 1.0),
        },
        (bags, width),
        ours,
        in_torch,
        in_jax,
    )


def masked_pooling(batch: int, length: int, width: int) -> Case:
    """Means of the rows within each length, weighted by a softmax of learned scores."""

    def ours(x: Any, w: Any, count: Any) -> Any:
        raw = reduced((batch, length), (width,), lambda n, t, c: te.tanh(x[n, t, c]) * w[c])
        scores = mapped(
            (batch, length),
            lambda n, t: te.if_then_else(t <= count[n], raw[n, t], te.const(-1e9, "float32")),
        )
        p = softmax(scores)
        return reduced((batch, width), (length,), lambda n, c, t: p[n, t] * x[n, t, c])

    def array(
        numpy: Any, arange: Any, softmax: Any, contract: Any, x: Any, w: Any, count: Any
    ) -> Any:
        raw = numpy.tanh(x) @ w
        p = softmax(numpy.where(arange(length) <= count[:, None], raw, -1e9))
        return contract("nt,ntc->nc", p, x)

    return operator(
        {
            "x": Input((batch, length, width)),
            "w": Input((width,), 0.2),
            "count": Input((batch,), below=length),
        },
        (batch, width),
        ours,
        lambda torch, *a: array(
            torch, torch.arange, lambda s: torch.softmax(s, 1), torch.einsum, *a
        ),
        lambda jax, *a: array(
            jax.numpy, jax.numpy.arange, lambda s: jax.nn.softmax(s, 1), jax.numpy.einsum, *a
        ),
    )


CASES: dict[str, Callable[[], Case]] = {
    "image-text": lambda: image_text(200, 96),
    "supervised-contrastive": lambda: supervised_contrastive(257, 64, 10),
    "hard-triplets": lambda: hard_triplets(257, 33, 10),
    "earth-mover": lambda: earth_mover(257, 200),
    "embedding-bag": lambda: embedding_bag(512, 20, 5000, 64),
    "masked-pooling": lambda: masked_pooling(64, 100, 33),
}
