"""Kernels that the schedule rules are tested with: (inputs, output) as te tensors, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx, topi

Case = tuple[list[Any], Any]


def placeholder(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return te.placeholder(shape, dtype, name=name)


def axis(extent: Any, name: str = "k") -> Any:
    return te.reduce_axis((0, extent), name)


def matmul(n: Any, m: int, k: int, form: str = "nn", dtype: str = "float32") -> Case:
    A = placeholder("A", *((k, n) if form[0] == "t" else (n, k)), dtype=dtype)
    B = placeholder("B", *((m, k) if form[1] == "t" else (k, m)), dtype=dtype)
    r = axis(k)

    def body(i: Any, j: Any) -> Any:
        left = A[r, i] if form[0] == "t" else A[i, r]
        right = B[j, r] if form[1] == "t" else B[r, j]
        return te.sum(left * right, axis=r)

    return [A, B], te.compute((n, m), body, name="C")


def dense_relu(n: int, m: int, k: int) -> Case:
    [A, B], C = matmul(n, m, k, "nt")
    bias = placeholder("bias", m)
    biased = te.compute((n, m), lambda i, j: C[i, j] + bias[j], name="biased")
    zero = tirx.const(0, "float32")
    relu = te.compute(
        (n, m),
        lambda i, j: tirx.Select(biased[i, j] > zero, biased[i, j], zero),
        name="relu",
    )
    return [A, B, bias], relu


def batched(b: int, n: int, m: int, k: int) -> Case:
    A, B = placeholder("A", b, n, k), placeholder("B", b, k, m)
    r = axis(k)
    return [A, B], te.compute(
        (b, n, m), lambda g, i, j: te.sum(A[g, i, r] * B[g, r, j], axis=r), name="C"
    )


def four_index(n: int) -> Case:
    A, B = placeholder("A", n, n, n, n), placeholder("B", n, n, n, n)
    c, d = axis(n, "c"), axis(n, "d")
    return [A, B], te.compute(
        (n,) * 4, lambda a, b, e, f: te.sum(A[a, b, c, d] * B[c, d, e, f], axis=[c, d]), name="C"
    )


def mttkrp(i: int, j: int, k: int, r: int) -> Case:
    X, B, C = placeholder("X", i, j, k), placeholder("B", j, r), placeholder("C", k, r)
    a, b = axis(j, "j"), axis(k, "l")
    return [X, B, C], te.compute(
        (i, r), lambda x, y: te.sum(X[x, a, b] * B[a, y] * C[b, y], axis=[a, b]), name="M"
    )


def conv(n: int, c: int, h: int, f: int, stride: int = 1, dilation: int = 1, k: int = 3) -> Case:
    X, W = placeholder("X", n, c, h, h), placeholder("W", f, c, k, k)
    return [X, W], topi.nn.conv2d_nchw(X, W, stride, dilation * (k // 2), dilation)


def conv_input_gradient(n: int, c: int, h: int, f: int) -> Case:
    H, W = placeholder("H", n, f, h, h), placeholder("W", f, c, 3, 3)
    a, p, q = axis(f, "f"), axis(3, "p"), axis(3, "q")

    def body(b: Any, ci: Any, y: Any, x: Any) -> Any:
        inside = te.all(y + 1 - p >= 0, y + 1 - p < h, x + 1 - q >= 0, x + 1 - q < h)
        product = H[b, a, y + 1 - p, x + 1 - q] * W[a, ci, p, q]
        return te.sum(te.if_then_else(inside, product, 0.0), axis=[a, p, q])

    return [H, W], te.compute((n, c, h, h), body, name="dX")


def strided_input_gradient(n: int, c: int, h: int, f: int) -> Case:
    out = (h + 1) // 2
    H, W = placeholder("H", n, f, out, out), placeholder("W", f, c, 3, 3)
    a, p, q = axis(f, "f"), axis(3, "p"), axis(3, "q")

    def body(b: Any, ci: Any, y: Any, x: Any) -> Any:
        u, v = y + 1 - p, x + 1 - q
        inside = te.all(u >= 0, u % 2 == 0, u // 2 < out, v >= 0, v % 2 == 0, v // 2 < out)
        product = H[b, a, u // 2, v // 2] * W[a, ci, p, q]
        return te.sum(te.if_then_else(inside, product, 0.0), axis=[a, p, q])

    return [H, W], te.compute((n, c, h, h), body, name="dX")


def conv_weight_gradient(n: int, c: int, h: int, f: int) -> Case:
    H, X = placeholder("H", n, f, h, h), placeholder("X", n, c, h, h)
    b, y, x = axis(n, "n"), axis(h, "h"), axis(h, "w")

    def body(fi: Any, ci: Any, p: Any, q: Any) -> Any:
        inside = te.all(y + p - 1 >= 0, y + p - 1 < h, x + q - 1 >= 0, x + q - 1 < h)
        product = H[b, fi, y, x] * X[b, ci, y + p - 1, x + q - 1]
        return te.sum(te.if_then_else(inside, product, 0.0), axis=[b, y, x])

    return [H, X], te.compute((f, c, 3, 3), body, name="dW")


def triangular(n: int) -> Case:
    [A, B], _ = matmul(n, n, n)
    r = axis(n)
    return [A, B], te.compute(
        (n, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r, where=r <= i), name="L"
    )


def flipped(n: int) -> Case:
    A, B = placeholder("A", n, n), placeholder("B", n, n)
    r = axis(n)
    return [A, B], te.compute(
        (n, n), lambda i, j: te.sum(A[n - 1 - i, r] * B[r, n - 1 - j], axis=r), name="F"
    )


def ones_outside(n: int, m: int, k: int) -> Case:
    """A factor that is one, not zero, where it would read outside."""
    X, W = placeholder("X", n), placeholder("W", k, m)
    r = axis(k)

    def body(i: Any, j: Any) -> Any:
        return te.sum(te.if_then_else(i + r < n, X[i + r], 1.0) * W[r, j], axis=r)

    return [X, W], te.compute((n, m), body, name="D")


def distance(n: int, m: int, k: int) -> Case:
    A, B = placeholder("A", n, k), placeholder("B", m, k)
    r = axis(k)
    return [A, B], te.compute(
        (n, m),
        lambda i, j: te.sum((A[i, r] - B[j, r]) * (A[i, r] - B[j, r]), axis=r),
        name="D",
    )


def rows(n: Any, k: int, reducer: Callable[..., Any] = te.sum, dtype: str = "float32") -> Case:
    A = placeholder("A", n, k, dtype=dtype)
    r = axis(k)
    return [A], te.compute((n,), lambda i: reducer(A[i, r], axis=r), name="R")


def columns(k: Any, n: int, reducer: Callable[..., Any] = te.sum) -> Case:
    A = placeholder("A", k, n)
    r = axis(k)
    return [A], te.compute((n,), lambda j: reducer(A[r, j], axis=r), name="R")


def total(*shape: int) -> Case:
    A = placeholder("A", *shape)
    r = [axis(extent, f"k{number}") for number, extent in enumerate(shape)]
    return [A], te.compute((), lambda: te.sum(A(*r), axis=r), name="R")


def channel_sum(n: int, c: int, h: int) -> Case:
    A = placeholder("A", n, c, h, h)
    b, y, x = axis(n, "n"), axis(h, "h"), axis(h, "w")
    return [A], te.compute((c,), lambda i: te.sum(A[b, i, y, x], axis=[b, y, x]), name="R")


def row_epilogue(n: int, k: int) -> Case:
    [A], R = rows(n, k)
    S = placeholder("S", n)
    return [A, S], te.compute((n,), lambda i: R[i] * S[i] + R[i], name="E")


def pool(n: int, h: int, window: int, stride: int) -> Case:
    X = placeholder("X", n, 3, h, h)
    edge = [window // 2] * 4
    return [X], topi.nn.pool2d(X, [window] * 2, [stride] * 2, [1, 1], edge, "max")


def softmax(n: int, k: int) -> Case:
    A = placeholder("A", n, k)
    return [A], topi.nn.softmax(A)


def transposed(*shape: int) -> Case:
    A = placeholder("A", *shape)
    return [A], topi.transpose(A)


def shifted(n: int, m: int) -> Case:
    A = placeholder("A", n, m)
    return [A], te.compute(
        (n, m), lambda i, j: te.if_then_else(j > 0, A[i, j - 1], 0.0) - A[i, j], name="S"
    )


def reshaped(n: int, m: int) -> Case:
    A = placeholder("A", n, m)
    return [A], te.compute((m, n), lambda i, j: A[(i * n + j) // m, (i * n + j) % m], name="S")


def broadcast(n: int, m: int) -> Case:
    A, B, C = placeholder("A", n), placeholder("B", m), placeholder("C")
    return [A, B, C], te.compute((n, m), lambda i, j: A[i] * B[j] + C(), name="S")


def positions(n: int, m: int) -> Case:
    A = placeholder("A", n, m)
    return [A], te.compute((n, m), lambda i, j: A[i, j] + (i * m + j).astype("float32"), name="S")
