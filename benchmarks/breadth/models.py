"""Parts of networks: perceptrons, gates, attention with a mask, blocks of residual networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, topi

from ..suite.case import Case, Input
from ..suite.dense import mlp


def gru_cell(batch: int, features: int, hidden: int) -> Case:
    """One step of a gated recurrent unit: the gradients of state and weights."""

    def gates(sigmoid: Any, tanh: Any, split: Any, x: Any, h: Any, w: Any, u: Any) -> Any:
        a, b = split(x @ w.T), split(h @ u.T)
        reset, update = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
        new = tanh(a[2] + reset * b[2])
        return new + update * (h - new)

    def ours(x: Any, h: Any, w: Any, u: Any) -> Any:
        a, b = topi.nn.dense(x, w), topi.nn.dense(h, u)

        def state(n: Any, j: Any) -> Any:
            reset = te.sigmoid(a[n, j] + b[n, j])
            update = te.sigmoid(a[n, hidden + j] + b[n, hidden + j])
            new = te.tanh(a[n, 2 * hidden + j] + reset * b[n, 2 * hidden + j])
            return new + update * (h[n, j] - new)

        return te.compute((batch, hidden), state, name="state")

    return Case(
        inputs={
            "x": Input((batch, features)),
            "h": Input((batch, hidden)),
            "w": Input((3 * hidden, features), features**-0.5),
            "u": Input((3 * hidden, hidden), hidden**-0.5),
        },
        wrt=("h", "w", "u"),
        head=Input((batch, hidden)),
        derivative="pullback",
        te=ours,
        torch=lambda torch, x, h, w, u: gates(
            torch.sigmoid, torch.tanh, lambda t: t.chunk(3, 1), x, h, w, u
        ),
        jax=lambda jax, x, h, w, u: gates(
            jax.nn.sigmoid,
            jax.numpy.tanh,
            lambda t: jax.numpy.split(t, 3, 1),
            x,
            h,
            w,
            u,
        ),
    )


def masked_attention(batch: int, heads: int, length: int, width: int) -> Case:
    """Attention in which a place sees none after it."""
    shape = (batch, heads, length, width)

    def ours(q: Any, k: Any, v: Any) -> Any:
        d, j = te.reduce_axis((0, width), "d"), te.reduce_axis((0, length), "j")
        scores = te.compute(
            (batch, heads, length, length),
            lambda n, h, a, b: te.sum(q[n, h, a, d] * k[n, h, b, d], axis=d),
        )
        masked = te.compute(
            scores.shape,
            lambda n, h, a, b: te.if_then_else(b <= a, scores[n, h, a, b] * width**-0.5, -1e9),
        )
        weights = topi.nn.softmax(masked, 3)
        return te.compute(
            shape, lambda n, h, a, e: te.sum(weights[n, h, a, j] * v[n, h, j, e], axis=j)
        )

    def in_jax(jax: Any, q: Any, k: Any, v: Any) -> Any:
        scores = jax.numpy.einsum("nhad,nhbd->nhab", q, k) * width**-0.5
        seen = jax.numpy.tril(jax.numpy.ones((length, length), bool))
        weights = jax.nn.softmax(jax.numpy.where(seen, scores, -1e9))
        return jax.numpy.einsum("nhab,nhbd->nhad", weights, v)

    return Case(
        inputs={name: Input(shape) for name in "qkv"},
        wrt=("q", "k", "v"),
        head=Input(shape),
        derivative="pullback",
        te=ours,
        torch=lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True
        ),
        jax=in_jax,
    )


def squeeze_excite(n: int, c: int, size: int, hidden: int) -> Case:
    """Channels scaled by gates that see the mean of each."""
    shape = (n, c, size, size)

    def ours(x: Any, w: Any, u: Any) -> Any:
        means = topi.sum(x, (2, 3)) * (1.0 / size**2)
        gates = topi.sigmoid(topi.nn.dense(topi.nn.relu(topi.nn.dense(means, w)), u))
        return te.compute(shape, lambda a, b, i, j: x[a, b, i, j] * gates[a, b])

    def other(relu: Any, sigmoid: Any, x: Any, w: Any, u: Any) -> Any:
        gates = sigmoid(relu(x.mean((2, 3)) @ w.T) @ u.T)
        return x * gates[:, :, None, None]

    return Case(
        inputs={
            "x": Input(shape, 1.0, 0.5),
            "w": Input((hidden, c), c**-0.5),
            "u": Input((c, hidden), hidden**-0.5),
        },
        wrt=("x", "w", "u"),
        head=Input(shape),
        derivative="pullback",
        te=ours,
        torch=lambda torch, *inputs: other(torch.relu, torch.sigmoid, *inputs),
        jax=lambda jax, *inputs: other(jax.nn.relu, jax.nn.sigmoid, *inputs),
    )


def residual_block(n: int, c: int, size: int) -> Case:
    """relu(x + conv(relu(conv(x)))), with a scale and a shift after each convolution."""
    shape = (n, c, size, size)

    def affine(x: Any, s: Any, b: Any) -> Any:
        return te.compute(shape, lambda a, k, i, j: x[a, k, i, j] * s[k] + b[k])

    def ours(x: Any, w: Any, s: Any, b: Any, v: Any, t: Any, d: Any) -> Any:
        inner = topi.nn.relu(affine(topi.nn.conv2d_nchw(x, w, 1, 1, 1), s, b))
        return topi.nn.relu(topi.add(x, affine(topi.nn.conv2d_nchw(inner, v, 1, 1, 1), t, d)))

    def other(
        relu: Any, convolve: Any, x: Any, w: Any, s: Any, b: Any, v: Any, t: Any, d: Any
    ) -> Any:
        wide = (slice(None), None, None)
        inner = relu(convolve(x, w) * s[wide] + b[wide])
        return relu(x + convolve(inner, v) * t[wide] + d[wide])

    def in_jax(jax: Any, *inputs: Any) -> Any:
        return other(
            jax.nn.relu,
            lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1)] * 2),
            *inputs,
        )

    weight = Input((c, c, 3, 3), (9 * c) ** -0.5)
    vector = Input((c,), 0.3, 0.7)
    return Case(
        inputs={
            "x": Input(shape),
            "w": weight,
            "s": vector,
            "b": vector,
            "v": weight,
            "t": vector,
            "d": vector,
        },
        wrt=("x", "w", "s", "b", "v", "t", "d"),
        head=Input(shape),
        derivative="pullback",
        te=ours,
        torch=lambda torch, *inputs: other(
            torch.relu,
            lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
            *inputs,
        ),
        jax=in_jax,
        channels_last=True,
    )


CASES: dict[str, Callable[[], Case]] = {
    "mlp-1x784-256-10": lambda: mlp(1, 784, 256, 10),
    "mlp-1024x128-64-10": lambda: mlp(1024, 128, 64, 10),
    "mlp-16x4-8-3": lambda: mlp(16, 4, 8, 3),
    "gru-16x128": lambda: gru_cell(16, 128, 128),
    "attention-masked-2x4x100x32": lambda: masked_attention(2, 4, 100, 32),
    "squeeze-excite-8x64x14x14": lambda: squeeze_excite(8, 64, 14, 16),
    "residual-block-4x32x16x16": lambda: residual_block(4, 32, 16),
}
