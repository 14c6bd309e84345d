"""Losses: contrastive, focal, overlap, triplets, optimal transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def contrastive(n: int, width: int) -> Case:
    """Normalised temperature-scaled cross entropy of 2n views; a view's partner is n further."""
    rows, sharp = 2 * n, 10.0

    def ours(z: Any) -> Any:
        square = reduced((rows,), (width,), lambda i, k: z[i, k] * z[i, k])
        unit = mapped((rows, width), lambda i, k: z[i, k] * te.rsqrt(square[i] + 1e-6))
        raw = reduced((rows, rows), (width,), lambda i, j, k: unit[i, k] * unit[j, k])
        scores = mapped(
            (rows, rows),
            lambda i, j: te.if_then_else(i == j, te.const(-1e9, "float32"), raw[i, j] * sharp),
        )
        top = reduced((rows,), (rows,), lambda i, j: scores[i, j], te.max)
        total = reduced((rows,), (rows,), lambda i, j: te.exp(scores[i, j] - top[i]))
        return reduced(
            (),
            (rows,),
            lambda i: (te.log(total[i]) + top[i] - scores[i, (i + n) % rows]) * (1.0 / rows),
        )

    def in_torch(torch: Any, z: Any) -> Any:
        unit = z * ((z * z).sum(1, keepdim=True) + 1e-6) ** -0.5
        scores = (unit @ unit.T * sharp).masked_fill(torch.eye(rows, dtype=torch.bool), -1e9)
        target = (torch.arange(rows) + n) % rows
        return torch.nn.functional.cross_entropy(scores, target)

    def in_jax(jax: Any, z: Any) -> Any:
        numpy = jax.numpy
        unit = z * ((z * z).sum(1, keepdims=True) + 1e-6) ** -0.5
        scores = numpy.where(numpy.eye(rows, dtype=bool), -1e9, unit @ unit.T * sharp)
        span = numpy.arange(rows)
        right = scores[span, (span + n) % rows]
        return (jax.nn.logsumexp(scores, 1) - right).mean()

    return operator({"z": Input((rows, width))}, (), ours, in_torch, in_jax)


def focal(n: int, classes: int) -> Case:
    """``-Σ (1 - p)²·log p`` of the right classes, weighted by class."""

    def ours(x: Any, label: Any, weight: Any) -> Any:
        top = reduced((n,), (classes,), lambda i, c: x[i, c], te.max)
        total = reduced((n,), (classes,), lambda i, c: te.exp(x[i, c] - top[i]))
        logs = mapped((n,), lambda i: x[i, label[i]] - top[i] - te.log(total[i]))

        def body(i: Any) -> Any:
            rest = 1.0 - te.exp(logs[i])
            return -weight[label[i]] * rest * rest * logs[i]

        return reduced((), (n,), body)

    def in_torch(torch: Any, x: Any, label: Any, weight: Any) -> Any:
        logs = torch.log_softmax(x, 1).gather(1, label[:, None])[:, 0]
        return (-weight[label] * (1.0 - torch.exp(logs)) ** 2 * logs).sum()

    def in_jax(jax: Any, x: Any, label: Any, weight: Any) -> Any:
        logs = jax.nn.log_softmax(x, 1)[jax.numpy.arange(n), label]
        return (-weight[label] * (1.0 - jax.numpy.exp(logs)) ** 2 * logs).sum()

    return operator(
        {
            "x": Input((n, classes)),
            "label": Input((n,), below=classes),
            "weight": Input((classes,), 0.1, 1.0),
        },
        (),
        ours,
        in_torch,
        in_jax,
    )


def dice(batch: int, classes: int, size: int) -> Case:
    """One minus the overlap of softmax over channels and a soft target, per class."""
    box = (batch, classes, size, size)

    def ours(x: Any, y: Any) -> Any:
        top = reduced((batch, size, size), (classes,), lambda n, i, j, c: x[n, c, i, j], te.max)
        power = mapped(box, lambda n, c, i, j: te.exp(x[n, c, i, j] - top[n, i, j]))
        total = reduced((batch, size, size), (classes,), lambda n, i, j, c: power[n, c, i, j])
        p = mapped(box, lambda n, c, i, j: power[n, c, i, j] / total[n, i, j])
        both = reduced(
            (classes,), (batch, size, size), lambda c, n, i, j: p[n, c, i, j] * y[n, c, i, j]
        )
        sums = reduced(
            (classes,), (batch, size, size), lambda c, n, i, j: p[n, c, i, j] + y[n, c, i, j]
        )
        return reduced((), (classes,), lambda c: 1.0 - (2.0 * both[c] + 1.0) / (sums[c] + 1.0))

    def array(p: Any, y: Any) -> Any:
        both, sums = (p * y).sum((0, 2, 3)), (p + y).sum((0, 2, 3))
        return (1.0 - (2.0 * both + 1.0) / (sums + 1.0)).sum()

    return operator(
        {"x": Input(box), "y": Input(box, 0.1, 0.5)},
        (),
        ours,
        lambda torch, x, y: array(torch.softmax(x, 1), y),
        lambda jax, x, y: array(jax.nn.softmax(x, 1), y),
        fixed=("y",),
    )


def triplets(n: int, width: int) -> Case:
    """``Σ_ijk max(0, d[i, j] - d[i, k] + 1)`` over all pairs of distances of each row."""

    def ours(x: Any, p: Any) -> Any:
        d = reduced((n, n), (width,), lambda i, j, k: (x[i, k] - p[j, k]) * (x[i, k] - p[j, k]))
        return reduced(
            (),
            (n, n, n),
            lambda i, j, k: te.max(d[i, j] - d[i, k] + 1.0, te.const(0.0, "float32")),
        )

    def in_torch(torch: Any, x: Any, p: Any) -> Any:
        d = ((x[:, None] - p) ** 2).sum(2)
        return torch.relu(d[:, :, None] - d[:, None] + 1.0).sum()

    def in_jax(jax: Any, x: Any, p: Any) -> Any:
        d = ((x[:, None] - p) ** 2).sum(2)
        return jax.nn.relu(d[:, :, None] - d[:, None] + 1.0).sum()

    return operator(
        {"x": Input((n, width), 0.3), "p": Input((n, width), 0.3)}, (), ours, in_torch, in_jax,
        tolerance=1e-3,
    )  # fmt: skip


def sinkhorn(n: int, m: int, width: int) -> Case:
    """Two half-steps of entropic transport between points, in logarithms, and the cost."""
    eps = 0.5

    def ours(x: Any, y: Any, g: Any) -> Any:
        cost = reduced((n, m), (width,), lambda i, j, k: (x[i, k] - y[j, k]) * (x[i, k] - y[j, k]))
        low = reduced((n,), (m,), lambda i, j: (g[j] - cost[i, j]) * (1 / eps), te.max)
        total = reduced((n,), (m,), lambda i, j: te.exp((g[j] - cost[i, j]) * (1 / eps) - low[i]))
        f = mapped((n,), lambda i: -eps * (te.log(total[i]) + low[i]))
        plan = mapped((n, m), lambda i, j: te.exp((f[i] + g[j] - cost[i, j]) * (1 / eps)))
        return reduced((), (n, m), lambda i, j: plan[i, j] * cost[i, j])

    def array(numpy: Any, lse: Any, x: Any, y: Any, g: Any) -> Any:
        cost = ((x[:, None] - y) ** 2).sum(2)
        f = -eps * lse((g - cost) * (1 / eps), 1)
        return (numpy.exp((f[:, None] + g - cost) * (1 / eps)) * cost).sum()

    return operator(
        {"x": Input((n, width)), "y": Input((m, width)), "g": Input((m,))},
        (),
        ours,
        lambda torch, *arrays: array(torch, torch.logsumexp, *arrays),
        lambda jax, *arrays: array(jax.numpy, jax.nn.logsumexp, *arrays),
        tolerance=1e-3,
    )


CASES: dict[str, Callable[[], Case]] = {
    "contrastive": lambda: contrastive(128, 64),
    "focal": lambda: focal(4096, 100),
    "dice": lambda: dice(4, 8, 96),
    "triplets": lambda: triplets(96, 32),
    "sinkhorn": lambda: sinkhorn(400, 300, 8),
}
