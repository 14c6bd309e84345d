"""Chains of row reductions and elementwise stages: (inputs, outputs) as te tensors."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx, topi

from tests.schedule.cases import axis, placeholder
from tvm_autodiff import differentiate

Case = tuple[list[Any], list[Any]]


def softmax(*shape: Any) -> Case:
    X, H = placeholder("X", *shape), placeholder("H", *shape)
    Y = topi.nn.softmax(X)
    return [X, H], [Y, *differentiate(Y, [X], H)]


def layer_norm(n: Any, m: int) -> Case:
    X, H = placeholder("X", n, m), placeholder("H", n, m)
    G, B = placeholder("G", m), placeholder("B", m)
    k, j = axis(m, "k"), axis(m, "j")
    mean = te.compute((n,), lambda i: te.sum(X[i, k] / float(m), axis=k), name="mean")
    square = lambda x: x * x  # noqa: E731
    var = te.compute(
        (n,), lambda i: te.sum(square(X[i, j] - mean[i]) / float(m), axis=j), name="var"
    )
    scale = te.compute((n,), lambda i: te.rsqrt(var[i] + 1e-3), name="scale")
    Y = te.compute((n, m), lambda i, q: (X[i, q] - mean[i]) * scale[i] * G[q] + B[q], name="Y")
    return [X, H, G, B], [Y, *differentiate(Y, [X, G, B], H)]


def batch_norm(n: int, c: int, h: int) -> Case:
    X, H = placeholder("X", n, c, h, h), placeholder("H", n, c, h, h)
    count = float(n * h * h)

    def over(source: Any, name: str) -> Any:
        b, y, x = axis(n, "b"), axis(h, "y"), axis(h, "x")
        return te.compute((c,), lambda i: te.sum(source(b, i, y, x), axis=[b, y, x]), name=name)

    total = over(X, "total")
    centred = te.compute(X.shape, lambda b, i, y, x: X[b, i, y, x] - total[i] / count, name="cen")
    square = te.compute(X.shape, lambda *i: centred(*i) * centred(*i), name="square")
    var = over(square, "var")
    Y = te.compute(
        X.shape,
        lambda b, i, y, x: centred[b, i, y, x] * te.rsqrt(var[i] / count + 1e-3),
        name="Y",
    )
    return [X, H], [Y, *differentiate(Y, [X], H)]


def cross_entropy(n: int, m: int) -> Case:
    Z, T = placeholder("Z", n, m), placeholder("T", n, dtype="int32")
    L = topi.nn.log_softmax(Z)
    r = axis(n, "r")
    loss = te.compute((), lambda: te.sum(-L[r, T[r]] / float(n), axis=r), name="loss")
    return [Z, T], [loss, *differentiate(loss, [Z])]


def squared_error(n: int, m: int) -> Case:
    A, B = placeholder("A", n, m), placeholder("B", n, m)
    r, s = axis(n, "r"), axis(m, "s")
    difference = te.compute((n, m), lambda i, j: A[i, j] - B[i, j], name="difference")
    loss = te.compute(
        (), lambda: te.sum(difference[r, s] * difference[r, s] / 4.0, axis=[r, s]), name="loss"
    )
    return [A, B], [loss, *differentiate(loss, [A])]


def scaled_error(n: int, m: int) -> Case:
    """Squared errors of a tensor times a number, and the gradient of the number."""
    A, B, T = placeholder("A", n, m), placeholder("B", n, m), placeholder("T", 1)
    r, s = axis(n, "r"), axis(m, "s")
    error = te.compute((n, m), lambda i, j: A[i, j] * T[0] - B[i, j], name="error")
    loss = te.compute((), lambda: te.sum(error[r, s] * error[r, s], axis=[r, s]), name="loss")
    return [A, B, T], [loss, *differentiate(loss, [T])]


def gates(n: int, d: int) -> Case:
    """Two gates out of one row of both, put together again by the gradient."""
    Z, C, H = placeholder("Z", n, 2 * d), placeholder("C", n, d), placeholder("H", n, d)
    B = placeholder("B", 2 * d)
    biased = te.compute((n, 2 * d), lambda i, j: Z[i, j] + B[j], name="biased")
    open_ = te.compute((n, d), lambda i, j: te.sigmoid(biased[i, j]), name="open")
    new = te.compute((n, d), lambda i, j: te.tanh(biased[i, j + d]), name="new")
    out = te.compute((n, d), lambda i, j: open_[i, j] * new[i, j] + C[i, j], name="out")
    return [Z, C, H, B], [out, *differentiate(out, [Z, C, B], H)]


def two_sums(n: int, m: int) -> Case:
    """Sums over rows and over columns of one tensor."""
    A = placeholder("A", n, m)
    k, l = axis(m, "k"), axis(n, "l")  # noqa: E741
    rows = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="rows")
    columns = te.compute((m,), lambda j: te.sum(A[l, j] * 2.0, axis=l), name="columns")
    return [A], [rows, columns]


def two_maps(*shape: Any) -> Case:
    A, B = placeholder("A", *shape), placeholder("B", *shape)
    sum_ = te.compute(shape, lambda *i: A(*i) + B(*i), name="sum_")
    product = te.compute(shape, lambda *i: A(*i) * B(*i), name="product")
    return [A, B], [sum_, product]


def guarded(n: int, m: int) -> Case:
    """A shifted row beside its sum: conditions at both ends of the row."""
    A = placeholder("A", n, m)
    zero = tirx.const(0, "float32")
    shifted = te.compute(
        (n, m),
        lambda i, j: te.if_then_else(te.all(j >= 1, j < m - 2), A[i, j + 1] - A[i, j - 1], zero),
        name="shifted",
    )
    k = axis(m, "k")
    total = te.compute((n,), lambda i: te.sum(shifted[i, k] * A[i, k], axis=k), name="total")
    return [A], [shifted, total]


def triangle(n: int) -> Case:
    """Sums along a part of the row that grows from row to row, and what is left of it."""
    A = placeholder("A", n, n)
    k = axis(n, "k")
    part = te.compute((n,), lambda i: te.sum(A[i, k], axis=k, where=k <= i), name="part")
    rest = te.compute((n, n), lambda i, j: A[i, j] - part[i], name="rest")
    return [A], [rest, part]


def winners(n: int, m: int) -> Case:
    A = placeholder("A", n, m)
    k, j = axis(m, "k"), axis(m, "j")
    largest = te.compute((n,), lambda i: te.max(A[i, k], axis=k), name="largest")
    below = te.compute((n, m), lambda i, q: A[i, q] - largest[i], name="below")
    total = te.compute((n,), lambda i: te.sum(below[i, j], axis=j), name="total")
    H = placeholder("H", n)
    return [A, H], [below, total, *differentiate(total, [A], H)]


def blocks(n: int, p: int, k: int) -> Case:
    """A few sums for each row, then a function of them."""
    A, W = placeholder("A", n, p, k), placeholder("W", p, k)
    r = axis(k)
    sums = te.compute((n, p), lambda i, q: te.sum(A[i, q, r] * W[q, r], axis=r), name="sums")
    j = axis(p, "j")
    top = te.compute((n,), lambda i: te.max(sums[i, j], axis=j), name="top")
    out = te.compute((n, p), lambda i, q: sums[i, q] - top[i], name="out")
    return [A, W], [out, sums]
