"""Programs whose stages share leading axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

import tvm_autodiff as ad

#: outputs, and the stage from which their region grows
Program = tuple[list[te.Tensor], te.Tensor]


def attention(
    outer: tuple[int, ...],
    rows: int,
    keys: int,
    depth: int,
    score: Callable[..., Any] = lambda s, *place: s,
    dtype: str = "float64",
    gradient: bool = True,
) -> Program:
    """softmax(score(q kᵀ)) v over outer axes, with the gradients of q, k and v; the seed is q kᵀ.

    `score` changes a score, given its place: outer axes, row, key.
    """
    q = te.placeholder((*outer, rows, depth), dtype, "q")
    k, v = (te.placeholder((*outer, keys, depth), dtype, name) for name in "kv")
    count = len(outer)
    d, j = te.reduce_axis((0, depth), "d"), te.reduce_axis((0, keys), "j")
    j2 = te.reduce_axis((0, keys), "j2")
    shape = (*outer, rows, keys)
    s = te.compute(
        shape,
        lambda *at: te.sum(q[(*at[:-1], d)] * k[(*at[:count], at[-1], d)], axis=d),
        name="scores",
    )
    changed = te.compute(shape, lambda *at: score(s[at], *at), name="changed")
    top = te.compute(shape[:-1], lambda *at: te.max(changed[(*at, j2)], axis=j2), name="top")
    exp = te.compute(shape, lambda *at: te.exp(changed[at] - top[at[:-1]]), name="exp")
    j3 = te.reduce_axis((0, keys), "j3")
    total = te.compute(shape[:-1], lambda *at: te.sum(exp[(*at, j3)], axis=j3), name="total")
    weights = te.compute(shape, lambda *at: exp[at] / total[at[:-1]], name="weights")
    y = te.compute(
        (*outer, rows, depth),
        lambda *at: te.sum(weights[(*at[:-1], j)] * v[(*at[:count], j, at[-1])], axis=j),
        name="y",
    )
    if not gradient:
        return [y], s
    head = te.placeholder(y.shape, dtype, "head")
    return [y, *ad.differentiate(y, [q, k, v], head)], s


def network(rows: int, width: int, dtype: str = "float64") -> Program:
    """Two dense layers over a batch, with the gradients of weights and biases."""
    x = te.placeholder((rows, width), dtype, "x")
    w, u = (te.placeholder((width, width), dtype, name) for name in "wu")
    b = te.placeholder((width,), dtype, "b")
    i, j = te.reduce_axis((0, width), "i"), te.reduce_axis((0, width), "j")
    p = te.compute((rows, width), lambda n, o: te.sum(x[n, i] * w[i, o], axis=i), name="p")
    h = te.compute((rows, width), lambda n, o: te.tanh(p[n, o] + b[o]), name="h")
    y = te.compute((rows, width), lambda n, o: te.sum(h[n, j] * u[j, o], axis=j), name="y")
    head = te.placeholder(y.shape, dtype, "head")
    return [y, *ad.differentiate(y, [w, u, b], head)], p


def later_sums(rows: int, width: int, dtype: str = "float64") -> Program:
    """Sums up to another axis than the rows: ``y[r, s] = Σ_{k <= s} exp(x[r, k])``."""
    x = te.placeholder((rows, width), dtype, "x")
    p = te.compute((rows, width), lambda r, s: te.exp(x[r, s]), name="p")

    def total(r: Any, s: Any) -> Any:
        k = te.reduce_axis((0, s + 1), "k")
        return te.sum(p[r, k], axis=k)

    y = te.compute((rows, width), total, name="y")
    z = te.compute((rows, width), lambda r, s: y[r, s] * p[r, s], name="z")
    return [z], p
