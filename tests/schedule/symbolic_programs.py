"""Programs over symbolic sizes, each for one way in which these are scheduled as literal ones are.

`SYMBOLIC` maps a name to a function that makes a `Program`, and the rule that its kernels take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, topi

import tvm_autodiff as ad

from .cases import axis, placeholder
from .guarded_programs import Program, Sizes, symbols, zero

LINES: Sequence[Sizes] = [{"n": n} for n in (0, 1, 2, 7, 8, 9, 33)]
IMAGES: Sequence[Sizes] = [{"n": n, "m": m} for n, m in ((1, 1), (3, 8), (9, 17), (4, 0))]


def later_weights() -> Program:
    """What is summed runs against what moves the reads: the copy lies from the end."""
    [n] = symbols("n")
    x, g, t = placeholder("x", 8, n), placeholder("g", 8, n), axis(n, "t")
    dw = te.compute(
        (8, 8, 3),
        lambda o, c, k: te.sum(
            te.if_then_else(t >= 4 * k, g[o, t] * x[c, t - 4 * k], zero()), axis=t
        ),
        name="dw",
    )
    return Program([x, g], [dw], LINES)


def nearest(size: Callable[[Any], Any]) -> Program:
    """Residue classes of a loop that ends in the middle of a turn."""
    n, m = symbols("n", "m")
    x, b = placeholder("x", n, m), placeholder("b", size(m))
    y = te.compute((2 * n, size(m)), lambda i, j: x[i // 2, j // 2] + b[j], name="y")
    return Program([x, b], [y], IMAGES)


def between(along: str) -> Program:
    """Linear interpolation of an image to twice its size, along one axis or both, and back."""
    n, m = symbols("n", "m")
    x = placeholder("x", 2, n, m)
    half, quarter = (te.const(value, "float32") for value in (0.75, 0.25))

    def line(read: Callable[[Any], Any], i: Any, size: Any) -> Any:
        first = (i - 1) // 2
        here = te.if_then_else(i % 2 == 0, quarter, half)
        low, high = (te.max(te.min(first + step, size - 1), 0) for step in (0, 1))
        return read(low) * here + read(high) * (1 - here)

    def image(c: Any, i: Any, j: Any) -> Any:
        if along == "rows":
            return line(lambda row: x[c, row, j], i, n)
        return line(lambda row: line(lambda column: x[c, row, column], j, m), i, n)

    y = te.compute((2, 2 * n, m if along == "rows" else 2 * m), image, name="y")
    head = te.placeholder(y.shape, name="head")
    calls = [sizes for sizes in IMAGES if sizes["m"]]
    return Program([x, head], [y, *ad.differentiate(y, [x], head)], calls)


def first_places() -> Program:
    """A literal number of reads that are two places apart, of a line of any length."""
    [n] = symbols("n")
    x, g = placeholder("x", n), placeholder("g", 4)

    def value(i: Any) -> Any:
        return te.exp(te.tanh(te.if_then_else(2 * i < n, x[2 * i], zero())))

    y = te.compute((4,), value, name="y")
    return Program([x, g], list(ad.differentiate(y, [x], g)), LINES)


def shifted_rows() -> Program:
    """The gradient of rows that begin at a remainder: what it compares is copied over more places
    than it reads.
    """
    [n] = symbols("n")
    x, c, g, k = placeholder("x", 4, n + 2), placeholder("c", 5), placeholder("g", n), axis(n, "k")

    def term(i: Any) -> Any:
        return te.max(x[(i % 4 + k) % 4, i % 3 + k] + c[4], te.const(0.9, "float32"))

    y = te.compute((n,), lambda i: te.sum(term(i), axis=k), name="y")
    return Program([x, c, g], list(ad.differentiate(y, [x], g)), LINES)


def pair_sums(components: int) -> Program:
    """Few components of so many points as a call has."""
    [n] = symbols("n")
    a, b = placeholder("a", n, components), placeholder("b", n, components)
    g, j = placeholder("g", n, n), axis(n, "j")
    d = te.compute(
        (n, components), lambda i, c: te.sum(g[i, j] * (a[i, c] - b[j, c]), axis=j), name="d"
    )
    y = te.compute((n, components), lambda i, c: te.max(d[i, c], zero()) * 2.0, name="y")
    return Program([a, b, g], [y], LINES)


def energy() -> Program:
    """One sum of all pairs."""
    [n] = symbols("n")
    x, i, j = placeholder("x", n, 2), axis(n, "i"), axis(n, "j")
    e = te.compute(
        (1,), lambda o: te.sum(te.abs(x[i, 0] - x[j, 0]) * x[j, 1], axis=[i, j]), name="e"
    )
    return Program([x], [e], LINES)


def heads(form: str) -> Program:
    """Heads that lie side by side in one dimension, by quotients and by sums of places."""
    [n] = symbols("n")
    b = placeholder("b", n)
    v, p = placeholder("v", 6, n * 8), placeholder("p", n, 6, 6)
    if form == "quotients":
        j = axis(6, "j")
        s = te.compute(
            (6, n * 8), lambda i, c: te.sum(p[c // 8, i, j] * v[j, c], axis=j), name="s"
        )
        o = te.compute((6, n * 8), lambda i, c: s[i, c] + b[c // 8], name="o")
    else:
        d = axis(8, "d")
        s = te.compute(
            (n, 6, 6), lambda h, i, j: te.sum(v[i, h * 8 + d] * v[j, 8 * h + d], axis=d), name="s"
        )
        o = te.compute((n, 6, 6), lambda h, i, j: s[h, i, j] + b[h], name="o")
    return Program([b, v, p], [o], LINES)


def blocks(form: str) -> Program:
    """Sums over so many blocks of eight, of which each has a scale."""
    [n] = symbols("n")
    x, q, d = placeholder("x", 8, 8 * n), placeholder("q", 16, 8 * n), placeholder("d", 16, n)
    if form == "quotients":
        k = axis(8 * n, "k")
        body = lambda r, o: te.sum(x[r, k] * (q[o, k] * d[o, k // 8]), axis=k)  # noqa: E731
    else:
        b, k = axis(n, "b"), axis(8, "k")
        body = lambda r, o: te.sum(  # noqa: E731
            x[r, b * 8 + k] * (q[o, 8 * b + k] * d[o, b]), axis=[b, k]
        )
    return Program([x, q, d], [te.compute((8, 16), body, name="y")], LINES)


def places() -> Program:
    """Rows and columns of an image that are neighbours in all tensors."""
    n, m = symbols("n", "m")
    x, w, c = placeholder("x", 8, n, m), placeholder("w", 16, 8), axis(8, "c")
    y = te.compute(
        (16, n, m), lambda o, i, j: te.sum(x[c, i, j] * w[o, c], axis=c), name="y"
    )
    return Program([x, w], [y], IMAGES)


def convolution(padding: bool) -> Program:
    """Windows of an image whose rows and columns are both symbolic."""
    n, m = symbols("n", "m")
    x, w = placeholder("x", 4, n + 2, m + 2), placeholder("w", 8, 4, 3, 3)
    c, p, q = axis(4, "c"), axis(3, "p"), axis(3, "q")

    def body(o: Any, i: Any, j: Any) -> Any:
        if not padding:
            return te.sum(x[c, i + p, j + q] * w[o, c, p, q], axis=[c, p, q])
        inside = te.all(i + p >= 1, i + p < n + 1, j + q >= 1, j + q < m + 1)
        value = x[c, i + p - 1, j + q - 1] * w[o, c, p, q]
        return te.sum(te.if_then_else(inside, value, zero()), axis=[c, p, q])

    return Program([x, w], [te.compute((8, n, m), body, name="y")], IMAGES)


def toeplitz(columns: int) -> Program:
    """A read that what is summed moves against the results."""
    [n] = symbols("n")
    t, x, j = placeholder("t", 2 * n + 1), placeholder("x", n, columns), axis(n, "j")
    y = te.compute(
        (n, columns), lambda i, c: te.sum(t[i - j + n] * x[j, c], axis=j), name="y"
    )
    return Program([t, x], [y], LINES)


def clamped_steps() -> Program:
    """Rows of symbolic length that are fused, with borders."""
    n, m = symbols("n", "m")
    u, k = placeholder("u", 3, n, m), placeholder("k", 3)

    def at(v: Any, size: Any) -> Any:
        return te.max(te.min(v, size - 1), 0)

    y = te.compute(
        (3, n, m),
        lambda c, i, j: k[c] * (u[c, at(i - 1, n), j] + u[c, i, at(j + 1, m)] - u[c, i, j]),
        name="y",
    )
    head = te.placeholder(y.shape, name="head")
    calls = [{"n": n, "m": m} for n, m in ((1, 1), (3, 2), (5, 8), (4, 17), (2, 40))]
    return Program([u, k, head], [y, *ad.differentiate(y, [u, k], head)], calls)


def flattened() -> Program:
    """Rows one after the other in one dimension, and each place among them again."""
    n, m = symbols("n", "m")
    x, w = placeholder("x", n, m), placeholder("w", m)
    y = te.compute(
        (n * m,),
        lambda p: x[te.indexdiv(p, m), te.indexmod(p, m)] * w[te.indexmod(p, m)],
        name="y",
    )
    z = topi.reshape(x, (n * m,))
    return Program([x, w], [y, z], IMAGES)


def triangle() -> Program:
    """A condition on two symbolic axes around an expensive function."""
    [n] = symbols("n")
    s = placeholder("s", n, n)
    y = te.compute(
        (n, n), lambda i, j: te.if_then_else(j <= i, te.exp(s[i, j]), zero()), name="y"
    )
    return Program([s], [y], LINES)


def rotated() -> Program:
    """Angles of places and halves of components, which all heads share."""
    [n] = symbols("n")
    x, w = placeholder("x", n, 4, 16), placeholder("w", 8)

    def body(t: Any, h: Any, d: Any) -> Any:
        angle = te.cos(t.astype("float32") * w[d % 8])
        return x[t, h, d] * angle + x[t, h, te.if_then_else(d < 8, d + 8, d - 8)]

    y = te.compute((n, 4, 16), body, name="y")
    return Program([x, w], [y], LINES)


#: name → the program, and a rule that takes one of its kernels
SYMBOLIC: dict[str, tuple[Callable[[], Program], str]] = {
    "later-weights": (later_weights, "contraction"),
    "nearest": (lambda: nearest(lambda m: 2 * m), "windows"),
    "nearest-odd": (lambda: nearest(lambda m: 2 * m - te.min(m, 1)), "windows"),
    "nearest-one-less": (lambda: nearest(lambda m: m), "windows"),
    "between-rows": (lambda: between("rows"), "windows"),
    "between-both": (lambda: between("both"), "windows"),
    "first-places": (first_places, "windows"),
    "shifted-rows": (shifted_rows, "contraction"),
    "pair-sums": (lambda: pair_sums(3), "contraction"),
    "pair-sums-of-one": (lambda: pair_sums(1), "contraction"),
    "energy": (energy, "reduction"),
    "heads-by-quotients": (lambda: heads("quotients"), "contraction"),
    "heads-by-places": (lambda: heads("places"), "contraction"),
    "blocks-by-quotients": (lambda: blocks("quotients"), "rows"),
    "blocks-by-places": (lambda: blocks("places"), "rows"),
    "places": (places, "contraction"),
    "convolution": (lambda: convolution(False), "contraction"),
    "convolution-padded": (lambda: convolution(True), "contraction"),
    "rotated": (rotated, "fused_rows"),
    "triangle": (triangle, "windows"),
    "flattened": (flattened, "split_rows"),
    "clamped-steps": (clamped_steps, "fused_rows"),
    "toeplitz": (lambda: toeplitz(4), "contraction"),
    "toeplitz-of-one": (lambda: toeplitz(1), "contraction"),
}
