"""Families over axes of one tensor: normalisations, softmaxes with masks, reductions, scans."""

from __future__ import annotations

from random import Random
from typing import Any

from tvm import te, topi

from ..suite.case import Case, Input
from . import draws


def draw_norm(rng: Random) -> dict[str, Any]:
    rank = rng.randint(2, 4)
    return {
        "shape": draws.shape(rng, rank, 2**13, 2**20),
        "axes": draws.axes(rng, rank),
        "centred": rng.random() < 0.6,
        "kind": draws.dtype(rng),
    }


def norm(shape: tuple[int, ...], axes: tuple[int, ...], centred: bool, kind: str) -> Case:
    """x less its mean, over the root of its mean square, times weights of the reduced axes."""
    weights = tuple(shape[axis] if axis in axes else 1 for axis in range(len(shape)))
    count = 1
    for axis in axes:
        count *= shape[axis]

    def ours(x: Any, w: Any) -> Any:
        if centred:
            x = x - topi.sum(x, axis=axes, keepdims=True) / float(count)
        square = topi.sum(x * x, axis=axes, keepdims=True) / float(count)
        return x * topi.rsqrt(square + 1e-5) * w

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        functional = torch.nn.functional
        if axes == tuple(range(len(shape) - len(axes), len(shape))):  # the trailing ones
            extents = shape[-len(axes) :]
            one = functional.layer_norm if centred else functional.rms_norm
            return one(x, extents, w.reshape(extents), eps=1e-5)
        if centred:
            x = x - x.mean(axes, keepdim=True)
        return x * torch.rsqrt((x * x).mean(axes, keepdim=True) + 1e-5) * w

    def in_jax(jax: Any, x: Any, w: Any) -> Any:
        if centred:
            x = x - x.mean(axes, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(axes, keepdims=True) + 1e-5) * w

    inputs = {"x": Input(shape, kind=kind), "w": Input(weights, kind=kind)}
    return draws.pullback(inputs, shape, ours, in_torch, in_jax, kind)


def draw_softmax(rng: Random) -> dict[str, Any]:
    return {
        "batch": draws.size(rng, 3, 24),
        "rows": draws.size(rng, 16, 200),
        "columns": draws.size(rng, 16, 400),
        "mask": rng.choice(["none", "triangle", "band"]),
        "width": rng.randint(3, 40),
        "log": rng.random() < 0.4,
    }


def softmax(batch: int, rows: int, columns: int, mask: str, width: int, log: bool) -> Case:
    """A softmax or its logarithm over the last axis, with a mask that leaves column 0."""
    low = -1e4

    def kept(i: Any, j: Any) -> Any:
        return j <= i if mask == "triangle" else te.any(j == 0, te.all(j <= i, i - j < width))

    def ours(x: Any, t: Any) -> Any:
        scores = te.compute(
            x.shape,
            lambda b, i, j: x[b, i, j] * t[i]
            if mask == "none"
            else te.if_then_else(kept(i, j), x[b, i, j] * t[i], low),
            name="scores",
        )
        return topi.nn.log_softmax(scores) if log else topi.nn.softmax(scores)

    def chosen(numbers: Any) -> Any:
        i, j = numbers(rows)[:, None], numbers(columns)[None]
        return j <= i if mask == "triangle" else (j == 0) | ((j <= i) & (i - j < width))

    def in_torch(torch: Any, x: Any, t: Any) -> Any:
        scores = x * t[:, None]
        if mask != "none":
            scores = scores.masked_fill(~chosen(torch.arange), low)
        return scores.log_softmax(-1) if log else scores.softmax(-1)

    def in_jax(jax: Any, x: Any, t: Any) -> Any:
        scores = x * t[:, None]
        if mask != "none":
            scores = jax.numpy.where(chosen(jax.numpy.arange), scores, low)
        return jax.nn.log_softmax(scores) if log else jax.nn.softmax(scores)

    inputs = {"x": Input((batch, rows, columns)), "t": Input((rows,), 0.3, 1.0)}
    return draws.pullback(inputs, (batch, rows, columns), ours, in_torch, in_jax)


def draw_reduction(rng: Random) -> dict[str, Any]:
    rank = rng.randint(2, 4)
    reducer = rng.choice(["sum", "max", "logsumexp", "prod", "argmax"])
    return {
        "shape": draws.shape(rng, rank, 2**13, 2**18 if reducer == "prod" else 2**20),
        "axis": rng.randrange(rank),
        "reducer": reducer,
        "body": rng.choice(["square", "sine", "tanh"]),
        "kind": draws.dtype(rng),
    }


def reduction(shape: tuple[int, ...], axis: int, reducer: str, body: str, kind: str) -> Case:
    """A reduction over one axis of a function of x * w, w along that axis; of argmax, w there."""
    out = tuple(extent for place, extent in enumerate(shape) if place != axis)
    along = tuple(extent if place == axis else 1 for place, extent in enumerate(shape))

    def applied(module: Any, x: Any) -> Any:
        if body == "square":
            return x * x
        return module.tanh(x) if body == "tanh" else module.sin(x)

    def scaled(module: Any, x: Any, w: Any) -> Any:
        value = applied(module, x * w)
        return value * 0.1 + 1.0 if reducer == "prod" else value

    def ours(x: Any, w: Any) -> Any:
        value = scaled(topi, x, w)
        if reducer == "logsumexp":
            top = topi.max(value, axis=axis, keepdims=True)
            total = topi.sum(topi.exp(value - top), axis=axis)
            return topi.log(total) + topi.squeeze(top, axis)
        if reducer == "argmax":
            found = topi.argmax(value, axis=axis)

            def picked(*place: Any) -> Any:
                position = [0] * len(shape)
                position[axis] = found(*place)
                return w(*position) * x(*place[:axis], found(*place), *place[axis:])

            return te.compute(out, picked, name="picked")
        return getattr(topi, reducer)(value, axis=axis)

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        value = scaled(torch, x, w)
        if reducer == "argmax":
            found = value.detach().argmax(axis, keepdim=True)
            return (x.gather(axis, found) * w.flatten()[found]).squeeze(axis)
        name = "amax" if reducer == "max" else reducer
        return getattr(torch, name)(value, axis)

    def in_jax(jax: Any, x: Any, w: Any) -> Any:
        value = scaled(jax.numpy, x, w)
        if reducer == "argmax":
            found = jax.numpy.expand_dims(value.argmax(axis), axis)
            picked = jax.numpy.take_along_axis(x, found, axis) * w.ravel()[found]
            return picked.squeeze(axis)
        if reducer == "logsumexp":
            return jax.nn.logsumexp(value, axis)
        return getattr(jax.numpy, reducer)(value, axis)

    inputs = {"x": Input(shape, kind=kind), "w": Input(along, 0.3, 1.0, kind=kind)}
    return draws.pullback(inputs, out, ours, in_torch, in_jax, kind)


def draw_scan(rng: Random) -> dict[str, Any]:
    return {
        "rows": draws.size(rng, 3, 300),
        "length": draws.size(rng, 32, 1500),
        "last": rng.random() < 0.6,
        "exclusive": rng.random() < 0.4,
        "reverse": rng.random() < 0.4,
        "body": rng.choice(["plain", "product", "exp"]),
    }


def scan(rows: int, length: int, last: bool, exclusive: bool, reverse: bool, body: str) -> Case:
    """Sums of all that is before each element (or after it) along an axis."""
    shape = (rows, length) if last else (length, rows)

    def term(module: Any, x: Any, w: Any) -> Any:
        if body == "plain":
            return x
        return x * w if body == "product" else module.exp(x * 0.3) * w

    def ours(x: Any, w: Any) -> Any:
        k = te.reduce_axis((0, length), "k")

        def within(t: Any) -> Any:
            first, second = (t, k) if reverse else (k, t)
            return first < second if exclusive else first <= second

        def total(i: Any, j: Any) -> Any:
            place = (i, k) if last else (k, j)
            value = term(te, x[place], w[place])
            return te.sum(te.if_then_else(within(j if last else i), value, 0.0), axis=k)

        return te.compute(shape, total, name="scan")

    axis = 1 if last else 0

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        value = term(torch, x, w)
        total = value.flip(axis).cumsum(axis).flip(axis) if reverse else value.cumsum(axis)
        return total - value if exclusive else total

    def in_jax(jax: Any, x: Any, w: Any) -> Any:
        value = term(jax.numpy, x, w)
        total = jax.lax.cumsum(value, axis, reverse=reverse)
        return total - value if exclusive else total

    inputs = {"x": Input(shape), **({} if body == "plain" else {"w": Input(shape)})}
    if body == "plain":
        return draws.pullback(
            inputs,
            shape,
            lambda x: ours(x, x),
            lambda torch, x: in_torch(torch, x, x),
            lambda jax, x: in_jax(jax, x, x),
        )
    return draws.pullback(inputs, shape, ours, in_torch, in_jax)


FAMILIES = {
    "norm": (draw_norm, norm),
    "softmax": (draw_softmax, softmax),
    "reduction": (draw_reduction, reduction),
    "scan": (draw_scan, scan),
}
