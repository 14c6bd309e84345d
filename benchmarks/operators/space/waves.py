"""Waves on grids, filters with weights of the values, and attention with shared or mixed heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced, softmax


def wave_2d(size: int, steps: int) -> Case:
    """Steps of a wave whose speed depends on the place, with zeros beyond the border."""
    box = (size, size)

    def ours(u: Any, before: Any, speed: Any) -> Any:
        def at(v: Any, i: Any, j: Any) -> Any:
            inside = te.all(i >= 0, i < size, j >= 0, j < size)
            return te.if_then_else(inside, v[i, j], 0.0)

        def step(u: Any, before: Any) -> Any:
            def body(i: Any, j: Any) -> Any:
                around = at(u, i - 1, j) + at(u, i + 1, j) + at(u, i, j - 1) + at(u, i, j + 1)
                return (
                    2.0 * u[i, j]
                    - before[i, j]
                    + speed[i, j] * speed[i, j] * (around - 4.0 * u[i, j])
                )

            return mapped(box, body)

        for _ in range(steps):
            u, before = step(u, before), u
        return u

    def array(pad: Any, u: Any, before: Any, speed: Any) -> Any:
        for _ in range(steps):
            p = pad(u)
            around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
            u, before = 2 * u - before + speed * speed * (around - 4 * u), u
        return u

    return operator(
        {"u": Input(box), "before": Input(box), "speed": Input(box, 0.05, 0.5)},
        box,
        ours,
        lambda torch, *a: array(lambda u: torch.nn.functional.pad(u, (1, 1, 1, 1)), *a),
        lambda jax, *a: array(lambda u: jax.numpy.pad(u, 1), *a),
        tolerance=1e-3,
    )


def maxwell_2d(size: int, steps: int) -> Case:
    """Staggered electric and magnetic fields in the plane with a permittivity of each place."""
    box = (size, size)

    def ours(e: Any, hx: Any, hy: Any, inverse: Any) -> Any:
        def magnetic(e: Any, hx: Any, hy: Any) -> tuple[Any, Any]:
            def along(i: Any, j: Any) -> Any:
                return hx[i, j] - 0.5 * te.if_then_else(j < size - 1, e[i, j + 1] - e[i, j], 0.0)

            def across(i: Any, j: Any) -> Any:
                return hy[i, j] + 0.5 * te.if_then_else(i < size - 1, e[i + 1, j] - e[i, j], 0.0)

            return mapped(box, along), mapped(box, across)

        def electric(e: Any, hx: Any, hy: Any) -> Any:
            def body(i: Any, j: Any) -> Any:
                curl = te.if_then_else(i > 0, hy[i, j] - hy[i - 1, j], 0.0)
                curl = curl - te.if_then_else(j > 0, hx[i, j] - hx[i, j - 1], 0.0)
                return e[i, j] + 0.5 * inverse[i, j] * curl

            return mapped(box, body)

        for _ in range(steps):
            hx, hy = magnetic(e, hx, hy)
            e = electric(e, hx, hy)
        return mapped(
            box, lambda i, j: e[i, j] * e[i, j] + hx[i, j] * hx[i, j] + hy[i, j] * hy[i, j]
        )

    def array(pad: Any, e: Any, hx: Any, hy: Any, inverse: Any) -> Any:
        for _ in range(steps):
            hx = hx - 0.5 * pad(e[:, 1:] - e[:, :-1], 1, 0, 1)
            hy = hy + 0.5 * pad(e[1:] - e[:-1], 0, 0, 1)
            curl = pad(hy[1:] - hy[:-1], 0, 1, 0) - pad(hx[:, 1:] - hx[:, :-1], 1, 1, 0)
            e = e + 0.5 * inverse * curl
        return e * e + hx * hx + hy * hy

    def in_torch(torch: Any, *a: Any) -> Any:
        def pad(v: Any, axis: int, low: int, high: int) -> Any:
            return torch.nn.functional.pad(v, (0, 0) * (1 - axis) + (low, high))

        return array(pad, *a)

    def in_jax(jax: Any, *a: Any) -> Any:
        def pad(v: Any, axis: int, low: int, high: int) -> Any:
            return jax.numpy.pad(v, [(low, high) if axis == k else (0, 0) for k in range(2)])

        return array(pad, *a)

    return operator(
        {
            "e": Input(box),
            "hx": Input(box),
            "hy": Input(box),
            "inverse": Input(box, 0.1, 0.6),
        },
        box,
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def bilateral(height: int, width: int, reach: int) -> Case:
    """Means of the colours around each pixel, weighted by how near they are; colours last."""
    span = 2 * reach + 1
    out = (height - 2 * reach, width - 2 * reach)

    def ours(x: Any, sharp: Any) -> Any:
        def weight(i: Any, j: Any, a: Any, b: Any) -> Any:
            gaps = [x[i + a, j + b, c] - x[i + reach, j + reach, c] for c in range(3)]
            return te.exp(-sharp() * sum(gap * gap for gap in gaps))

        w = mapped((*out, span, span), weight)
        total = reduced(out, (span, span), lambda i, j, a, b: w[i, j, a, b])
        mean = reduced(
            (*out, 3), (span, span), lambda i, j, c, a, b: w[i, j, a, b] * x[i + a, j + b, c]
        )
        return mapped((*out, 3), lambda i, j, c: mean[i, j, c] / total[i, j])

    def array(exp: Any, x: Any, sharp: Any) -> Any:
        centre = x[reach : reach + out[0], reach : reach + out[1]]
        total: Any = 0.0
        mean: Any = 0.0
        for a in range(span):
            for b in range(span):
                v = x[a : a + out[0], b : b + out[1]]
                w = exp(-sharp * ((v - centre) ** 2).sum(-1))[..., None]
                total, mean = total + w, mean + w * v
        return mean / total

    return operator(
        {"x": Input((height, width, 3), 0.5), "sharp": Input((), 0.1, 1.0)},
        (*out, 3),
        ours,
        lambda torch, *a: array(torch.exp, *a),
        lambda jax, *a: array(jax.numpy.exp, *a),
        tolerance=1e-3,
    )


def grouped_queries(batch: int, groups: int, heads: int, length: int, width: int) -> Case:
    """Four queries share a key and a value; keys beyond the length of a row are masked."""
    per = heads // groups

    def ours(q: Any, k: Any, v: Any, count: Any) -> Any:
        raw = reduced(
            (batch, heads, length, length),
            (width,),
            lambda n, h, i, j, c: q[n, h, i, c] * k[n, te.indexdiv(h, per), j, c],
        )
        scores = mapped(
            (batch, heads, length, length),
            lambda n, h, i, j: te.if_then_else(
                j <= count[n], raw[n, h, i, j] * width**-0.5, te.const(-1e9, "float32")
            ),
        )
        p = softmax(scores)
        return reduced(
            (batch, heads, length, width),
            (length,),
            lambda n, h, i, c, j: p[n, h, i, j] * v[n, te.indexdiv(h, per), j, c],
        )

    def in_torch(torch: Any, q: Any, k: Any, v: Any, count: Any) -> Any:
        mask = (torch.arange(length) <= count[:, None])[:, None, None]
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, enable_gqa=True
        )

    def in_jax(jax: Any, q: Any, k: Any, v: Any, count: Any) -> Any:
        numpy = jax.numpy
        grouped = q.reshape(batch, groups, per, length, width)
        s = numpy.einsum("ngpic,ngjc->ngpij", grouped, k) * width**-0.5
        mask = (numpy.arange(length) <= count[:, None])[:, None, None, None]
        p = jax.nn.softmax(numpy.where(mask, s, -1e9), -1)
        return numpy.einsum("ngpij,ngjc->ngpic", p, v).reshape(q.shape)

    return operator(
        {
            "q": Input((batch, heads, length, width)),
            "k": Input((batch, groups, length, width)),
            "v": Input((batch, groups, length, width)),
            "count": Input((batch,), below=length),
        },
        (batch, heads, length, width),
        ours,
        in_torch,
        in_jax,
    )


def talking_heads(batch: int, heads: int, length: int, width: int) -> Case:
    """Attention whose scores are mixed over heads before the softmax and after it."""
    square = (batch, heads, length, length)

    def ours(q: Any, k: Any, v: Any, before: Any, after: Any) -> Any:
        s = reduced(square, (width,), lambda n, h, i, j, c: q[n, h, i, c] * k[n, h, j, c])
        mixed = reduced(square, (heads,), lambda n, g, i, j, h: s[n, h, i, j] * before[h, g])
        p = softmax(mixed)
        again = reduced(square, (heads,), lambda n, g, i, j, h: p[n, h, i, j] * after[h, g])
        return reduced(
            (batch, heads, length, width),
            (length,),
            lambda n, h, i, c, j: again[n, h, i, j] * v[n, h, j, c],
        )

    def array(einsum: Any, softmax: Any, q: Any, k: Any, v: Any, before: Any, after: Any) -> Any:
        s = einsum("nhic,nhjc->nhij", q, k)
        p = softmax(einsum("nhij,hg->ngij", s, before))
        return einsum("nhij,nhjc->nhic", einsum("nhij,hg->ngij", p, after), v)

    row = Input((batch, heads, length, width), 0.4)
    return operator(
        {
            "q": row,
            "k": row,
            "v": row,
            "before": Input((heads, heads), 0.3),
            "after": Input((heads, heads), 0.3),
        },
        (batch, heads, length, width),
        ours,
        lambda torch, *a: array(torch.einsum, lambda s: torch.softmax(s, -1), *a),
        lambda jax, *a: array(jax.numpy.einsum, lambda s: jax.nn.softmax(s, -1), *a),
    )


CASES: dict[str, Callable[[], Case]] = {
    "wave-2d": lambda: wave_2d(257, 3),
    "maxwell-2d": lambda: maxwell_2d(129, 3),
    "bilateral": lambda: bilateral(96, 100, 2),
    "grouped-queries": lambda: grouped_queries(2, 2, 8, 100, 33),
    "talking-heads": lambda: talking_heads(2, 8, 100, 32),
}
