"""Networks over graphs, dense and as lists of edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from tvm_autodiff import segment_sum

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def dense_convolution(n: int, width: int, out: int) -> Case:
    """``relu(D^-½ (A + I) D^-½ x w)`` with a weighted matrix A of logits."""

    def ours(a: Any, x: Any, w: Any) -> Any:
        own = mapped((n, n), lambda i, j: te.sigmoid(a[i, j]) + te.if_then_else(i == j, 1.0, 0.0))
        degree = reduced((n,), (n,), lambda i, j: own[i, j])
        y = reduced((n, out), (width,), lambda i, o, k: x[i, k] * w[k, o])
        z = reduced(
            (n, out),
            (n,),
            lambda i, o, j: te.rsqrt(degree[i]) * own[i, j] * te.rsqrt(degree[j]) * y[j, o],
        )
        return mapped((n, out), lambda i, o: te.max(z[i, o], te.const(0.0, "float32")))

    def array(numpy: Any, sigmoid: Any, a: Any, x: Any, w: Any) -> Any:
        own = sigmoid(a) + numpy.eye(n)
        factor = own.sum(1) ** -0.5
        return numpy.maximum(factor[:, None] * own * factor @ (x @ w), numpy.zeros_like(x[:1, :1]))

    return operator(
        {"a": Input((n, n), mean=-2.0), "x": Input((n, width)), "w": Input((width, out))},
        (n, out),
        ours,
        lambda torch, *arrays: array(torch, torch.sigmoid, *arrays),
        lambda jax, *arrays: array(jax.numpy, jax.nn.sigmoid, *arrays),
    )


def edge_convolution(n: int, edges: int, width: int, out: int) -> Case:
    """The same for a list of edges, with a weight per edge."""

    def ours(source: Any, target: Any, weight: Any, x: Any, w: Any) -> Any:
        degree = segment_sum(weight, target, n)
        factor = mapped((n,), lambda i: te.rsqrt(degree[i] + 1.0))
        y = reduced((n, out), (width,), lambda i, o, k: x[i, k] * w[k, o])
        sent = mapped(
            (edges, out),
            lambda e, o: factor[source[e]] * weight[e] * factor[target[e]] * y[source[e], o],
        )
        received = segment_sum(sent, target, n)
        return mapped((n, out), lambda i, o: received[i, o] + factor[i] * factor[i] * y[i, o])

    def in_torch(torch: Any, source: Any, target: Any, weight: Any, x: Any, w: Any) -> Any:
        factor = torch.zeros(n).to(x.dtype).index_add(0, target, weight).add(1.0) ** -0.5
        y = x @ w
        sent = (factor[source] * weight * factor[target])[:, None] * y[source]
        return torch.zeros_like(y).index_add(0, target, sent) + (factor * factor)[:, None] * y

    def in_jax(jax: Any, source: Any, target: Any, weight: Any, x: Any, w: Any) -> Any:
        factor = jax.ops.segment_sum(weight, target, n)
        factor = (factor + 1.0) ** -0.5
        y = x @ w
        sent = (factor[source] * weight * factor[target])[:, None] * y[source]
        return jax.ops.segment_sum(sent, target, n) + (factor * factor)[:, None] * y

    return operator(
        {
            "source": Input((edges,), below=n),
            "target": Input((edges,), below=n),
            "weight": Input((edges,), 0.1, 1.0),
            "x": Input((n, width)),
            "w": Input((width, out)),
        },
        (n, out),
        ours,
        in_torch,
        in_jax,
    )


def graph_attention(n: int, edges: int, heads: int, width: int) -> Case:
    """Attention over the edges that end at a node: scores of both ends, softmax per target."""

    def ours(source: Any, target: Any, x: Any, a: Any, b: Any) -> Any:
        left = reduced((n, heads), (width,), lambda i, h, k: x[i, h, k] * a[h, k])
        right = reduced((n, heads), (width,), lambda i, h, k: x[i, h, k] * b[h, k])

        def power(e: Any, h: Any) -> Any:
            score = left[source[e], h] + right[target[e], h]
            return te.exp(te.if_then_else(score > 0.0, score, score * 0.2))

        weights = mapped((edges, heads), power)
        total = segment_sum(weights, target, n)
        sent = mapped(
            (edges, heads, width),
            lambda e, h, k: weights[e, h] / total[target[e], h] * x[source[e], h, k],
        )
        return segment_sum(sent, target, n)

    def array(leaky: Any, exp: Any, add: Any, source: Any, target: Any, x: Any, a: Any, b: Any):
        left, right = (x * a).sum(2), (x * b).sum(2)
        weights = exp(leaky(left[source] + right[target]))
        share = weights / add(weights, target)[target]
        return add(share[:, :, None] * x[source], target)

    def in_torch(torch: Any, *arrays: Any) -> Any:
        def add(values: Any, target: Any) -> Any:
            zeros = torch.zeros((n, *values.shape[1:]), dtype=values.dtype)
            return zeros.index_add(0, target, values)

        def leaky(x: Any) -> Any:
            return torch.nn.functional.leaky_relu(x, 0.2)

        return array(leaky, torch.exp, add, *arrays)

    def in_jax(jax: Any, *arrays: Any) -> Any:
        def add(values: Any, target: Any) -> Any:
            return jax.ops.segment_sum(values, target, n)

        return array(lambda x: jax.nn.leaky_relu(x, 0.2), jax.numpy.exp, add, *arrays)

    return operator(
        {
            "source": Input((edges,), below=n),
            "target": Input((edges,), below=n),
            "x": Input((n, heads, width)),
            "a": Input((heads, width), 0.2),
            "b": Input((heads, width), 0.2),
        },
        (n, heads, width),
        ours,
        in_torch,
        in_jax,
    )


CASES: dict[str, Callable[[], Case]] = {
    "graph-convolution-dense": lambda: dense_convolution(400, 64, 32),
    "graph-convolution-edges": lambda: edge_convolution(2000, 16000, 64, 32),
    "graph-attention": lambda: graph_attention(1000, 8000, 4, 16),
}
