"""Attention: shifted windows, bands, causal masks, slopes, rotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced, softmax


def shifted_windows(size: int, window: int, shift: int, heads: int, width: int) -> Case:
    """Swin's attention inside of windows of a rolled image, rolled back, with a bias per offset."""
    many, place = size // window, window * window
    full = (size, size, heads, width)
    edge = 2 * window - 1

    def ours(q: Any, k: Any, v: Any, bias: Any) -> Any:
        def at(w: Any, p: Any) -> tuple[Any, Any]:
            row = (w // many * window + p // window + shift) % size
            return row, (w % many * window + p % window + shift) % size

        def offset(a: Any, b: Any) -> tuple[Any, Any]:
            return a // window - b // window + window - 1, a % window - b % window + window - 1

        scores = reduced(
            (many * many, heads, place, place),
            (width,),
            lambda w, h, a, b, d: q[(*at(w, a), h, d)] * k[(*at(w, b), h, d)] * width**-0.5,
        )
        biased = mapped(
            scores.shape, lambda w, h, a, b: scores[w, h, a, b] + bias[(h, *offset(a, b))]
        )
        weights = softmax(biased)
        out = reduced(
            (many * many, heads, place, width),
            (place,),
            lambda w, h, a, d, b: weights[w, h, a, b] * v[(*at(w, b), h, d)],
        )

        def back(y: Any, x: Any, h: Any, d: Any) -> Any:
            i, j = (y + size - shift) % size, (x + size - shift) % size
            return out[i // window * many + j // window, h, i % window * window + j % window, d]

        return mapped(full, back)

    def array(numpy: Any, roll: Any, soft: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        def windows(x: Any) -> Any:
            x = roll(x, -shift).reshape(many, window, many, window, heads, width)
            return numpy.einsum("iajbhd->ijhabd", x).reshape(many**2, heads, place, width)

        span = numpy.arange(place)
        rows = span[:, None] // window - span // window + window - 1
        columns = span[:, None] % window - span % window + window - 1
        scores = numpy.einsum("whad,whbd->whab", windows(q), windows(k)) * width**-0.5
        out = soft(scores + bias[:, rows, columns]) @ windows(v)
        out = out.reshape(many, many, heads, window, window, width)
        return roll(numpy.einsum("ijhabd->iajbhd", out).reshape(full), shift)

    def in_torch(torch: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        return array(
            torch,
            lambda x, by: torch.roll(x, (by, by), (0, 1)),
            lambda s: torch.softmax(s, -1),
            *(q, k, v, bias),
        )

    def in_jax(jax: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        roll = jax.numpy.roll
        return array(
            jax.numpy, lambda x, by: roll(x, (by, by), (0, 1)), jax.nn.softmax, q, k, v, bias
        )

    return operator(
        {**{name: Input(full) for name in "qkv"}, "bias": Input((heads, edge, edge))},
        full,
        ours,
        in_torch,
        in_jax,
    )


def _attention(
    batch: int,
    length: int,
    width: int,
    score: Callable[..., Any],
    array: Callable[..., Any],
    extra: dict[str, Input],
) -> Case:
    """Softmax of scores that `score` changes at each place, `array` the whole matrix."""
    full = (batch, length, width)

    def ours(q: Any, k: Any, v: Any, *more: Any) -> Any:
        raw = reduced((batch, length, length), (width,), lambda n, a, b, d: q[n, a, d] * k[n, b, d])
        scores = mapped(
            raw.shape, lambda n, a, b: score(raw[n, a, b] * width**-0.5, n, a, b, *more)
        )
        weights = softmax(scores)
        return reduced(full, (length,), lambda n, a, d, b: weights[n, a, b] * v[n, b, d])

    def whole(numpy: Any, soft: Any, q: Any, k: Any, v: Any, *more: Any) -> Any:
        scores = numpy.einsum("nad,nbd->nab", q, k) * width**-0.5
        return soft(array(numpy, scores, *more)) @ v

    return operator(
        {**{name: Input(full) for name in "qkv"}, **extra},
        full,
        ours,
        lambda torch, *arrays: whole(torch, lambda s: torch.softmax(s, -1), *arrays),
        lambda jax, *arrays: whole(jax.numpy, jax.nn.softmax, *arrays),
    )


def causal(batch: int, length: int, width: int) -> Case:
    def array(numpy: Any, scores: Any) -> Any:
        span = numpy.arange(length)
        return numpy.where(span[:, None] >= span, scores, -1e9)

    return _attention(
        batch,
        length,
        width,
        lambda s, n, a, b: te.if_then_else(b <= a, s, te.const(-1e9, "float32")),
        array,
        {},
    )


def band(batch: int, length: int, width: int, reach: int) -> Case:
    """Each place attends to places up to `reach` away, the others masked."""

    def array(numpy: Any, scores: Any) -> Any:
        span = numpy.arange(length)
        return numpy.where(numpy.abs(span[:, None] - span) <= reach, scores, -1e9)

    return _attention(
        batch,
        length,
        width,
        lambda s, n, a, b: te.if_then_else(te.abs(a - b) <= reach, s, te.const(-1e9, "float32")),
        array,
        {},
    )


def local_windows(batch: int, length: int, width: int, reach: int) -> Case:
    """The same for scores that exist inside of the band only; borders are masked."""
    span, full = 2 * reach + 1, (batch, length, width)

    def ours(q: Any, k: Any, v: Any) -> Any:
        def inside(a: Any, o: Any) -> Any:
            return te.all(a + o >= reach, a + o < length + reach)

        scores = reduced(
            (batch, length, span),
            (width,),
            lambda n, a, o, d: (
                q[n, a, d]
                * te.if_then_else(inside(a, o), k[n, a + o - reach, d], 0.0)
                * width**-0.5
            ),
        )
        masked = mapped(
            scores.shape,
            lambda n, a, o: te.if_then_else(
                inside(a, o), scores[n, a, o], te.const(-1e9, "float32")
            ),
        )
        weights = softmax(masked)
        return reduced(
            full,
            (span,),
            lambda n, a, d, o: (
                weights[n, a, o] * te.if_then_else(inside(a, o), v[n, a + o - reach, d], 0.0)
            ),
        )

    def array(numpy: Any, pad: Any, soft: Any, q: Any, k: Any, v: Any) -> Any:
        place = numpy.arange(length)[:, None] + numpy.arange(span)
        mask = (place >= reach) & (place < length + reach)
        k, v = (pad(x)[:, place] for x in (k, v))
        scores = numpy.einsum("nad,naod->nao", q, k) * width**-0.5
        return numpy.einsum("nao,naod->nad", soft(numpy.where(mask, scores, -1e9)), v)

    def in_torch(torch: Any, *arrays: Any) -> Any:
        def pad(x: Any) -> Any:
            return torch.nn.functional.pad(x, (0, 0, reach, reach))

        return array(torch, pad, lambda s: torch.softmax(s, -1), *arrays)

    def in_jax(jax: Any, *arrays: Any) -> Any:
        def pad(x: Any) -> Any:
            return jax.numpy.pad(x, ((0, 0), (reach, reach), (0, 0)))

        return array(jax.numpy, pad, jax.nn.softmax, *arrays)

    return operator({name: Input(full) for name in "qkv"}, full, ours, in_torch, in_jax)


def linear_biases(batch: int, length: int, width: int) -> Case:
    """ALiBi: a slope per head times the distance."""

    def array(numpy: Any, scores: Any, slope: Any) -> Any:
        span = numpy.arange(length)
        distance = numpy.abs(span[:, None] - span)
        return scores - slope[:, None, None] * distance

    return _attention(
        batch,
        length,
        width,
        lambda s, n, a, b, slope: s - slope[n] * te.abs(a - b).astype("float32"),
        array,
        {"slope": Input((batch,), 0.1)},
    )


def rotary(length: int, heads: int, width: int) -> Case:
    """Rotary embedding: pairs of components turned by an angle per place and pair."""
    half, full = width // 2, (length, heads, width)
    step = -2.0 / width

    def ours(x: Any) -> Any:
        def body(n: Any, h: Any, d: Any) -> Any:
            angle = n.astype("float32") * te.power(
                te.const(10000.0, "float32"), (d % half).astype("float32") * step
            )
            other = te.if_then_else(d < half, -x[n, h, (d + half) % width], x[n, h, d - half])
            return x[n, h, d] * te.cos(angle) + other * te.sin(angle)

        return mapped(full, body)

    def array(numpy: Any, join: Any, x: Any) -> Any:
        rate = 10000.0 ** (numpy.arange(half) * step)
        angle = numpy.arange(length)[:, None] * join((rate, rate), 0)
        cosine, sine = numpy.cos(angle)[:, None], numpy.sin(angle)[:, None]
        other = join((-x[..., half:], x[..., :half]), -1)
        return x * cosine + other * sine

    return operator(
        {"x": Input(full)},
        full,
        ours,
        lambda torch, x: array(torch, torch.cat, x),
        lambda jax, x: array(jax.numpy, jax.numpy.concatenate, x),
        tolerance=1e-3,
    )


def linear_attention(batch: int, length: int, width: int) -> Case:
    """``φ(q)·(φ(k)ᵀ v)`` over ``φ(q)·Σ φ(k)`` with φ = elu + 1."""
    full = (batch, length, width)

    def ours(q: Any, k: Any, v: Any) -> Any:
        def positive(x: Any) -> Any:
            return mapped(full, lambda *p: te.if_then_else(x[p] > 0.0, x[p] + 1.0, te.exp(x[p])))

        a, b = positive(q), positive(k)
        states = reduced(
            (batch, width, width), (length,), lambda n, d, e, t: b[n, t, d] * v[n, t, e]
        )
        total = reduced((batch, width), (length,), lambda n, d, t: b[n, t, d])
        top = reduced(full, (width,), lambda n, t, e, d: a[n, t, d] * states[n, d, e])
        below = reduced((batch, length), (width,), lambda n, t, d: a[n, t, d] * total[n, d])
        return mapped(full, lambda n, t, e: top[n, t, e] / below[n, t])

    def array(elu: Any, swap: Any, q: Any, k: Any, v: Any) -> Any:
        a, b = elu(q) + 1.0, elu(k) + 1.0
        return a @ (swap(b) @ v) / (a @ b.sum(1)[:, :, None])

    return operator(
        {name: Input(full) for name in "qkv"},
        full,
        ours,
        lambda torch, *arrays: array(torch.nn.functional.elu, lambda x: x.transpose(1, 2), *arrays),
        lambda jax, *arrays: array(jax.nn.elu, lambda x: x.transpose(0, 2, 1), *arrays),
    )


def relative(batch: int, length: int, width: int) -> Case:
    """Scores with a learnt vector per distance: ``q[i]·(k[j] + r[i - j])``."""

    def ours_score(q: Any, k: Any, v: Any, r: Any) -> Any:
        full = (batch, length, length)
        raw = reduced(
            full,
            (width,),
            lambda n, a, b, d: q[n, a, d] * (k[n, b, d] + r[a - b + length - 1, d]),
        )
        scores = mapped(full, lambda n, a, b: raw[n, a, b] * width**-0.5)
        weights = softmax(scores)
        return reduced(
            (batch, length, width), (length,), lambda n, a, d, b: weights[n, a, b] * v[n, b, d]
        )

    def array(numpy: Any, soft: Any, q: Any, k: Any, v: Any, r: Any) -> Any:
        span = numpy.arange(length)
        place = r[span[:, None] - span + length - 1]
        scores = numpy.einsum("nad,nbd->nab", q, k) + numpy.einsum("nad,abd->nab", q, place)
        return soft(scores * width**-0.5) @ v

    full = (batch, length, width)
    return operator(
        {**{name: Input(full) for name in "qkv"}, "r": Input((2 * length - 1, width))},
        full,
        ours_score,
        lambda torch, *arrays: array(torch, lambda s: torch.softmax(s, -1), *arrays),
        lambda jax, *arrays: array(jax.numpy, jax.nn.softmax, *arrays),
    )


CASES: dict[str, Callable[[], Case]] = {
    "attention-shifted-windows": lambda: shifted_windows(32, 8, 4, 3, 32),
    "attention-causal": lambda: causal(8, 128, 64),
    "attention-band": lambda: band(8, 256, 32, 16),
    "attention-local-windows": lambda: local_windows(8, 256, 32, 8),
    "attention-linear-biases": lambda: linear_biases(8, 128, 64),
    "rotary-embedding": lambda: rotary(512, 8, 64),
    "attention-linear": lambda: linear_attention(16, 256, 32),
    "attention-relative": lambda: relative(8, 96, 32),
}
