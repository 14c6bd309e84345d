"""Layers and losses over embeddings, codes, experts and neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import te, topi

from tvm_autodiff import segment_sum

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced, softmax


def factorization_machine(batch: int, fields: int, rows: int, width: int) -> Case:
    """Second-order interactions of embedded features, with a logistic loss."""

    def ours(index: Any, value: Any, v: Any, w: Any, y: Any) -> Any:
        s = reduced((batch, width), (fields,), lambda b, f, k: v[index[b, k], f] * value[b, k])
        q = reduced(
            (batch,),
            (fields, width),
            lambda b, k, f: v[index[b, k], f] * value[b, k] * v[index[b, k], f] * value[b, k],
        )
        line = reduced((batch,), (fields,), lambda b, k: w[index[b, k]] * value[b, k])
        square = reduced((batch,), (width,), lambda b, f: s[b, f] * s[b, f])
        logit = mapped((batch,), lambda b: line[b] + 0.5 * (square[b] - q[b]))
        return reduced((), (batch,), lambda b: te.log(1.0 + te.exp(-y[b] * logit[b])))

    def array(numpy: Any, softplus: Any, index: Any, value: Any, v: Any, w: Any, y: Any) -> Any:
        e = v[index] * value[..., None]
        s = e.sum(1)
        logit = (w[index] * value).sum(1) + 0.5 * ((s * s).sum(1) - (e * e).sum((1, 2)))
        return softplus(-y * logit).sum()

    return operator(
        {
            "index": Input((batch, fields), below=rows),
            "value": Input((batch, fields)),
            "v": Input((rows, width), 0.1),
            "w": Input((rows,), 0.1),
            "y": Input((batch,)),
        },
        (),
        ours,
        lambda torch, *a: array(torch, torch.nn.functional.softplus, *a),
        lambda jax, *a: array(jax.numpy, jax.nn.softplus, *a),
        fixed=("value", "y"),
        tolerance=1e-3,
    )


def bpr(batch: int, users: int, items: int, width: int) -> Case:
    """Bayesian personalised ranking of a bought item against one that was not."""

    def ours(user: Any, bought: Any, other: Any, p: Any, q: Any) -> Any:
        score = reduced(
            (batch,), (width,), lambda b, k: p[user[b], k] * (q[bought[b], k] - q[other[b], k])
        )
        fit = reduced((), (batch,), lambda b: -te.log(te.sigmoid(score[b])))
        return mapped((), lambda: fit() / float(batch))

    def array(
        numpy: Any, logsigmoid: Any, user: Any, bought: Any, other: Any, p: Any, q: Any
    ) -> Any:
        return -logsigmoid((p[user] * (q[bought] - q[other])).sum(1)).mean()

    return operator(
        {
            "user": Input((batch,), below=users),
            "bought": Input((batch,), below=items),
            "other": Input((batch,), below=items),
            "p": Input((users, width), 0.3),
            "q": Input((items, width), 0.3),
        },
        (),
        ours,
        lambda torch, *a: array(torch, torch.nn.functional.logsigmoid, *a),
        lambda jax, *a: array(jax.numpy, jax.nn.log_sigmoid, *a),
    )


def kan(batch: int, inputs: int, outputs: int, bases: int) -> Case:
    """A layer of cubic B-splines on a uniform grid, with weights per edge."""
    # knots t_k = -1 + (k - 3) h; basis k at u = (x + 1)/h - k + 3, with support 0..4
    h = 2.0 / (bases - 3)

    def spline(u: Any, where: Any, relu: Any) -> Any:
        # truncated powers
        def c(d):
            return relu(u - d) * relu(u - d) * relu(u - d)

        return (c(0.0) - 4.0 * c(1.0) + 6.0 * c(2.0) - 4.0 * c(3.0) + c(4.0)) / 6.0

    def ours(x: Any, w: Any, base: Any) -> Any:
        def relu(v):
            return te.max(v, te.const(0.0, "float32"))

        b = mapped(
            (batch, inputs, bases),
            lambda n, i, k: spline((x[n, i] + 1.0) / h - k.astype("float32") + 3.0, None, relu),
        )
        y = reduced((batch, outputs), (inputs, bases), lambda n, o, i, k: b[n, i, k] * w[o, i, k])
        z = reduced(
            (batch, outputs), (inputs,), lambda n, o, i: x[n, i] * te.sigmoid(x[n, i]) * base[o, i]
        )
        return mapped((batch, outputs), lambda n, o: y[n, o] + z[n, o])

    def array(relu: Any, silu: Any, arange: Any, einsum: Any, x: Any, w: Any, base: Any) -> Any:
        b = spline((x[..., None] + 1) / h - arange(x) + 3, None, relu)
        return einsum("nik,oik->no", b, w) + silu(x) @ base.T

    return operator(
        {
            "x": Input((batch, inputs), 0.4),
            "w": Input((outputs, inputs, bases), 0.1),
            "base": Input((outputs, inputs), 0.2),
        },
        (batch, outputs),
        ours,
        lambda torch, *a: array(
            torch.relu,
            torch.nn.functional.silu,
            lambda x: torch.arange(bases).to(x.dtype),
            torch.einsum,
            *a,
        ),
        lambda jax, *a: array(
            jax.nn.relu,
            jax.nn.silu,
            lambda x: jax.numpy.arange(bases).astype(x.dtype),
            jax.numpy.einsum,
            *a,
        ),
        tolerance=1e-3,
    )


def vector_quantiser(n: int, width: int, codes: int) -> Case:
    """The nearest code of each row, and the loss of codebook and commitment."""

    def ours(x: Any, c: Any) -> Any:
        d = reduced((n, codes), (width,), lambda i, j, k: (x[i, k] - c[j, k]) * (x[i, k] - c[j, k]))
        near = topi.argmin(d, axis=1)
        return reduced(
            (),
            (n, width),
            lambda i, k: (x[i, k] - c[near[i], k]) * (x[i, k] - c[near[i], k]) * 1.25,
        )

    def array(detach: Any, argmin: Any, x: Any, c: Any) -> Any:
        a, b = detach(x), detach(c)
        d = (a * a).sum(1, keepdims=True) - 2 * a @ b.T + (b * b).sum(1)
        near = argmin(d)
        return 1.25 * ((x - c[near]) ** 2).sum()

    return operator(
        {"x": Input((n, width)), "c": Input((codes, width))},
        (),
        ours,
        lambda torch, *a: array(lambda v: v.detach(), lambda d: d.argmin(1), *a),
        lambda jax, *a: array(jax.lax.stop_gradient, lambda d: d.argmin(1), *a),
        tolerance=1e-3,
    )


def arcface(batch: int, width: int, classes: int) -> Case:
    """Cross entropy of cosines with an angular margin at the label."""
    cm, sm, scale = math.cos(0.4), math.sin(0.4), 30.0

    def ours(x: Any, w: Any, label: Any) -> Any:
        nx = reduced((batch,), (width,), lambda b, k: x[b, k] * x[b, k])
        nw = reduced((classes,), (width,), lambda c, k: w[c, k] * w[c, k])
        ux = mapped((batch, width), lambda b, k: x[b, k] * te.rsqrt(nx[b]))
        uw = mapped((classes, width), lambda c, k: w[c, k] * te.rsqrt(nw[c]))
        cos = reduced((batch, classes), (width,), lambda b, c, k: ux[b, k] * uw[c, k])
        logit = mapped(
            (batch, classes),
            lambda b, c: (
                scale
                * te.if_then_else(
                    c == label[b],
                    cos[b, c] * cm - te.sqrt(te.max(1.0 - cos[b, c] * cos[b, c], 1e-6)) * sm,
                    cos[b, c],
                )
            ),
        )
        top = reduced((batch,), (classes,), lambda b, c: logit[b, c], te.max)
        total = reduced((batch,), (classes,), lambda b, c: te.exp(logit[b, c] - top[b]))
        return reduced(
            (), (batch,), lambda b: (te.log(total[b]) + top[b] - logit[b, label[b]]) / float(batch)
        )

    def array(numpy: Any, hot: Any, clip: Any, lse: Any, x: Any, w: Any, label: Any) -> Any:
        ux = x * (x * x).sum(1, keepdims=True) ** -0.5
        uw = w * (w * w).sum(1, keepdims=True) ** -0.5
        cos = ux @ uw.T
        h = hot(label, cos)
        logit = scale * numpy.where(h, cos * cm - numpy.sqrt(clip(1 - cos * cos)) * sm, cos)
        return (lse(logit) - numpy.where(h, logit, numpy.zeros_like(logit)).sum(1)).mean()

    return operator(
        {
            "x": Input((batch, width)),
            "w": Input((classes, width)),
            "label": Input((batch,), below=classes),
        },
        (),
        ours,
        lambda torch, *a: array(
            torch,
            lambda m, c: m[:, None] == torch.arange(classes),
            lambda v: torch.clip(v, min=1e-6),
            lambda v: torch.logsumexp(v, 1),
            *a,
        ),
        lambda jax, *a: array(
            jax.numpy,
            lambda m, c: m[:, None] == jax.numpy.arange(classes),
            lambda v: jax.numpy.maximum(v, 1e-6),
            lambda v: jax.nn.logsumexp(v, 1),
            *a,
        ),
        tolerance=1e-3,
    )


def barlow_twins(batch: int, width: int) -> Case:
    """Redundancy of the correlations of two batches of normalised features."""

    def ours(x: Any, y: Any) -> Any:
        def normal(v: Any) -> Any:
            mean = reduced((width,), (batch,), lambda k, b: v[b, k] / float(batch))
            var = reduced(
                (width,),
                (batch,),
                lambda k, b: (v[b, k] - mean[k]) * (v[b, k] - mean[k]) / float(batch),
            )
            return mapped(
                (batch, width), lambda b, k: (v[b, k] - mean[k]) * te.rsqrt(var[k] + 1e-5)
            )

        p, q = normal(x), normal(y)
        c = reduced((width, width), (batch,), lambda i, j, b: p[b, i] * q[b, j] / float(batch))
        return reduced(
            (),
            (width, width),
            lambda i, j: te.if_then_else(
                i == j, (1.0 - c[i, j]) * (1.0 - c[i, j]), 0.005 * c[i, j] * c[i, j]
            ),
        )

    def array(numpy: Any, eye: Any, x: Any, y: Any) -> Any:
        def normal(v: Any) -> Any:
            m = v.mean(0)
            d = v - m
            return d * ((d * d).mean(0) + 1e-5) ** -0.5

        c = normal(x).T @ normal(y) / batch
        e = eye(c)
        return (e * (1 - c) ** 2 + 0.005 * (1 - e) * c * c).sum()

    return operator(
        {"x": Input((batch, width)), "y": Input((batch, width))},
        (),
        ours,
        lambda torch, *a: array(torch, lambda c: torch.eye(width, dtype=c.dtype), *a),
        lambda jax, *a: array(jax.numpy, lambda c: jax.numpy.eye(width, dtype=c.dtype), *a),
        tolerance=1e-3,
    )


def experts(tokens: int, width: int, out: int, count: int) -> Case:
    """Each token times the matrix of its own expert, times its gate."""

    def ours(expert: Any, gate: Any, x: Any, w: Any) -> Any:
        return reduced(
            (tokens, out), (width,), lambda n, o, k: gate[n] * x[n, k] * w[expert[n], k, o]
        )

    def in_torch(torch: Any, expert: Any, gate: Any, x: Any, w: Any) -> Any:
        order = torch.argsort(expert)
        counts = torch.bincount(expert, minlength=count).tolist()
        parts = torch.split(x[order], counts)
        y = torch.cat([p @ w[e] for e, p in enumerate(parts)])
        return torch.zeros_like(y).index_copy(0, order, y) * gate[:, None]

    def in_jax(jax: Any, expert: Any, gate: Any, x: Any, w: Any) -> Any:
        hot = jax.nn.one_hot(expert, count, dtype=x.dtype)
        # dense dispatch: every expert, then the own one
        return jax.numpy.einsum("ne,nk,eko->no", hot * gate[:, None], x, w)

    return operator(
        {
            "expert": Input((tokens,), below=count),
            "gate": Input((tokens,), 0.1, 0.8),
            "x": Input((tokens, width)),
            "w": Input((count, width, out), 0.1),
        },
        (tokens, out),
        ours,
        in_torch,
        in_jax,
    )


def edge_features(n: int, near: int, width: int, out: int) -> Case:
    """The largest message from neighbours: a layer of (x_i, x_j - x_i), ReLU, maximum."""

    def ours(index: Any, x: Any, w: Any, v: Any) -> Any:
        own = reduced((n, out), (width,), lambda i, o, k: x[i, k] * w[k, o])
        other = reduced((n, out), (width,), lambda i, o, k: x[i, k] * v[k, o])
        return reduced(
            (n, out),
            (near,),
            lambda i, o, m: te.max(
                own[i, o] + other[index[i, m], o] - other[i, o], te.const(0.0, "float32")
            ),
            te.max,
        )

    def array(relu: Any, top: Any, index: Any, x: Any, w: Any, v: Any) -> Any:
        own, other = x @ w, x @ v
        return top(relu(own[:, None] + other[index] - other[:, None]))

    return operator(
        {
            "index": Input((n, near), below=n),
            "x": Input((n, width)),
            "w": Input((width, out), 0.2),
            "v": Input((width, out), 0.2),
        },
        (n, out),
        ours,
        lambda torch, *a: array(torch.relu, lambda m: torch.amax(m, 1), *a),
        lambda jax, *a: array(jax.nn.relu, lambda m: m.max(1), *a),
    )


def continuous_filter(atoms: int, edges: int, bases: int, width: int) -> Case:
    """Messages between atoms with filters from radial bases of their distance."""

    def ours(source: Any, target: Any, x: Any, pos: Any, w: Any) -> Any:
        d = mapped(
            (edges,),
            lambda e: te.sqrt(
                1e-4
                + (pos[source[e], 0] - pos[target[e], 0]) * (pos[source[e], 0] - pos[target[e], 0])
                + (pos[source[e], 1] - pos[target[e], 1]) * (pos[source[e], 1] - pos[target[e], 1])
                + (pos[source[e], 2] - pos[target[e], 2]) * (pos[source[e], 2] - pos[target[e], 2])
            ),
        )
        rbf = mapped(
            (edges, bases),
            lambda e, k: te.exp(
                -4.0 * (d[e] - k.astype("float32") * 0.3) * (d[e] - k.astype("float32") * 0.3)
            ),
        )
        f = reduced((edges, width), (bases,), lambda e, c, k: rbf[e, k] * w[k, c])
        message = mapped((edges, width), lambda e, c: f[e, c] * x[source[e], c])
        return segment_sum(message, target, atoms)

    def array(
        numpy: Any, arange: Any, add: Any, source: Any, target: Any, x: Any, pos: Any, w: Any
    ) -> Any:
        v = pos[source] - pos[target]
        d = numpy.sqrt((v * v).sum(1) + 1e-4)
        rbf = numpy.exp(-4 * (d[:, None] - 0.3 * arange(d)) ** 2)
        return add(rbf @ w * x[source], target)

    return operator(
        {
            "source": Input((edges,), below=atoms),
            "target": Input((edges,), below=atoms),
            "x": Input((atoms, width)),
            "pos": Input((atoms, 3), 1.5),
            "w": Input((bases, width)),
        },
        (atoms, width),
        ours,
        lambda torch, *a: array(
            torch,
            lambda d: torch.arange(bases).to(d.dtype),
            lambda m, i: torch.zeros((atoms, width), dtype=m.dtype).index_add(0, i, m),
            *a,
        ),
        lambda jax, *a: array(
            jax.numpy,
            lambda d: jax.numpy.arange(bases).astype(d.dtype),
            lambda m, i: jax.ops.segment_sum(m, i, atoms),
            *a,
        ),
        tolerance=1e-3,
    )


def capsules(batch: int, inputs: int, outputs: int, narrow: int, wide: int) -> Case:
    """Votes of capsules, their mean squashed, and one round of agreement."""

    def ours(x: Any, w: Any) -> Any:
        vote = reduced(
            (batch, outputs, inputs, wide),
            (narrow,),
            lambda b, o, i, d, k: x[b, i, k] * w[o, i, d, k],
        )

        def squash(s: Any) -> Any:
            sq = reduced((batch, outputs), (wide,), lambda b, o, d: s[b, o, d] * s[b, o, d])
            return mapped(
                (batch, outputs, wide),
                lambda b, o, d: s[b, o, d] * te.sqrt(sq[b, o] + 1e-6) / (1.0 + sq[b, o]),
            )

        s0 = reduced(
            (batch, outputs, wide), (inputs,), lambda b, o, d, i: vote[b, o, i, d] / float(outputs)
        )
        v0 = squash(s0)
        agree = reduced(
            (batch, inputs, outputs), (wide,), lambda b, i, o, d: vote[b, o, i, d] * v0[b, o, d]
        )
        share = softmax(agree)
        s1 = reduced(
            (batch, outputs, wide), (inputs,), lambda b, o, d, i: share[b, i, o] * vote[b, o, i, d]
        )
        return squash(s1)

    def array(numpy: Any, soft: Any, x: Any, w: Any) -> Any:
        vote = numpy.einsum("bik,oidk->boid", x, w)

        def squash(s: Any) -> Any:
            sq = (s * s).sum(-1, keepdims=True)
            return s * numpy.sqrt(sq + 1e-6) / (1 + sq)

        v0 = squash(vote.sum(2) / outputs)
        share = soft(numpy.einsum("boid,bod->bio", vote, v0))
        return squash(numpy.einsum("bio,boid->bod", share, vote))

    return operator(
        {"x": Input((batch, inputs, narrow)), "w": Input((outputs, inputs, wide, narrow), 0.05)},
        (batch, outputs, wide),
        ours,
        lambda torch, *a: array(torch, lambda v: torch.softmax(v, -1), *a),
        lambda jax, *a: array(jax.numpy, lambda v: jax.nn.softmax(v, -1), *a),
        tolerance=1e-3,
    )


CASES: dict[str, Callable[[], Case]] = {
    "factorization-machine": lambda: factorization_machine(1024, 20, 10000, 16),
    "bpr": lambda: bpr(4096, 3000, 5000, 32),
    "kan": lambda: kan(256, 32, 48, 8),
    "vector-quantiser": lambda: vector_quantiser(2048, 32, 256),
    "arcface": lambda: arcface(256, 64, 500),
    "barlow-twins": lambda: barlow_twins(256, 128),
    "experts": lambda: experts(512, 64, 64, 8),
    "edge-features": lambda: edge_features(512, 16, 24, 32),
    "continuous-filter": lambda: continuous_filter(400, 5000, 20, 32),
    "capsules": lambda: capsules(16, 128, 10, 8, 16),
}
