"""Rows, sums, maps, copies and indices: what is limited by memory or by expensive functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, topi

from ..suite.attention import layer_norm
from ..suite.case import Case, Input
from ..suite.losses import jax_cross_entropy, te_cross_entropy, torch_cross_entropy
from .images import simple


def softmax(rows: int, width: int) -> Case:
    return simple(
        (rows, width),
        (rows, width),
        lambda x: topi.nn.softmax(x, 1),
        lambda torch, x: torch.softmax(x, 1),
        lambda jax, x: jax.nn.softmax(x, 1),
    )


def softmax_of_columns(rows: int, width: int) -> Case:
    return simple(
        (rows, width),
        (rows, width),
        lambda x: topi.nn.softmax(x, 0),
        lambda torch, x: torch.softmax(x, 0),
        lambda jax, x: jax.nn.softmax(x, 0),
    )


def cross_entropy(rows: int, width: int) -> Case:
    return Case(
        inputs={"x": Input((rows, width)), "labels": Input((rows,), below=width)},
        wrt=("x",),
        te=te_cross_entropy,
        torch=torch_cross_entropy,
        jax=jax_cross_entropy,
    )


def batch_norm(n: int, c: int, h: int, w: int) -> Case:
    """Statistics over batch and places; gradients of images, scale and shift."""

    def ours(x: Any, scale: Any, shift: Any) -> Any:
        count = float(n * h * w)
        mean = topi.sum(x, (0, 2, 3)) / count
        centred = te.compute((n, c, h, w), lambda a, b, i, j: x[a, b, i, j] - mean[b])
        variance = topi.sum(centred * centred, (0, 2, 3)) / count
        return te.compute(
            (n, c, h, w),
            lambda a, b, i, j: (
                centred[a, b, i, j] * te.rsqrt(variance[b] + 1e-5) * scale[b] + shift[b]
            ),
        )

    def in_jax(jax: Any, x: Any, scale: Any, shift: Any) -> Any:
        centred = x - x.mean((0, 2, 3), keepdims=True)
        variance = (centred * centred).mean((0, 2, 3), keepdims=True)
        wide = (slice(None), None, None)
        return centred * jax.lax.rsqrt(variance + 1e-5) * scale[wide] + shift[wide]

    return Case(
        inputs={"x": Input((n, c, h, w)), "scale": Input((c,), 0.1, 1.0), "shift": Input((c,))},
        wrt=("x", "scale", "shift"),
        head=Input((n, c, h, w)),
        derivative="pullback",
        te=ours,
        torch=lambda torch, x, scale, shift: torch.nn.functional.batch_norm(
            x, None, None, scale, shift, True
        ),
        jax=in_jax,
        channels_last=False,
    )


def group_norm(n: int, c: int, size: int, groups: int) -> Case:
    def in_jax(jax: Any, x: Any, scale: Any, shift: Any) -> Any:
        parts = x.reshape(n, groups, -1)
        centred = parts - parts.mean(2, keepdims=True)
        variance = (centred * centred).mean(2, keepdims=True)
        normal = (centred * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)
        return normal * scale[:, None, None] + shift[:, None, None]

    return Case(
        inputs={
            "x": Input((n, c, size, size)),
            "scale": Input((c,), 0.1, 1.0),
            "shift": Input((c,)),
        },
        wrt=("x", "scale", "shift"),
        head=Input((n, c, size, size)),
        derivative="pullback",
        te=lambda x, scale, shift: topi.nn.group_norm(x, scale, shift, groups, 1, [2, 3], 1e-5),
        torch=lambda torch, x, scale, shift: torch.nn.functional.group_norm(
            x, groups, scale, shift
        ),
        jax=in_jax,
    )


def rms_norm(rows: int, width: int) -> Case:
    def in_jax(jax: Any, x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(1, keepdims=True) + 1e-5) * scale

    return Case(
        inputs={"x": Input((rows, width)), "scale": Input((width,), 0.1, 1.0)},
        wrt=("x", "scale"),
        head=Input((rows, width)),
        derivative="pullback",
        te=lambda x, scale: topi.nn.rms_norm(x, scale, [1], 1e-5),
        torch=lambda torch, x, scale: torch.nn.functional.rms_norm(x, (width,), scale, 1e-5),
        jax=in_jax,
    )


def _gelu(x: Any) -> Any:
    return te.compute(x.shape, lambda *i: x(*i) * 0.5 * (1.0 + te.erf(x(*i) * 0.5**0.5)))


def _silu(x: Any) -> Any:
    return te.compute(x.shape, lambda *i: x(*i) * te.sigmoid(x(*i)))


def _softplus(x: Any) -> Any:
    return te.compute(x.shape, lambda *i: te.log(1.0 + te.exp(x(*i))))


def square_error(shape: tuple[int, ...]) -> Case:
    count = 1
    for extent in shape:
        count *= extent

    def ours(x: Any, y: Any) -> Any:
        return topi.sum((x - y) * (x - y)) * (1.0 / count)

    return Case(
        inputs={"x": Input(shape), "y": Input(shape)},
        wrt=("x",),
        te=ours,
        torch=lambda torch, x, y: torch.nn.functional.mse_loss(x, y),
        jax=lambda jax, x, y: ((x - y) ** 2).mean(),
    )


def bias(rows: int, width: int) -> Case:
    """A broadcast bias under tanh: its gradient is a sum of columns."""
    return Case(
        inputs={"x": Input((rows, width)), "b": Input((width,))},
        wrt=("x", "b"),
        head=Input((rows, width)),
        derivative="pullback",
        te=lambda x, b: topi.tanh(topi.add(x, b)),
        torch=lambda torch, x, b: torch.tanh(x + b),
        jax=lambda jax, x, b: jax.numpy.tanh(x + b),
    )


def bias_alone(shape: tuple[int, ...], axis: int) -> Case:
    """The gradient of a broadcast vector alone: sums over all other axes."""
    spread = [1] * len(shape)
    spread[axis] = shape[axis]

    def ours(x: Any, b: Any) -> Any:
        return te.compute(shape, lambda *i: x(*i) + b[i[axis]])

    return Case(
        inputs={"x": Input(shape), "b": Input((shape[axis],))},
        wrt=("b",),
        head=Input(shape),
        derivative="pullback",
        te=ours,
        torch=lambda torch, x, b: x + b.view(spread),
        jax=lambda jax, x, b: x + b.reshape(spread),
        eager=lambda torch, x, b, head: (head.sum([n for n in range(len(shape)) if n != axis]),),
        tolerance=2e-4,
    )


def two(a: tuple[int, ...], b: tuple[int, ...], out: Any, ours: Any, torch: Any, jax: Any) -> Case:
    """Both gradients of a function of two tensors."""
    return Case(
        inputs={"a": Input(a), "b": Input(b)},
        wrt=("a", "b"),
        head=Input(out),
        derivative="pullback",
        te=ours,
        torch=torch,
        jax=jax,
    )


def gather(rows: int, width: int, count: int) -> Case:
    return Case(
        inputs={"x": Input((rows, width)), "index": Input((count,), below=rows)},
        wrt=("x",),
        head=Input((count, width)),
        derivative="pullback",
        te=lambda x, index: te.compute((count, width), lambda n, j: x[index[n], j]),
        torch=lambda torch, x, index: torch.nn.functional.embedding(index, x),
        jax=lambda jax, x, index: x[index],
    )


def bags(rows: int, width: int, count: int, size: int) -> Case:
    """Sums of `size` rows of a table, by index."""

    def ours(x: Any, index: Any) -> Any:
        k = te.reduce_axis((0, size), "k")
        return te.compute((count, width), lambda n, j: te.sum(x[index[n, k], j], axis=k))

    return Case(
        inputs={"x": Input((rows, width)), "index": Input((count, size), below=rows)},
        wrt=("x",),
        head=Input((count, width)),
        derivative="pullback",
        te=ours,
        torch=lambda torch, x, index: torch.nn.functional.embedding_bag(index, x, mode="sum"),
        jax=lambda jax, x, index: x[index].sum(1),
    )


def cumulative(rows: int, width: int, axis: int) -> Case:
    def ours(x: Any) -> Any:
        k = te.reduce_axis((0, (rows, width)[axis]), "k")

        def body(*i: Any) -> Any:
            element = x[i[0], k] if axis else x[k, i[1]]
            return te.sum(te.if_then_else(k <= i[axis], element, 0.0), axis=k)

        return te.compute((rows, width), body)

    return simple(
        (rows, width),
        (rows, width),
        ours,
        lambda torch, x: torch.cumsum(x, axis),
        lambda jax, x: jax.numpy.cumsum(x, axis),
        tolerance=2e-4,
    )


def permuted(shape: tuple[int, ...], order: tuple[int, ...]) -> Case:
    return simple(
        shape,
        tuple(shape[n] for n in order),
        lambda x: topi.transpose(x, order),
        lambda torch, x: x.permute(order),
        lambda jax, x: x.transpose(order),
        eager=lambda torch, x, head: (
            head.permute([order.index(n) for n in range(len(order))]).contiguous(),
        ),
    )


def hessian(n: int) -> Case:
    """Of Rosenbrock's function, a band."""

    def ours(x: Any) -> Any:
        k = te.reduce_axis((0, n - 1), "k")

        def term(i: Any) -> Any:
            bend = x[i + 1] - x[i] * x[i]
            return 100.0 * bend * bend + (1.0 - x[i]) * (1.0 - x[i])

        return te.compute((), lambda: te.sum(term(k), axis=k))

    def other(_: Any, x: Any) -> Any:
        return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()

    return Case(
        inputs={"x": Input((n,))},
        wrt=("x",),
        derivative="hessian",
        te=ours,
        torch=other,
        jax=other,
    )


def jacobian(rows: int, width: int) -> Case:
    """Of softmax, row by row."""
    return Case(
        inputs={"x": Input((rows, width))},
        wrt=("x",),
        derivative="jacobian",
        te=lambda x: topi.nn.softmax(x, 1),
        torch=lambda torch, x: torch.softmax(x, 1),
        jax=lambda jax, x: jax.nn.softmax(x, 1),
    )


CASES: dict[str, Callable[[], Case]] = {
    "softmax-64x10": lambda: softmax(64, 10),
    "softmax-1000x33": lambda: softmax(1000, 33),
    "softmax-16x30000": lambda: softmax(16, 30000),
    "softmax-axis0-500x300": lambda: softmax_of_columns(500, 300),
    "cross-entropy-128x10": lambda: cross_entropy(128, 10),
    "cross-entropy-64x32000": lambda: cross_entropy(64, 32000),
    "layer-norm-1000x33": lambda: layer_norm(1000, 33),
    "layer-norm-64x100": lambda: layer_norm(64, 100),
    "layer-norm-256x4096": lambda: layer_norm(256, 4096),
    "batch-norm-16x32x14x14": lambda: batch_norm(16, 32, 14, 14),
    "group-norm-8x32x16x16": lambda: group_norm(8, 32, 16, 4),
    "rms-norm-300x768": lambda: rms_norm(300, 768),
    "gelu-512x1000": lambda: simple(
        (512, 1000), (512, 1000), _gelu,
        lambda torch, x: torch.nn.functional.gelu(x),
        lambda jax, x: jax.nn.gelu(x, approximate=False),
    ),
    "silu-100x77": lambda: simple(
        (100, 77), (100, 77), _silu,
        lambda torch, x: torch.nn.functional.silu(x),
        lambda jax, x: jax.nn.silu(x),
    ),
    "softplus-chain-400x500": lambda: simple(
        (400, 500), (400, 500), lambda x: _softplus(topi.tanh(_softplus(x))),
        lambda torch, x: torch.nn.functional.softplus(
            torch.tanh(torch.nn.functional.softplus(x))
        ),
        lambda jax, x: jax.nn.softplus(jax.numpy.tanh(jax.nn.softplus(x))),
    ),
    "bias-tanh-1000x100": lambda: bias(1000, 100),
    "bias-1000000x3": lambda: bias_alone((300_000, 3), 1),
    "bias-channels-16x64x28x28": lambda: bias_alone((16, 64, 28, 28), 1),
    "column-sums-2000x700": lambda: bias_alone((2000, 700), 1),
    "row-sums-700x2000": lambda: bias_alone((700, 2000), 0),
    "square-error-1000x1000": lambda: square_error((1000, 1000)),
    "square-error-1000003": lambda: square_error((1_000_003,)),
    "broadcast-multiply-300x1-1x400": lambda: two(
        (300, 1), (1, 400), (300, 400), topi.multiply,
        lambda torch, a, b: a * b,
        lambda jax, a, b: a * b,
    ),
    "gather-10000x32-4096": lambda: gather(10000, 32, 4096),
    "gather-1000x1-10000": lambda: gather(1000, 1, 10000),
    "bags-5000x48-256x20": lambda: bags(5000, 48, 256, 20),
    "cumulative-sum-64x512": lambda: cumulative(64, 512, 1),
    "cumulative-sum-axis0-500x300": lambda: cumulative(500, 300, 0),
    "transpose-1000x1500": lambda: permuted((1000, 1500), (1, 0)),
    "permute-8x64x12x32-0213": lambda: permuted((8, 64, 12, 32), (0, 2, 1, 3)),
    "permute-4x32x40x50-0231": lambda: permuted((4, 32, 40, 50), (0, 2, 3, 1)),
    "concat-500x300-500x200": lambda: two(
        (500, 300), (500, 200), (500, 500),
        lambda a, b: topi.concatenate([a, b], 1),
        lambda torch, a, b: torch.cat([a, b], 1),
        lambda jax, a, b: jax.numpy.concatenate([a, b], 1),
    ),
    "stack-400x300": lambda: two(
        (400, 300), (400, 300), (400, 2, 300),
        lambda a, b: topi.stack([a, b], 1),
        lambda torch, a, b: torch.stack([a, b], 1),
        lambda jax, a, b: jax.numpy.stack([a, b], 1),
    ),
    "triangle-8x200x200": lambda: simple(
        (8, 200, 200), (8, 200, 200),
        lambda x: te.compute(x.shape, lambda b, i, j: te.if_then_else(j <= i, x[b, i, j], 0.0)),
        lambda torch, x: torch.tril(x),
        lambda jax, x: jax.numpy.tril(x),
    ),
    "strided-slice-1000x1000": lambda: simple(
        (1000, 1000), (500, 334),
        lambda x: te.compute((500, 334), lambda i, j: x[2 * i, 3 * j]),
        lambda torch, x: x[::2, ::3],
        lambda jax, x: x[::2, ::3],
    ),
    "norms-2000x200": lambda: simple(
        (2000, 200), (2000,),
        lambda x: topi.sqrt(topi.sum(x * x, 1)),
        lambda torch, x: torch.linalg.vector_norm(x, dim=1),
        lambda jax, x: jax.numpy.sqrt((x * x).sum(1)),
    ),
    "max-of-rows-2000x300": lambda: simple(
        (2000, 300), (2000,), lambda x: topi.max(x, 1),
        lambda torch, x: x.max(1).values,
        lambda jax, x: x.max(1),
    ),
    "max-of-columns-600x700": lambda: simple(
        (600, 700), (700,), lambda x: topi.max(x, 0),
        lambda torch, x: x.max(0).values,
        lambda jax, x: x.max(0),
    ),
    "hessian-rosenbrock-300": lambda: hessian(300),
    "jacobian-softmax-256x20": lambda: jacobian(256, 20),
}  # fmt: skip
