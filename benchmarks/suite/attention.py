"""Cases of transformers: attention with softmax, layer normalisation."""

from __future__ import annotations

from tvm import te, topi

from .case import Case, Entry, Input

EPSILON = 1e-5


def attention(batch: int, heads: int, length: int, width: int) -> Case:
    """softmax(q kᵀ / √width) v: the gradients of q, k and v."""
    shape = (batch, heads, length, width)

    def ours(q, k, v):
        d = te.reduce_axis((0, width), "d")
        j = te.reduce_axis((0, length), "j")
        scores = te.compute(
            (batch, heads, length, length),
            lambda n, h, a, b: te.sum(q[n, h, a, d] * k[n, h, b, d] * width**-0.5, axis=d),
            name="scores",
        )
        weights = topi.nn.softmax(scores, axis=3)
        return te.compute(
            shape,
            lambda n, h, a, e: te.sum(weights[n, h, a, j] * v[n, h, j, e], axis=j),
            name="attention",
        )

    def in_jax(jax, q, k, v):
        scores = jax.numpy.einsum("nhad,nhbd->nhab", q, k) * width**-0.5
        return jax.numpy.einsum("nhab,nhbd->nhad", jax.nn.softmax(scores), v)

    return Case(
        inputs={name: Input(shape) for name in "qkv"},
        wrt=("q", "k", "v"),
        head=Input(shape),
        derivative="pullback",
        te=ours,
        torch=lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v),
        jax=in_jax,
        flop=5 * 2 * batch * heads * length * length * width,
    )


def layer_norm(rows: int, width: int) -> Case:
    """Rows normalised, scaled and shifted: the gradients of rows, scale and shift."""

    def ours(x, scale, shift):
        k = te.reduce_axis((0, width), "k")
        j = te.reduce_axis((0, width), "j")
        mean = te.compute((rows,), lambda n: te.sum(x[n, k] / width, axis=k), name="mean")
        centred = te.compute((rows, width), lambda n, i: x[n, i] - mean[n], name="centred")
        variance = te.compute(
            (rows,),
            lambda n: te.sum(centred[n, j] * centred[n, j] / width, axis=j),
            name="variance",
        )
        return te.compute(
            (rows, width),
            lambda n, i: centred[n, i] * te.rsqrt(variance[n] + EPSILON) * scale[i] + shift[i],
            name="normalised",
        )

    def in_jax(jax, x, scale, shift):
        centred = x - x.mean(1, keepdims=True)
        variance = (centred * centred).mean(1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + EPSILON) * scale + shift

    return Case(
        inputs={
            "x": Input((rows, width)),
            "scale": Input((width,), 0.1, 1.0),
            "shift": Input((width,), 0.1),
        },
        wrt=("x", "scale", "shift"),
        head=Input((rows, width)),
        derivative="pullback",
        te=ours,
        torch=lambda torch, x, scale, shift: torch.nn.functional.layer_norm(
            x, (width,), scale, shift, EPSILON
        ),
        jax=in_jax,
    )


ENTRIES = [
    Entry(
        "attention",
        "attention 4x8x128x64",
        attention,
        {"batch": 4, "heads": 8, "length": 128, "width": 64},
        {"batch": 2, "heads": 3, "length": 11, "width": 5},
    ),
    Entry(
        "layer-norm",
        "layer norm 512x1024",
        layer_norm,
        {"rows": 512, "width": 1024},
        {"rows": 13, "width": 37},
        "copy",
    ),
]
