"""Operators that the suite does not have, most with gradients, as programs for `cuda_audit`.

`PROGRAMS` maps a name to a function that returns the inputs and the outputs of a program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tvm import te, topi

import tvm_autodiff as ad
from tvm_autodiff.expr.nodes import is_float
from tvm_autodiff.graph.graph import Graph

Program = tuple[list[Any], list[Any]]


def _placeholder(name: str, *shape: int, dtype: str = "float32") -> Any:
    return te.placeholder(shape, dtype, name=name)


def _with_gradients(inputs: list[Any], output: Any) -> Program:
    head = te.placeholder(output.shape, str(output.dtype), name="head")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ad.DenseSumWarning)
        gradients = ad.differentiate(output, [t for t in inputs if is_float(t)], head)
    outputs = [output, *gradients]
    return Graph(outputs).placeholders(), outputs


def _alone(inputs: list[Any], output: Any) -> Program:
    return inputs, [output]


def depthwise(stride: int) -> Program:
    x, w = _placeholder("x", 32, 128, 56, 56), _placeholder("w", 128, 1, 3, 3)
    return _with_gradients([x, w], topi.nn.depthwise_conv2d_nchw(x, w, stride, 1, 1))


def convolution(channels: int, filters: int, size: int, kernel: int, stride: int) -> Program:
    x = _placeholder("x", 16, channels, size, size)
    w = _placeholder("w", filters, channels, kernel, kernel)
    return _with_gradients([x, w], topi.nn.conv2d_nchw(x, w, stride, kernel // 2, 1))


def grouped() -> Program:
    x, w = _placeholder("x", 16, 128, 28, 28), _placeholder("w", 128, 16, 3, 3)
    return _with_gradients([x, w], topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 8))


def batch_norm() -> Program:
    x, g, b = _placeholder("x", 32, 64, 56, 56), _placeholder("g", 64), _placeholder("b", 64)
    mean = topi.divide(topi.sum(x, [0, 2, 3], True), 32 * 56 * 56)
    centred = topi.subtract(x, mean)
    variance = topi.divide(topi.sum(topi.multiply(centred, centred), [0, 2, 3], True), 100352)
    normal = topi.multiply(centred, topi.rsqrt(topi.add(variance, 1e-5)))
    scale, shift = topi.reshape(g, (1, 64, 1, 1)), topi.reshape(b, (1, 64, 1, 1))
    return _with_gradients([x, g, b], topi.add(topi.multiply(normal, scale), shift))


def group_norm() -> Program:
    x, g, b = _placeholder("x", 16, 64, 32, 32), _placeholder("g", 64), _placeholder("b", 64)
    return _with_gradients([x, g, b], topi.nn.group_norm(x, g, b, 8, 1, [2, 3]))


def softmax(rows: int, columns: int) -> Program:
    x = _placeholder("x", rows, columns)
    return _with_gradients([x], topi.nn.softmax(x))


def total() -> Program:
    x = _placeholder("x", 10_000_000)
    return _alone([x], topi.sum(x))


def column_sums() -> Program:
    x = _placeholder("x", 1_000_000, 16)
    return _alone([x], topi.sum(x, 0))


def argmax(axis: int) -> Program:
    x = _placeholder("x", 4096, 1000)
    return _alone([x], topi.argmax(x, axis))


def embedding_bag() -> Program:
    table, index = _placeholder("table", 50_000, 128), _placeholder("index", 512, 40, dtype="int32")
    k = te.reduce_axis((0, 40), "k")
    bag = te.compute((512, 128), lambda i, j: te.sum(table[index[i, k], j], axis=k), name="bag")
    return _with_gradients([table, index], bag)


def cumulative_sum() -> Program:
    x = _placeholder("x", 512, 1024)
    k = te.reduce_axis((0, 1024), "k")
    out = te.compute(
        (512, 1024), lambda i, j: te.sum(x[i, k], axis=k, where=k <= j), name="running"
    )
    return _with_gradients([x], out)


def max_plus() -> Program:
    a, b, k = _placeholder("a", 512, 512), _placeholder("b", 512, 512), te.reduce_axis((0, 512))
    out = te.compute((512, 512), lambda i, j: te.max(a[i, k] + b[k, j], axis=k), name="tropical")
    return _with_gradients([a, b], out)


def distances() -> Program:
    x, c = _placeholder("x", 4096, 64), _placeholder("c", 256, 64)
    k = te.reduce_axis((0, 64), "k")
    out = te.compute(
        (4096, 256), lambda i, j: te.sum(te.abs(x[i, k] - c[j, k]), axis=k), name="distances"
    )
    return _with_gradients([x, c], out)


def triangular() -> Program:
    a, x = _placeholder("a", 1024, 1024), _placeholder("x", 1024, 64)
    k = te.reduce_axis((0, 1024), "k")
    out = te.compute(
        (1024, 64), lambda i, j: te.sum(a[i, k] * x[k, j], axis=k, where=k <= i), name="lower"
    )
    return _with_gradients([a, x], out)


def resize() -> Program:
    x = _placeholder("x", 8, 16, 64, 64)
    return _with_gradients([x], topi.image.resize2d(x, [0.0] * 4, (128, 128)))


def pool(kind: str) -> Program:
    x = _placeholder("x", 32, 64, 112, 112)
    return _with_gradients([x], topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1] * 4, kind))


def masked_attention() -> Program:
    q, k, v = (_placeholder(n, 32, 256, 64) for n in "qkv")
    scores = topi.nn.batch_matmul(q, k)
    masked = te.compute(
        scores.shape,
        lambda b, i, j: te.if_then_else(j <= i, scores[b, i, j] * 0.125, -1e9),
        name="masked",
    )
    weights = topi.nn.softmax(masked)
    return _with_gradients([q, k, v], topi.nn.batch_matmul(weights, topi.transpose(v, (0, 2, 1))))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "depthwise-3x3": lambda: depthwise(1),
    "depthwise-3x3-stride2": lambda: depthwise(2),
    "grouped-conv": grouped,
    "conv-1x1": lambda: convolution(64, 256, 56, 1, 1),
    "conv-7x7-stride2": lambda: convolution(3, 64, 224, 7, 2),
    "batch-norm": batch_norm,
    "group-norm": group_norm,
    "softmax-64x32000": lambda: softmax(64, 32_000),
    "softmax-8192x512": lambda: softmax(8192, 512),
    "total": total,
    "column-sums": column_sums,
    "argmax-rows": lambda: argmax(1),
    "argmax-columns": lambda: argmax(0),
    "embedding-bag": embedding_bag,
    "cumulative-sum": cumulative_sum,
    "triangular": triangular,
    "max-plus": max_plus,
    "distances": distances,
    "resize": resize,
    "max-pool-large": lambda: pool("max"),
    "average-pool-large": lambda: pool("avg"),
    "masked-attention": masked_attention,
}
