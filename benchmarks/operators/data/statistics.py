"""Likelihoods, kernels and ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def cox(n: int, features: int) -> Case:
    """The partial likelihood of survival times in decreasing order; some are censored."""

    def ours(x: Any, w: Any, event: Any) -> Any:
        score = reduced((n,), (features,), lambda i, k: x[i, k] * w[k])
        top = reduced((), (n,), lambda i: score[i], te.max)
        power = mapped((n,), lambda i: te.exp(score[i] - top()))
        risk = reduced((n,), (n,), lambda i, j: te.if_then_else(j <= i, power[j], 0.0))
        return reduced((), (n,), lambda i: event[i] * (te.log(risk[i]) + top() - score[i]))

    def array(numpy: Any, lse: Any, x: Any, w: Any, event: Any) -> Any:
        score = x @ w
        return (event * (lse(score) - score)).sum()

    return operator(
        {"x": Input((n, features)), "w": Input((features,), 0.3), "event": Input((n,), 0.2, 0.6)},
        (),
        ours,
        lambda torch, *a: array(torch, lambda s: torch.logcumsumexp(s, 0), *a),
        lambda jax, *a: array(jax.numpy, lambda s: jax.lax.cumlogsumexp(s, 0), *a),
        fixed=("event",),
        tolerance=1e-3,
    )


def matern(n: int, features: int) -> Case:
    """A quadratic form of a Matern 5/2 kernel with a length scale per feature."""

    def ours(x: Any, scale: Any, y: Any, noise: Any) -> Any:
        z = mapped((n, features), lambda i, k: x[i, k] * te.exp(scale[k]))
        r2 = reduced((n, n), (features,), lambda i, j, k: (z[i, k] - z[j, k]) * (z[i, k] - z[j, k]))
        r = mapped((n, n), lambda i, j: te.sqrt(5.0 * r2[i, j] + 1e-6))
        kernel = mapped(
            (n, n),
            lambda i, j: (
                (1.0 + r[i, j] + r[i, j] * r[i, j] / 3.0) * te.exp(-r[i, j])
                + te.if_then_else(i == j, te.exp(noise()), 0.0)
            ),
        )
        return reduced((), (n, n), lambda i, j: y[i] * kernel[i, j] * y[j])

    def array(numpy: Any, x: Any, scale: Any, y: Any, noise: Any) -> Any:
        z = x * numpy.exp(scale)
        d = z[:, None] - z[None]
        r = numpy.sqrt(5 * (d * d).sum(-1) + 1e-6)
        kernel = (1 + r + r * r / 3) * numpy.exp(-r)
        return y @ (kernel @ y) + numpy.exp(noise) * (y * y).sum()

    return operator(
        {
            "x": Input((n, features)),
            "scale": Input((features,), 0.3, -1.0),
            "y": Input((n,)),
            "noise": Input(()),
        },
        (),
        ours,
        lambda torch, *a: array(torch, *a),
        lambda jax, *a: array(jax.numpy, *a),
        tolerance=1e-3,
    )


def tsne(n: int) -> Case:
    """The Kullback-Leibler divergence from similarities to those of Student's t in the plane."""

    def ours(y: Any, p: Any) -> Any:
        num = mapped(
            (n, n),
            lambda i, j: te.if_then_else(
                i == j,
                0.0,
                1.0
                / (
                    1.0
                    + (y[i, 0] - y[j, 0]) * (y[i, 0] - y[j, 0])
                    + (y[i, 1] - y[j, 1]) * (y[i, 1] - y[j, 1])
                ),
            ),
        )
        total = reduced((), (n, n), lambda i, j: num[i, j])
        return reduced(
            (),
            (n, n),
            lambda i, j: te.exp(p[i, j]) * (p[i, j] - te.log(num[i, j] / total() + 1e-9)),
        )

    def array(numpy: Any, eye: Any, y: Any, p: Any) -> Any:
        d = y[:, None] - y[None]
        num = (1 - eye(y)) / (1 + (d * d).sum(-1))
        return (numpy.exp(p) * (p - numpy.log(num / num.sum() + 1e-9))).sum()

    return operator(
        {"y": Input((n, 2)), "p": Input((n, n), 1.0, -9.0)},
        (),
        ours,
        lambda torch, *a: array(torch, lambda y: torch.eye(n, dtype=y.dtype), *a),
        lambda jax, *a: array(jax.numpy, lambda y: jax.numpy.eye(n, dtype=y.dtype), *a),
        fixed=("p",),
        tolerance=1e-3,
    )


def item_response(persons: int, items: int) -> Case:
    """Three-parameter logistic model of answers to questions."""

    def ours(theta: Any, a: Any, b: Any, c: Any, answer: Any) -> Any:
        def loss(i: Any, j: Any) -> Any:
            g = te.sigmoid(c[j])
            p = g + (1.0 - g) * te.sigmoid(te.exp(a[j]) * (theta[i] - b[j]))
            return answer[i, j] * te.log(p) + (1.0 - answer[i, j]) * te.log(1.0 - p)

        total = reduced((), (persons, items), loss)
        prior = reduced((), (persons,), lambda i: theta[i] * theta[i] * 0.5)
        return mapped((), lambda: prior() - total())

    def array(numpy: Any, sigmoid: Any, theta: Any, a: Any, b: Any, c: Any, answer: Any) -> Any:
        g = sigmoid(c)
        p = g + (1 - g) * sigmoid(numpy.exp(a) * (theta[:, None] - b))
        return (
            0.5 * (theta**2).sum() - (answer * numpy.log(p) + (1 - answer) * numpy.log(1 - p)).sum()
        )

    return operator(
        {
            "theta": Input((persons,)),
            "a": Input((items,), 0.2),
            "b": Input((items,)),
            "c": Input((items,), 0.3, -1.5),
            "answer": Input((persons, items), 0.2, 0.5),
        },
        (),
        ours,
        lambda torch, *v: array(torch, torch.sigmoid, *v),
        lambda jax, *v: array(jax.numpy, jax.nn.sigmoid, *v),
        fixed=("answer",),
        tolerance=1e-3,
    )


def approximate_ndcg(queries: int, docs: int) -> Case:
    """Discounted gains with ranks that are sums of sigmoids of differences."""

    def ours(s: Any, gain: Any) -> Any:
        rank = reduced(
            (queries, docs),
            (docs,),
            lambda q, i, j: te.if_then_else(i == j, 1.0, te.sigmoid((s[q, j] - s[q, i]) * 10.0)),
        )
        dcg = reduced((queries,), (docs,), lambda q, i: gain[q, i] / te.log2(1.0 + rank[q, i]))
        return reduced((), (queries,), lambda q: 0.0 - dcg[q])

    def array(numpy: Any, sigmoid: Any, eye: Any, s: Any, gain: Any) -> Any:
        pair = sigmoid((s[:, None, :] - s[:, :, None]) * 10)
        rank = 0.5 + pair.sum(-1)
        return -(gain / numpy.log2(1 + rank)).sum()

    return operator(
        {"s": Input((queries, docs), 0.3), "gain": Input((queries, docs), 0.2, 0.5)},
        (),
        ours,
        lambda torch, *a: array(torch, torch.sigmoid, None, *a),
        lambda jax, *a: array(jax.numpy, jax.nn.sigmoid, None, *a),
        fixed=("gain",),
    )


def online_softmax(rows: int, width: int) -> Case:
    """The logarithm of sums of exponentials by one reduction over pairs (maximum, sum)."""

    def ours(x: Any, temperature: Any) -> Any:
        def combine(a: Any, b: Any) -> Any:
            top = te.max(a[0], b[0])
            return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)

        pair = te.comm_reducer(
            combine, lambda *kinds: (te.min_value(kinds[0]), te.const(0.0, kinds[1])), name="lse"
        )
        k = te.reduce_axis((0, width), "k")
        top, total = te.compute(
            (rows,),
            lambda r: pair((x[r, k] * temperature(), te.const(1.0, "float32")), axis=k),
            name="pair",
        )
        return mapped((rows,), lambda r: top[r] + te.log(total[r]))

    return operator(
        {"x": Input((rows, width)), "temperature": Input((), 0.1, 1.0)},
        (rows,),
        ours,
        lambda torch, x, t: torch.logsumexp(x * t, 1),
        lambda jax, x, t: jax.nn.logsumexp(x * t, 1),
    )


CASES: dict[str, Callable[[], Case]] = {
    "cox": lambda: cox(2000, 12),
    "matern": lambda: matern(400, 6),
    "tsne": lambda: tsne(400),
    "item-response": lambda: item_response(1000, 80),
    "approximate-ndcg": lambda: approximate_ndcg(64, 40),
    "online-softmax": lambda: online_softmax(500, 700),
}
