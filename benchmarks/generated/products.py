"""Families of products and pairs: einsums, distances, attention, triangular and banded matrices."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from tvm import te, topi

from ..suite.case import Case, Input
from . import draws

#: products of two to four operands; each operand's axes are permuted by the draw
EINSUMS = {
    "ik,kj->ij": (64, 400),
    "bik,bkj->bij": (12, 90),
    "ijk,jl,kl->il": (20, 110),
    "ab,bc,cd->ad": (40, 300),
    "bik,kl,bjl->bij": (12, 64),
    "abc,cd,bd->ad": (20, 100),
    "abcd,cdef->abef": (5, 15),
    "abc,ai,bj,ck->ijk": (8, 30),
    "ij,jk,ik->i": (50, 300),
    "bhid,bhjd->bhij": (5, 40),
}


def draw_einsum(rng: Random) -> dict[str, Any]:
    spec = rng.choice(list(EINSUMS))
    left, right = spec.split("->")
    operands = ["".join(rng.sample(word, len(word))) for word in left.split(",")]
    sizes = {letter: draws.size(rng, *EINSUMS[spec]) for letter in sorted(set(left) - {","})}
    return {"spec": ",".join(operands) + "->" + right, "sizes": sizes, "kind": draws.dtype(rng)}


def einsum(spec: str, sizes: dict[str, int], kind: str) -> Case:
    """A product of tensors summed over the letters that the result lacks."""
    left, right = spec.split("->")
    words = left.split(",")
    summed = sorted(set(left) - {","} - set(right))

    def ours(*operands: Any) -> Any:
        over = {letter: te.reduce_axis((0, sizes[letter]), letter) for letter in summed}

        def element(*place: Any) -> Any:
            at = {**dict(zip(right, place, strict=True)), **over}
            value = operands[0](*(at[letter] for letter in words[0]))
            for operand, word in zip(operands[1:], words[1:], strict=True):
                value = value * operand(*(at[letter] for letter in word))
            return te.sum(value, axis=list(over.values()))

        return te.compute(tuple(sizes[letter] for letter in right), element, name="product")

    inputs = {
        f"x{n}": Input(tuple(sizes[letter] for letter in word), kind=kind)
        for n, word in enumerate(words)
    }
    return draws.pullback(
        inputs,
        tuple(sizes[letter] for letter in right),
        ours,
        lambda torch, *operands: torch.einsum(spec, *operands),
        lambda jax, *operands: jax.numpy.einsum(spec, *operands, optimize="optimal"),
        kind,
    )


def draw_distance(rng: Random) -> dict[str, Any]:
    return {
        "n": draws.size(rng, 30, 500),
        "m": draws.size(rng, 30, 300),
        "d": draws.size(rng, 3, 64),
        "form": rng.choice(["rbf", "l1", "l2", "max-plus", "logsumexp"]),
        "summed": rng.random() < 0.5,
        "transposed": rng.random() < 0.3,
        "kind": draws.dtype(rng),
    }


def distance(
    n: int, m: int, d: int, form: str, summed: bool, transposed: bool, kind: str
) -> Case:
    """A function of all pairs of rows, or its product with values; columns where transposed."""
    scale = 1.0 / d

    def ours(x: Any, y: Any, *values: Any) -> Any:
        def pair(i: Any, j: Any, k: Any) -> tuple[Any, Any]:
            return (x[i, k], y[k, j]) if transposed else (x[i, k], y[j, k])

        def over(reduce: Any, body: Any, name: str) -> Any:
            k = te.reduce_axis((0, d), "k")
            return te.compute(
                (n, m), lambda i, j: reduce(body(i, j, *pair(i, j, k)), axis=k), name=name
            )

        if form in ("rbf", "l2"):
            total = over(te.sum, lambda i, j, a, b: (a - b) * (a - b), "squares")
            matrix = topi.exp(total * -scale) if form == "rbf" else topi.sqrt(total + 1e-3)
        elif form == "l1":
            matrix = over(te.sum, lambda i, j, a, b: te.abs(a - b), "l1")
        else:
            top = over(te.max, lambda i, j, a, b: a + b, "top")
            matrix = top
            if form == "logsumexp":
                total = over(te.sum, lambda i, j, a, b: te.exp(a + b - top[i, j]), "total")
                matrix = topi.log(total) + top
        return topi.matmul(matrix, values[0]) if summed else matrix

    def in_torch(torch: Any, x: Any, y: Any, *values: Any) -> Any:
        y = y.T if transposed else y
        if form in ("rbf", "l2"):
            squares = (x * x).sum(1)[:, None] + (y * y).sum(1) - 2.0 * (x @ y.T)
            matrix = torch.exp(squares * -scale) if form == "rbf" else torch.sqrt(squares + 1e-3)
        elif form == "l1":
            matrix = torch.cdist(x, y, p=1.0)
        elif form == "max-plus":
            matrix = (x[:, None] + y).amax(2)
        else:  # the product of exponentials, as the sums of their logarithms are small
            tops, others = x.detach().amax(1, True), y.detach().amax(1, True)
            matrix = torch.log(torch.exp(x - tops) @ torch.exp(y - others).T) + tops + others.T
        return matrix @ values[0] if summed else matrix

    def in_jax(jax: Any, x: Any, y: Any, *values: Any) -> Any:
        numpy = jax.numpy
        y = y.T if transposed else y
        if form in ("rbf", "l2"):
            squares = (x * x).sum(1)[:, None] + (y * y).sum(1) - 2.0 * (x @ y.T)
            matrix = numpy.exp(squares * -scale) if form == "rbf" else numpy.sqrt(squares + 1e-3)
        elif form == "l1":
            matrix = numpy.abs(x[:, None] - y).sum(2)
        elif form == "max-plus":
            matrix = (x[:, None] + y).max(2)
        else:
            tops = jax.lax.stop_gradient(x.max(1, keepdims=True))
            others = jax.lax.stop_gradient(y.max(1, keepdims=True))
            matrix = numpy.log(numpy.exp(x - tops) @ numpy.exp(y - others).T) + tops + others.T
        return matrix @ values[0] if summed else matrix

    inputs = {
        "x": Input((n, d), kind=kind),
        "y": Input((d, m) if transposed else (m, d), kind=kind),
    }
    if summed:
        inputs["v"] = Input((m, 7), kind=kind)
    return draws.pullback(inputs, (n, 7) if summed else (n, m), ours, in_torch, in_jax, kind)


def draw_attention(rng: Random) -> dict[str, Any]:
    return {
        "heads": draws.size(rng, 1, 12),
        "n": draws.size(rng, 24, 200),
        "d": draws.size(rng, 8, 64),
        "score": rng.choice(["softmax", "softmax", "sigmoid", "square"]),
        "mask": rng.choice(["none", "causal", "local"]),
        "width": rng.randint(4, 32),
        "heads_first": rng.random() < 0.6,
    }


def attention(
    heads: int, n: int, d: int, score: str, mask: str, width: int, heads_first: bool
) -> Case:
    """Attention with three scores and three masks, heads before or after positions."""
    scale, low = 1.0 / math.sqrt(d), -1e4
    shape = (heads, n, d) if heads_first else (n, heads, d)

    def ours(q: Any, k: Any, v: Any) -> Any:
        def at(x: Any, h: Any, i: Any, c: Any) -> Any:
            return x[h, i, c] if heads_first else x[i, h, c]

        c, j = te.reduce_axis((0, d), "c"), te.reduce_axis((0, n), "j")
        scores = te.compute(
            (heads, n, n),
            lambda h, i, j: te.sum(at(q, h, i, c) * at(k, h, j, c), axis=c),
            name="scores",
        )

        def kept(i: Any, j: Any) -> Any:
            return j <= i if mask == "causal" else te.all(j <= i, i - j < width)

        def masked(value: Any, other: float) -> Any:
            if mask == "none":
                return te.compute((heads, n, n), lambda *place: value(*place), name="kept")
            return te.compute(
                (heads, n, n),
                lambda h, i, j: te.if_then_else(kept(i, j), value(h, i, j), other),
                name="kept",
            )

        if score == "softmax":
            weights = topi.nn.softmax(masked(lambda h, i, j: scores[h, i, j] * scale, low))
        elif score == "sigmoid":
            weights = masked(lambda h, i, j: te.sigmoid(scores[h, i, j] * scale), 0.0)
        else:
            weights = masked(lambda h, i, j: scores[h, i, j] * scores[h, i, j] * scale / n, 0.0)

        def result(*place: Any) -> Any:
            h, i, e = place if heads_first else (place[1], place[0], place[2])
            return te.sum(weights[h, i, j] * at(v, h, j, e), axis=j)

        return te.compute(shape, result, name="attended")

    def chosen(numbers: Any) -> Any:
        i, j = numbers(n)[:, None], numbers(n)[None]
        return j <= i if mask == "causal" else (j <= i) & (i - j < width)

    def in_torch(torch: Any, q: Any, k: Any, v: Any) -> Any:
        if not heads_first:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        if score == "softmax":
            options: dict[str, Any] = {"is_causal": mask == "causal"}
            if mask == "local":
                options["attn_mask"] = chosen(torch.arange)
            attend = torch.nn.functional.scaled_dot_product_attention
            y = attend(q[None], k[None], v[None], **options)[0]
        else:
            scores = q @ k.transpose(1, 2)
            weights = torch.sigmoid(scores * scale) if score == "sigmoid" else scores**2 * scale / n
            if mask != "none":
                weights = weights.masked_fill(~chosen(torch.arange), 0.0)
            y = weights @ v
        return y if heads_first else y.transpose(0, 1)

    def in_jax(jax: Any, q: Any, k: Any, v: Any) -> Any:
        words = ("ihc,jhc->hij", "hij,jhe->ihe")
        if heads_first:
            words = ("hic,hjc->hij", "hij,hje->hie")
        scores = jax.numpy.einsum(words[0], q, k)
        if score == "softmax":
            scores = scores * scale
            if mask != "none":
                scores = jax.numpy.where(chosen(jax.numpy.arange), scores, low)
            return jax.numpy.einsum(words[1], jax.nn.softmax(scores), v)
        weights = jax.nn.sigmoid(scores * scale) if score == "sigmoid" else scores**2 * scale / n
        if mask != "none":
            weights = jax.numpy.where(chosen(jax.numpy.arange), weights, 0.0)
        return jax.numpy.einsum(words[1], weights, v)

    return draws.pullback({name: Input(shape) for name in "qkv"}, shape, ours, in_torch, in_jax)


def draw_triangle(rng: Random) -> dict[str, Any]:
    return {
        "n": draws.size(rng, 40, 600),
        "columns": draws.size(rng, 3, 96),
        "width": rng.choice([None, rng.randint(2, 40)]),
        "left": rng.random() < 0.5,
    }


def triangle(n: int, columns: int, width: int | None, left: bool) -> Case:
    """A product with the lower triangle of a matrix, or a band of it, from the left or right."""
    shape = (n, columns) if left else (columns, n)

    def ours(a: Any, x: Any) -> Any:
        k = te.reduce_axis((0, n), "k")

        def element(i: Any, j: Any) -> Any:
            row, column = (i, k) if left else (k, j)
            kept = row >= column if width is None else te.all(row >= column, row - column < width)
            product = a[row, column] * (x[k, j] if left else x[i, k])
            return te.sum(te.if_then_else(kept, product, 0.0), axis=k)

        return te.compute(shape, element, name="product")

    def masked(module: Any, a: Any) -> Any:
        return module.tril(a) if width is None else module.tril(module.triu(a, -width + 1))

    def product(module: Any, a: Any, x: Any) -> Any:
        return masked(module, a) @ x if left else x @ masked(module, a)

    return draws.pullback(
        {"a": Input((n, n)), "x": Input(shape)},
        shape,
        ours,
        product,
        lambda jax, a, x: product(jax.numpy, a, x),
    )


FAMILIES = {
    "einsum": (draw_einsum, einsum),
    "distance": (draw_distance, distance),
    "attention": (draw_attention, attention),
    "triangle": (draw_triangle, triangle),
}
