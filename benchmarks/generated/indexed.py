"""Families of indices: embeddings, messages between neighbours, rolled windows, resampling."""

from __future__ import annotations

from random import Random
from typing import Any

from tvm import te, topi

from ..suite.case import Case, Input
from . import draws


def draw_embedding(rng: Random) -> dict[str, Any]:
    return {
        "rows": draws.size(rng, 50, 4096),
        "width": draws.size(rng, 5, 128),
        "bags": draws.size(rng, 16, 400),
        "items": draws.size(rng, 3, 40),
        "reducer": rng.choice(["sum", "weighted", "max"]),
    }


def embedding(rows: int, width: int, bags: int, items: int, reducer: str) -> Case:
    """Rows of a table at indices, reduced for each bag."""

    def ours(table: Any, index: Any, *weights: Any) -> Any:
        k = te.reduce_axis((0, items), "k")
        reduce = te.max if reducer == "max" else te.sum

        def element(b: Any, c: Any) -> Any:
            value = table[index[b, k], c]
            return reduce(value * weights[0][b, k] if weights else value, axis=k)

        return te.compute((bags, width), element, name="bags")

    def in_torch(torch: Any, table: Any, index: Any, *weights: Any) -> Any:
        bag = torch.nn.functional.embedding_bag
        if reducer == "max":
            return bag(index, table, mode="max")
        return bag(index, table, mode="sum", per_sample_weights=weights[0] if weights else None)

    def in_jax(jax: Any, table: Any, index: Any, *weights: Any) -> Any:
        taken = table[index]
        if reducer == "max":
            return taken.max(1)
        return (taken * weights[0][..., None]).sum(1) if weights else taken.sum(1)

    inputs = {"table": Input((rows, width)), "index": Input((bags, items), below=rows)}
    if reducer == "weighted":
        inputs["w"] = Input((bags, items))
    return draws.pullback(inputs, (bags, width), ours, in_torch, in_jax)


def draw_messages(rng: Random) -> dict[str, Any]:
    return {
        "nodes": draws.size(rng, 60, 1500),
        "neighbours": draws.size(rng, 3, 16),
        "width": draws.size(rng, 3, 48),
        "act": rng.choice(["relu", "tanh", "difference"]),
        "reducer": rng.choice(["sum", "sum", "max"]),
    }


def messages(nodes: int, neighbours: int, width: int, act: str, reducer: str) -> Case:
    """Messages from the neighbours of each node, reduced: the gradient is a scatter."""

    def message(relu: Any, tanh: Any, mine: Any, theirs: Any, e: Any) -> Any:
        if act == "difference":
            return (theirs - mine) * (theirs - mine) * e
        return relu(theirs * e + mine) if act == "relu" else tanh(theirs * e + mine)

    def ours(h: Any, index: Any, edge: Any) -> Any:
        k = te.reduce_axis((0, neighbours), "k")
        reduce = te.max if reducer == "max" else te.sum

        def element(n: Any, c: Any) -> Any:
            relu = lambda x: te.max(x, 0.0)  # noqa: E731
            return reduce(
                message(relu, te.tanh, h[n, c], h[index[n, k], c], edge[n, k]), axis=k
            )

        return te.compute((nodes, width), element, name="messages")

    def in_torch(torch: Any, h: Any, index: Any, edge: Any) -> Any:
        value = message(torch.relu, torch.tanh, h[:, None], h[index], edge[..., None])
        return value.amax(1) if reducer == "max" else value.sum(1)

    def in_jax(jax: Any, h: Any, index: Any, edge: Any) -> Any:
        value = message(jax.nn.relu, jax.numpy.tanh, h[:, None], h[index], edge[..., None])
        return value.max(1) if reducer == "max" else value.sum(1)

    inputs = {
        "h": Input((nodes, width)),
        "index": Input((nodes, neighbours), below=nodes),
        "edge": Input((nodes, neighbours)),
    }
    return draws.pullback(inputs, (nodes, width), ours, in_torch, in_jax)


def draw_rolled(rng: Random) -> dict[str, Any]:
    window = rng.choice([3, 4, 5, 7, 8])
    return {
        "batch": draws.size(rng, 1, 8),
        "blocks": rng.randint(3, 9),
        "window": window,
        "channels": draws.size(rng, 3, 96),
        "shift": rng.randint(0, window - 1),
        "scaled": rng.random() < 0.5,
    }


def rolled(batch: int, blocks: int, window: int, channels: int, shift: int, scaled: bool) -> Case:
    """An image rolled and cut into square windows, times weights of places in a window."""
    side = blocks * window
    out = (batch * blocks * blocks, window * window, channels)

    def ours(x: Any, w: Any) -> Any:
        def element(b: Any, p: Any, c: Any) -> Any:
            row = (b // blocks % blocks * window + p // window + shift) % side
            column = (b % blocks * window + p % window + shift) % side
            value = x[b // (blocks * blocks), row, column, c]
            return value * w[p, c] if scaled else te.tanh(value + w[p, c])

        return te.compute(out, element, name="windows")

    def cut(x: Any, permuted: str) -> Any:
        x = x.reshape(batch, blocks, window, blocks, window, channels)
        return getattr(x, permuted)(0, 1, 3, 2, 4, 5).reshape(out)

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        value = cut(torch.roll(x, (-shift, -shift), (1, 2)), "permute")
        return value * w if scaled else torch.tanh(value + w)

    def in_jax(jax: Any, x: Any, w: Any) -> Any:
        value = cut(jax.numpy.roll(x, (-shift, -shift), (1, 2)), "transpose")
        return value * w if scaled else jax.numpy.tanh(value + w)

    inputs = {"x": Input((batch, side, side, channels)), "w": Input((window * window, channels))}
    return draws.pullback(inputs, out, ours, in_torch, in_jax)


def draw_resample(rng: Random) -> dict[str, Any]:
    return {
        "batch": draws.size(rng, 1, 16),
        "channels": draws.size(rng, 3, 32),
        "height": draws.size(rng, 9, 48),
        "width": draws.size(rng, 9, 48),
        "factor": rng.choice([2, 3, 4]),
        "form": rng.choice(["nearest", "linear", "shuffle"]),
    }


def resample(
    batch: int, channels: int, height: int, width: int, factor: int, form: str
) -> Case:
    """A larger image: repeated pixels, linear between corners, or channels shuffled into pixels."""
    shuffled = form == "shuffle"
    shape = (batch, channels * factor**2 if shuffled else channels, height, width)
    out = (batch, channels, height * factor, width * factor)

    def ours(x: Any) -> Any:
        if form == "linear":
            return topi.image.resize2d(
                x, [0.0] * 4, out[2:], "NCHW", "linear", "align_corners", "round"
            )

        def element(b: Any, c: Any, i: Any, j: Any) -> Any:
            if shuffled:
                c = (c * factor + i % factor) * factor + j % factor
            return x[b, c, i // factor, j // factor]

        return te.compute(out, element, name="larger")

    def in_torch(torch: Any, x: Any) -> Any:
        functional = torch.nn.functional
        if shuffled:
            return functional.pixel_shuffle(x, factor)
        if form == "nearest":
            return functional.interpolate(x, scale_factor=factor)
        return functional.interpolate(x, out[2:], mode="bilinear", align_corners=True)

    def in_jax(jax: Any, x: Any) -> Any:
        numpy = jax.numpy
        if shuffled:
            x = x.reshape(batch, channels, factor, factor, height, width)
            return x.transpose(0, 1, 4, 2, 5, 3).reshape(out)
        if form == "nearest":
            return numpy.repeat(numpy.repeat(x, factor, 2), factor, 3)
        rows = _corners(numpy, height, factor, x.dtype)
        return numpy.einsum("Hh,bchw,Ww->bcHW", rows, x, _corners(numpy, width, factor, x.dtype))

    return draws.pullback({"x": Input(shape)}, out, ours, in_torch, in_jax)


def _corners(numpy: Any, size: int, factor: int, kind: Any) -> Any:
    """The weights of linear interpolation between aligned corners, as a matrix."""
    place = numpy.arange(size * factor) * ((size - 1) / (size * factor - 1))
    return numpy.maximum(0.0, 1.0 - abs(place[:, None] - numpy.arange(size))).astype(kind)


FAMILIES = {
    "embedding": (draw_embedding, embedding),
    "messages": (draw_messages, messages),
    "rolled": (draw_rolled, rolled),
    "resample": (draw_resample, resample),
}
