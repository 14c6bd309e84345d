"""Small programs of many kinds, with all their gradients, that are built for a GPU.

`PROGRAMS` maps a name to a function that returns the inputs and the output; `with_gradients` adds
the gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import te, topi

import tvm_autodiff as ad
from tests.schedule import cases
from tests.topi_operators import GROUPS
from tvm_autodiff.expr.nodes import is_float, tensor_key
from tvm_autodiff.graph.graph import Graph


def placeholder(name, *shape, dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def perceptron():
    x, w, v = placeholder("x", 16, 20), placeholder("w", 24, 20), placeholder("v", 10, 24)
    hidden = topi.nn.relu(topi.nn.dense(x, w))
    logits = topi.nn.log_softmax(topi.nn.dense(hidden, v))
    return [x, w, v], topi.sum(logits)


def convolution(stride, dilation):
    def make():
        x, w = placeholder("x", 2, 4, 13, 13), placeholder("w", 8, 4, 3, 3)
        return [x, w], topi.nn.conv2d_nchw(x, w, stride, dilation, dilation)

    return make


def depthwise():
    x, w = placeholder("x", 2, 8, 12, 12), placeholder("w", 8, 1, 3, 3)
    return [x, w], topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)


def pool(kind, kernel, stride, edge):
    def make():
        x = placeholder("x", 2, 3, 13, 13)
        size, steps, pad = [kernel] * 2, [stride] * 2, [edge] * 4
        return [x], topi.nn.pool2d(x, size, steps, [1, 1], pad, kind)

    return make


def softmax():
    x = placeholder("x", 33, 70)
    return [x], topi.nn.softmax(x)


def layer_norm():
    x, g, b = placeholder("x", 16, 96), placeholder("g", 96), placeholder("b", 96)
    return [x, g, b], topi.nn.layer_norm(x, g, b, [1])


def attention():
    q, k, v = (placeholder(n, 2, 16, 8) for n in "qkv")
    scores = topi.nn.batch_matmul(q, k)
    return [q, k, v], topi.nn.batch_matmul(topi.nn.softmax(scores), topi.transpose(v, (0, 2, 1)))


def lstm_cell():
    x, h, c = placeholder("x", 8, 12), placeholder("h", 8, 16), placeholder("c", 8, 16)
    w, u = placeholder("w", 64, 12), placeholder("u", 64, 16)
    gates = topi.add(topi.nn.dense(x, w), topi.nn.dense(h, u))
    i, f, g, o = topi.split(gates, 4, 1)
    cell = topi.sigmoid(f) * c + topi.sigmoid(i) * topi.tanh(g)
    return [x, h, c, w, u], topi.sigmoid(o) * topi.tanh(cell)


def embedding():
    E, w = placeholder("E", 50, 8), placeholder("w", 5, 8)
    index = placeholder("index", 30, dtype="int32")
    return [E, w, index], topi.nn.dense(topi.take(E, index, 0), w)


def maximum():
    x = placeholder("x", 9, 40)
    return [x], topi.max(x, 1)


def cumulative():
    x = placeholder("x", 9, 40)
    k = te.reduce_axis((0, 40), "k")
    return [x], te.compute(
        (9, 40), lambda i, j: te.sum(x[i, k], axis=k, where=k <= j), name="running"
    )


def bilinear():
    x = placeholder("x", 1, 2, 6, 7)
    return [x], topi.image.resize2d(x, [0.0] * 4, (9, 5))


def relaxation():
    x, w = placeholder("x", 16, 24), placeholder("w", 24)
    return [x, w], te.compute(
        (16, 24), lambda i, j: te.min(x[i, j], x[i, 23 - j] * w[j] + x[i, j] * 0.5), name="relaxed"
    )


def symbolic():
    n = te.var("n")
    x, w = placeholder("x", n, 24), placeholder("w", 16, 24)
    return [x, w], topi.nn.softmax(topi.nn.dense(x, w))


PROGRAMS = {
    "perceptron": perceptron,
    "conv": convolution(1, 1),
    "conv, stride 2": convolution(2, 1),
    "conv, dilation 2": convolution(1, 2),
    "depthwise conv": depthwise,
    "max pool": pool("max", 2, 2, 0),
    "padded max pool": pool("max", 3, 2, 1),
    "average pool": pool("avg", 3, 2, 1),
    "softmax": softmax,
    "layer norm": layer_norm,
    "attention": attention,
    "lstm cell": lstm_cell,
    "embedding": embedding,
    "maximum": maximum,
    "cumulative sum": cumulative,
    "bilinear": bilinear,
    "relaxation": relaxation,
    "symbolic": symbolic,
}


def with_gradients(inputs, output):
    """Placeholders, and the output with its gradients with respect to all float inputs."""
    head = te.placeholder(output.shape, str(output.dtype), name="head")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ad.DenseSumWarning)
        gradients = ad.differentiate(output, [t for t in inputs if is_float(t)], head)
    outputs = [output, *gradients]
    return Graph(outputs).placeholders(), outputs


def of_dtype(dtype: str) -> dict[str, Any]:
    """Programs of several rules in one dtype."""
    x = placeholder("x", 9, 300, dtype=dtype)
    images = placeholder("x", 2, 3, 13, 13, dtype=dtype)
    pooled = topi.nn.pool2d(images, [3] * 2, [2] * 2, [1] * 2, [1] * 4, "max")
    inputs, product = cases.matmul(64, 48, 64, "nt", dtype)
    return {
        "softmax": with_gradients([x], topi.nn.softmax(x)),
        "pool": with_gradients([images], pooled),
        "matmul": (inputs, [product]),
    }


#: every eleventh operator of topi's that has one output
OPERATORS = [
    case
    for case in [case for group in GROUPS.values() for case in group][3::11]
    if not isinstance(output := case.tensors()[1], (list, tuple)) and output.op.num_outputs == 1
]


def operator(case: Any) -> tuple[list[Any], list[Any]]:
    """An operator with its gradients, if it has any; inputs that are not read are left out."""
    inputs, output = case.tensors()
    try:
        found = with_gradients(inputs, output) if is_float(output) else (inputs, [output])
    except ad.NotDifferentiableError:
        found = inputs, [output]
    known = {tensor_key(tensor) for tensor in found[0]}
    read = [t for t in Graph(found[1]).placeholders() if tensor_key(t) in known]
    return read, found[1]


def drawn(inputs: Sequence[Any], sizes: Mapping[str, int] | None = None) -> list[np.ndarray]:
    """Normal numbers for float inputs, small integers for others."""
    rng = np.random.default_rng(0)
    shapes = [
        [int(d) if hasattr(d, "value") else (sizes or {})[d.name] for d in t.shape] for t in inputs
    ]
    return [
        rng.standard_normal(shape).astype(str(tensor.dtype))
        if is_float(tensor)
        else rng.integers(0, 5, shape).astype(str(tensor.dtype))
        for tensor, shape in zip(inputs, shapes, strict=True)
    ]
