"""Programs to cut into a forward and a backward pass: inputs, outputs, and the same in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

D = "float64"
Mark = Callable[[Any], Any]


@dataclass(frozen=True)
class Case:
    """A program.

    Attributes
    ----------
    inputs : dict from name to shape
    make : callable
        ``make(mark, *tensors)`` gives the outputs; `mark` is applied to activations.
    jax : callable
        ``jax(mark, jnp, *arrays)``, the same.
    """

    inputs: dict[str, tuple[int, ...]]
    make: Callable[..., list[Any]]
    jax: Callable[..., list[Any]]

    def tensors(self) -> list[Any]:
        return [te.placeholder(shape, D, name) for name, shape in self.inputs.items()]

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.uniform(-1, 1, shape) for shape in self.inputs.values()]


def sum_of(
    shape: Sequence[int], extents: Sequence[int], body: Callable[..., Any], name: str
) -> Any:
    axes = [te.reduce_axis((0, extent), f"r{n}") for n, extent in enumerate(extents)]
    return te.compute(shape, lambda *i: te.sum(body(*i, *(a.var for a in axes)), axis=axes), name)


def each(tensor: Any, body: Callable[[Any], Any], name: str) -> Any:
    return te.compute(tensor.shape, lambda *i: body(tensor(*i)), name)


def mlp(mark: Mark, x, w0, b0, w1, b1, w2):
    s0 = sum_of((6, 8), (5,), lambda i, j, k: x[i, k] * w0[k, j], "s0")
    h0 = mark(each(te.compute((6, 8), lambda i, j: s0[i, j] + b0[j], "a0"), te.tanh, "h0"))
    s1 = sum_of((6, 7), (8,), lambda i, j, k: h0[i, k] * w1[k, j], "s1")
    h1 = mark(each(te.compute((6, 7), lambda i, j: s1[i, j] + b1[j], "a1"), te.sigmoid, "h1"))
    out = sum_of((6, 3), (7,), lambda i, j, k: h1[i, k] * w2[k, j], "out")
    return [out]


def jax_mlp(mark: Mark, jnp, x, w0, b0, w1, b1, w2):
    h0 = mark(lambda a: jnp.tanh(a))(x @ w0 + b0)
    h1 = mark(lambda a: 1 / (1 + jnp.exp(-a)))(h0 @ w1 + b1)
    return [h1 @ w2]


def convolution(mark: Mark, x, w, v):
    s = sum_of(
        (2, 4, 6, 6), (3, 3, 3),
        lambda n, o, i, j, c, p, q: x[n, c, 2 * i + p, 2 * j + q] * w[o, c, p, q], "s",
    )  # fmt: skip
    h = mark(each(s, lambda e: e * te.sigmoid(e), "h"))
    t = sum_of(
        (2, 2, 4, 4), (4, 3, 3),
        lambda n, o, i, j, c, p, q: h[n, c, i + p, j + q] * v[o, c, p, q], "t",
    )  # fmt: skip
    return [each(t, te.tanh, "y")]


def jax_convolution(mark: Mark, jnp, x, w, v):
    import jax

    conv = jax.lax.conv
    h = mark(lambda s: s / (1 + jnp.exp(-s)))(conv(x, w, (2, 2), "VALID"))
    return [jnp.tanh(conv(h, v, (1, 1), "VALID"))]


def attention(mark: Mark, q, k, v):
    n, d = 7, 4
    s = mark(sum_of((n, n), (d,), lambda i, j, c: q[i, c] * k[j, c], "s"))
    j = te.reduce_axis((0, n), "j")
    m = te.compute((n,), lambda i: te.max(s[i, j], axis=j), "m")
    e = mark(te.compute((n, n), lambda i, j: te.exp(s[i, j] - m[i]), "e"))
    z = sum_of((n,), (n,), lambda i, j: e[i, j], "z")
    p = mark(te.compute((n, n), lambda i, j: e[i, j] / z[i], "p"))
    return [sum_of((n, d), (n,), lambda i, c, j: p[i, j] * v[j, c], "o"), p]


def jax_attention(mark: Mark, jnp, q, k, v):
    import jax

    p = mark(lambda q, k: jax.nn.softmax(q @ k.T, axis=1))(q, k)
    return [p @ v, p]


def recurrent(mark: Mark, h0, x, w, u):
    outputs = [h0]
    for t in range(5):
        outputs.append(mark(step_of(outputs[-1], x, w, u, t)))
    total = sum_of((), (4,), lambda i: outputs[-1][i] * outputs[-1][i], "total")
    return [total, te.compute((4,), lambda i: outputs[2][i] * 1.0, "second")]


def step_of(h, x, w, u, t: int):
    a = sum_of((4,), (4,), lambda i, k: h[k] * w[k, i], f"a{t}")
    b = sum_of((4,), (3,), lambda i, k: x[t, k] * u[k, i], f"b{t}")
    return te.compute((4,), lambda i: te.tanh(a[i] + b[i]), f"h{t + 1}")


def jax_recurrent(mark: Mark, jnp, h0, x, w, u):
    h, second = h0, None
    for t in range(5):
        h = mark(lambda h, x: jnp.tanh(h @ w + x @ u))(h, x[t])
        second = h if t == 1 else second
    return [jnp.sum(h * h), second]


CASES = {
    "mlp": Case(
        {"x": (6, 5), "w0": (5, 8), "b0": (8,), "w1": (8, 7), "b1": (7,), "w2": (7, 3)},
        mlp, jax_mlp,
    ),
    "convolution": Case(
        {"x": (2, 3, 13, 13), "w": (4, 3, 3, 3), "v": (2, 4, 3, 3)}, convolution, jax_convolution
    ),
    "attention": Case({"q": (7, 4), "k": (7, 4), "v": (7, 4)}, attention, jax_attention),
    "recurrent": Case(
        {"h0": (4,), "x": (5, 3), "w": (4, 4), "u": (3, 4)}, recurrent, jax_recurrent
    ),
}  # fmt: skip
