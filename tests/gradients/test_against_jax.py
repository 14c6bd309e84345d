"""Gradients compared with those of JAX, which differentiates on a tape and shares no code with us.

Each line writes one computation twice, in te and in JAX, in float64. Random data keeps ties and
kinks away. Values are compared too: a gradient of another function would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tvm import te, tirx, topi
from tvm.topi import nn

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import Case
from tvm_autodiff.expr.nodes import is_float

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


def f(value):
    return tirx.const(value, "float64")


@dataclass(frozen=True)
class Both:
    """One computation in te and in JAX."""

    name: str
    inputs: list[Any]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    dense: bool = False
    domain: tuple[float, float] = (-1.5, 1.5)


def convolution(stride=1, padding=0, dilation=1, groups=1):
    def theirs(x, w):
        pads = [(padding, padding)] * 2
        return lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            pads,
            rhs_dilation=(dilation, dilation),
            feature_group_count=groups,
        )

    if groups > 1:
        return lambda x, w: nn.group_conv2d_nchw(x, w, stride, padding, dilation, groups), theirs
    return lambda x, w: nn.conv2d_nchw(x, w, stride, padding, dilation), theirs


def transposed(x, w):
    # topi: kernel (in, out, h, w), gradient of a convolution with stride 2 and padding 1
    return lax.conv_general_dilated(
        x,
        jnp.flip(w, (2, 3)).transpose(1, 0, 2, 3),
        (1, 1),
        [(1, 1), (1, 1)],
        lhs_dilation=(2, 2),
    )


def window(x, identity, reduce, size, stride, pad):
    return lax.reduce_window(
        x,
        identity,
        reduce,
        (1, 1, size, size),
        (1, 1, stride, stride),
        [(0, 0)] * 2 + [(pad, pad)] * 2,
    )


def max_pool(size, stride, pad):
    return (
        lambda x: nn.pool2d(x, [size] * 2, [stride] * 2, [1, 1], [pad] * 4, "max"),
        lambda x: window(x, -jnp.inf, lax.max, size, stride, pad),
    )


def average_pool(size, stride, pad):
    return (
        lambda x: nn.pool2d(x, [size] * 2, [stride] * 2, [1, 1], [pad] * 4, "avg"),
        lambda x: window(x, 0.0, lax.add, size, stride, pad) / size**2,
    )


def layer_norm(x, gamma, beta):
    """Written out in te: topi's own exists in float32 only."""
    rows, columns = (int(n) for n in x.shape)
    k, m = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "m")
    mean = te.compute((rows,), lambda i: te.sum(x[i, k] / f(columns), axis=k), name="mean")
    var = te.compute(
        (rows,),
        lambda i: te.sum((x[i, m] - mean[i]) * (x[i, m] - mean[i]) / f(columns), axis=m),
        name="var",
    )
    return te.compute(
        (rows, columns),
        lambda i, j: (x[i, j] - mean[i]) * te.rsqrt(var[i] + f(1e-5)) * gamma[j] + beta[j],
        name="normal",
    )


def jax_norm(axes):
    def normal(x, gamma, beta):
        mean = x.mean(axes, keepdims=True)
        var = ((x - mean) ** 2).mean(axes, keepdims=True)
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return (x - mean) / jnp.sqrt(var + 1e-5) * gamma.reshape(shape) + beta.reshape(shape)

    return normal


def batch_norm(x, gamma, beta):
    zeros, ones = (topi.full(gamma.shape, "float64", value) for value in (0.0, 1.0))
    return nn.batch_norm(x, gamma, beta, zeros, ones, epsilon=1e-5, training=True)[0]


def attention(q, key, v):
    scores = topi.matmul(q, key, False, True)
    masked = te.compute(
        scores.shape,
        lambda i, j: te.if_then_else(j <= i, scores[i, j] / f(1.5), f(-1e9)),
        name="mask",
    )
    return topi.matmul(nn.softmax(masked), v)


def jax_attention(q, key, v):
    scores = q @ key.T / 1.5
    causal = jnp.tril(jnp.ones(scores.shape, bool))
    return jax.nn.softmax(jnp.where(causal, scores, -1e9)) @ v


def prefix(x):
    k = te.reduce_axis((0, x.shape[0]), "k")
    return te.compute(
        x.shape, lambda i: te.sum(te.if_then_else(k <= i, te.sin(x[k]), f(0)), axis=k), name="s"
    )


def lower_times(a, x):
    k = te.reduce_axis((0, x.shape[0]), "k")
    return te.compute(
        x.shape, lambda i: te.sum(tirx.Select(k <= i, a[i, k] * x[k], f(0)), axis=k), name="y"
    )


def log_sum_exp(x):
    """In one pass: the running (max, sum of exp) pair."""

    def combine(a, b):
        top = tirx.Max(a[0], b[0])
        return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)

    pair = te.comm_reducer(combine, lambda t0, t1: (tirx.const(-700, t0), tirx.const(0, t1)))
    k = te.reduce_axis((0, x.shape[1]), "k")
    top, total = te.compute((x.shape[0],), lambda i: pair((x[i, k], f(1)), axis=k), name="pair")
    return te.compute((x.shape[0],), lambda i: top[i] + te.log(total[i]), name="lse")


def products(x):
    k = te.reduce_axis((0, x.shape[1]), "k")
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t))
    return te.compute((x.shape[0],), lambda i: product(x[i, k], axis=k), name="p")


def gelu(x):
    return te.compute(
        x.shape, lambda i: x[i] * f(0.5) * (f(1) + te.erf(x[i] * f(2**-0.5))), name="gelu"
    )


def cross_entropy(x, labels):
    classes = topi.one_hot(labels, 1.0, 0.0, int(x.shape[1]), -1, "float64")
    return topi.negative(topi.sum(topi.multiply(nn.log_softmax(x), classes)))


INDICES = np.array([1, 4, 1, 0], "int32")
LABELS = np.array([2, 0, 1], "int32")
IMAGE, FILTER = (2, 2, 6, 7), (3, 2, 3, 3)

CASES = [
    Both("conv2d", [IMAGE, FILTER], *convolution()),
    Both("conv2d, padded", [IMAGE, FILTER], *convolution(padding=1)),
    Both("conv2d, stride 2", [IMAGE, FILTER], *convolution(stride=2, padding=1)),
    Both("conv2d, stride 3", [IMAGE, FILTER], *convolution(stride=3, padding=2)),
    Both("conv2d, dilation 2", [IMAGE, FILTER], *convolution(dilation=2, padding=1)),
    Both("conv2d, stride 2, dilation 3", [(1, 2, 9, 9), FILTER], *convolution(2, 1, 3)),
    Both("conv2d, grouped", [(1, 4, 5, 5), (4, 2, 3, 3)], *convolution(padding=1, groups=2)),
    Both("conv2d, depthwise", [(1, 3, 5, 5), (3, 1, 3, 3)], *convolution(padding=1, groups=3)),
    Both(
        "conv2d, transposed",
        [(1, 2, 3, 3), (2, 3, 3, 3)],
        lambda x, w: nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1, 1, 1), "float64", (0, 0)),
        transposed,
    ),
    Both("max pool", [(1, 2, 6, 6)], *max_pool(2, 2, 0)),
    Both("max pool, overlapping", [(1, 2, 7, 7)], *max_pool(3, 2, 1)),
    Both("average pool", [(1, 2, 6, 6)], *average_pool(2, 2, 0)),
    Both("average pool, overlapping", [(1, 2, 7, 7)], *average_pool(3, 2, 1)),
    Both("softmax", [(3, 5)], nn.softmax, jax.nn.softmax),
    Both("log softmax", [(3, 5)], nn.log_softmax, jax.nn.log_softmax),
    Both("layer norm", [(3, 5), (5,), (5,)], layer_norm, jax_norm(1)),
    Both("batch norm", [(3, 2, 4, 3), (2,), (2,)], batch_norm, jax_norm((0, 2, 3))),
    Both("attention, causal", [(4, 3), (4, 3), (4, 2)], attention, jax_attention),
    Both("prefix sums", [(6,)], prefix, lambda x: jnp.cumsum(jnp.sin(x))),
    Both("lower triangle", [(5, 5), (5,)], lower_times, lambda a, x: jnp.tril(a) @ x),
    Both("log-sum-exp", [(3, 6)], log_sum_exp, lambda x: jax.nn.logsumexp(x, 1)),
    Both("product", [(3, 4)], products, lambda x: jnp.prod(x, 1)),
    Both("product with a zero", [np.array([[0.5, 0, 2]])], products, lambda x: jnp.prod(x, 1)),
    Both(
        "embedding",
        [(5, 3), INDICES],
        lambda table, index: topi.take(table, index, 0),
        lambda table, index: table[index],
    ),
    Both(
        "cross entropy",
        [(3, 4), LABELS],
        cross_entropy,
        lambda x, n: -jnp.take_along_axis(jax.nn.log_softmax(x), n[:, None], 1).sum(),
    ),
    Both("gelu", [(6,)], gelu, lambda x: jax.nn.gelu(x, approximate=False)),
    Both("relu", [(6,)], nn.relu, jax.nn.relu),
    Both("softplus", [(6,)], nn.softplus, jax.nn.softplus),
    Both(
        "einsum",
        [(2, 3, 4), (2, 4, 3), (3,)],
        lambda a, b, c: topi.einsum("bij,bji,i->b", a, b, c),
        lambda a, b, c: jnp.einsum("bij,bji,i->b", a, b, c),
    ),
    Both(
        "slice and concatenate",
        [(6, 4), (2, 4)],
        lambda a, b: topi.concatenate([topi.strided_slice(a, [5, 0], [0, 4], [-2, 1]), b], 0),
        lambda a, b: jnp.concatenate([a[5:0:-2], b]),
    ),
    Both(
        "reshape and transpose",
        [(4, 6)],
        lambda a: topi.transpose(topi.reshape(topi.multiply(a, a), (2, 3, 4)), (2, 0, 1)),
        lambda a: (a * a).reshape(2, 3, 4).transpose(2, 0, 1),
    ),
    Both(
        "circular pad",
        [(5,)],
        lambda a: nn.circular_pad(a, [2], [1]),
        lambda a: jnp.pad(a, (2, 1), "wrap"),
    ),
    Both(
        "reflect pad",
        [(5,)],
        lambda a: nn.mirror_pad(a, [2], [1], "REFLECT"),
        lambda a: jnp.pad(a, (2, 1), "reflect"),
    ),
    Both("standard deviation", [(7,)], lambda x: deviation(x), jnp.std),
]


def deviation(x):
    size = int(x.shape[0])
    k, m = te.reduce_axis((0, size), "k"), te.reduce_axis((0, size), "m")
    mean = te.compute((), lambda: te.sum(x[k] / f(size), axis=k), name="mean")
    var = te.compute((), lambda: te.sum((x[m] - mean()) * (x[m] - mean()), axis=m), name="var")
    return te.compute((), lambda: te.sqrt(var() / f(size)), name="std")


@pytest.mark.parametrize("both", CASES, ids=lambda both: both.name)
def test_gradient_is_that_of_jax(both):
    case = Case(both.name, both.inputs, both.ours, domain=both.domain, dense=both.dense)
    placeholders, output = case.tensors()
    arrays = case.arrays()
    pairs = list(zip(placeholders, arrays, strict=True))
    values = tuple(map(jnp.asarray, arrays))
    shape = jax.eval_shape(both.theirs, *values).shape
    cotangent = np.random.default_rng(7).standard_normal(shape)

    def theirs(cotangent, *values):
        expected, pull = jax.vjp(both.theirs, *values)
        return expected, pull(cotangent)

    given = (jnp.asarray(cotangent), *values)
    expected, pulled = jax.jit(theirs)(*given)
    head = te.placeholder(output.shape, "float64", name="head")
    inputs = [tensor for tensor in placeholders if is_float(tensor)]
    with case.expecting():
        adjoints = ad.gradient(output, inputs, head)
    value, *got = evaluate_graph([output, *adjoints], [*pairs, (head, cotangent)])
    np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-12)
    wanted = [
        derivative
        for tensor, derivative in zip(placeholders, pulled, strict=True)
        if is_float(tensor)
    ]
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)
