"""Families of windows: reductions over windows with borders, stencils, convolutions, resampling."""

from __future__ import annotations

import functools
import itertools
from random import Random
from typing import Any

from tvm import te, topi

from ..suite.case import Case, Input
from . import draws

#: what is read beyond a border: (in PyTorch, in JAX)
BORDERS = {
    "zero": ("constant", "constant"),
    "clamp": ("replicate", "edge"),
    "reflect": ("reflect", "reflect"),
    "wrap": ("circular", "wrap"),
}


def read(x: Any, lead: tuple[Any, ...], places: Any, sizes: Any, border: str) -> Any:
    """In te: an element of the last axes of `x`, whose places may be beyond the borders."""
    if border == "zero":
        inside = [te.all(place >= 0, place < n) for place, n in zip(places, sizes, strict=True)]
        return te.if_then_else(te.all(*inside), x(*lead, *places), te.const(0.0, x.dtype))
    moved = []
    for place, n in zip(places, sizes, strict=True):
        if border == "clamp":
            place = te.max(te.min(place, n - 1), 0)
        elif border == "wrap":
            place = (place + n) % n
        else:
            place = te.if_then_else(place < 0, -place, place)
            place = te.if_then_else(place >= n, 2 * (n - 1) - place, place)
        moved.append(place)
    return x(*lead, *moved)


def padded_torch(torch: Any, x: Any, before: int, border: str, rank: int) -> Any:
    """The last `rank` of three or more axes padded on both sides."""
    if not before:
        return x
    return torch.nn.functional.pad(x, (before,) * 2 * rank, mode=BORDERS[border][0])


def padded_jax(jax: Any, x: Any, before: int, border: str, rank: int) -> Any:
    """The same in JAX."""
    widths = ((0, 0),) * (x.ndim - rank) + ((before, before),) * rank
    return jax.numpy.pad(x, widths, BORDERS[border][1]) if before else x


def draw_window(rng: Random) -> dict[str, Any]:
    rank = rng.choice([1, 2, 2])
    window = rng.choice([2, 3, 3, 5, 7])
    dilation = rng.choice([1, 1, 2])
    reach = (window - 1) * dilation
    return {
        "lead": (draws.size(rng, 3, 32), draws.size(rng, 3, 64)),
        "size": draws.size(rng, 96, 600) if rank == 1 else draws.size(rng, 15, 56),
        "rank": rank,
        "window": window,
        "stride": rng.choice([1, 1, 2, 3]),
        "dilation": dilation,
        "padding": rng.choice([0, reach // 2]),
        "border": rng.choice(list(BORDERS)),
        "reducer": rng.choice(["sum", "max", "logsumexp", "weighted", "root"]),
    }


def window(
    lead: tuple[int, int],
    size: int,
    rank: int,
    window: int,
    stride: int,
    dilation: int,
    padding: int,
    border: str,
    reducer: str,
) -> Case:
    """A reduction over windows of the last axes; "weighted" has weights for each channel."""
    count = (size + 2 * padding - (window - 1) * dilation - 1) // stride + 1
    shape, out = (*lead, *(size,) * rank), (*lead, *(count,) * rank)

    def ours(x: Any, *weights: Any) -> Any:
        def over(reduce: Any, body: Any, name: str) -> Any:
            def total(b: Any, c: Any, *place: Any) -> Any:
                taps = [te.reduce_axis((0, window), f"r{n}") for n in range(rank)]
                positions = [
                    p * stride + tap * dilation - padding
                    for p, tap in zip(place, taps, strict=True)
                ]
                element = read(x, (b, c), positions, (size,) * rank, border)
                return reduce(body(element, (b, c, *place), taps), axis=taps)

            return te.compute(out, total, name=name)

        if reducer == "max":
            return over(te.max, lambda e, place, taps: e, "largest")
        if reducer == "weighted":
            return over(te.sum, lambda e, place, taps: e * weights[0](place[1], *taps), "filtered")
        if reducer == "root":
            squares = over(te.sum, lambda e, place, taps: e * e, "squares")
            return topi.sqrt(squares + 1e-3)
        if reducer == "logsumexp":
            top = over(te.max, lambda e, place, taps: e, "top")
            total = over(te.sum, lambda e, place, taps: te.exp(e - top(*place)), "total")
            return topi.log(total) + top
        return over(te.sum, lambda e, place, taps: e, "sums")

    def in_torch(torch: Any, x: Any, *weights: Any) -> Any:
        functional = torch.nn.functional
        x = padded_torch(torch, x, padding, border, rank)
        if reducer == "weighted":
            convolve = functional.conv1d if rank == 1 else functional.conv2d
            return convolve(
                x, weights[0][:, None], stride=stride, dilation=dilation, groups=lead[1]
            )
        if reducer == "max":
            pool = functional.max_pool1d if rank == 1 else functional.max_pool2d
            return pool(x, window, stride, 0, dilation)
        if reducer in ("sum", "root"):
            x = x * x if reducer == "root" else x
            if dilation == 1:
                pool = functional.avg_pool1d if rank == 1 else functional.avg_pool2d
                total = pool(x, window, stride) * float(window**rank)
            else:
                total = functools.reduce(lambda a, b: a + b, slices(x))
            return torch.sqrt(total + 1e-3) if reducer == "root" else total
        return torch.logsumexp(torch.stack(slices(x)), 0)

    def slices(x: Any) -> list[Any]:
        last = (count - 1) * stride + 1
        taps = itertools.product(*(range(0, window * dilation, dilation) for _ in range(rank)))
        return [x[(..., *(slice(t, t + last, stride) for t in tap))] for tap in taps]

    def in_jax(jax: Any, x: Any, *weights: Any) -> Any:
        # slices: several times as fast on a CPU as reduce_window or a grouped convolution
        parts = slices(padded_jax(jax, x, padding, border, rank))
        if reducer == "max":
            return functools.reduce(jax.numpy.maximum, parts)
        if reducer == "weighted":
            taps = weights[0].reshape(lead[1], -1).T[(..., *(None,) * rank)]
            return sum(part * tap for part, tap in zip(parts, taps, strict=True))
        if reducer == "root":
            return jax.numpy.sqrt(sum(part * part for part in parts) + 1e-3)
        if reducer == "logsumexp":
            top = jax.lax.stop_gradient(functools.reduce(jax.numpy.maximum, parts))
            return jax.numpy.log(sum(jax.numpy.exp(part - top) for part in parts)) + top
        return sum(parts)

    inputs = {"x": Input(shape)}
    if reducer == "weighted":
        inputs["w"] = Input((lead[1], *(window,) * rank), 0.3)
    return draws.pullback(inputs, out, ours, in_torch, in_jax)


def draw_stencil(rng: Random) -> dict[str, Any]:
    rank = rng.randint(1, 3)
    side = {1: (200, 4096), 2: (40, 300), 3: (12, 40)}[rank]
    return {
        "shape": tuple(draws.size(rng, *side) for _ in range(rank)),
        "batch": draws.size(rng, 1, {1: 32, 2: 4, 3: 3}[rank]),
        "steps": rng.randint(1, 4),
        "border": rng.choice(["zero", "clamp", "wrap"]),
        "body": rng.choice(["linear", "reaction", "tanh"]),
        "kind": draws.dtype(rng, narrow=True),
    }


def stencil(
    shape: tuple[int, ...], batch: int, steps: int, border: str, body: str, kind: str
) -> Case:
    """Steps of u + c * (the sum of neighbours - 2 rank u), with a nonlinear term; c is a field."""
    rank = len(shape)
    full = (batch, *shape)

    def step(module: Any, u: Any, around: Any, c: Any) -> Any:
        def number(value: float) -> Any:  # te takes a plain number for a float32
            return te.const(value, kind) if module is te else value

        new = u + c * (around - u * number(2.0 * rank))
        if body == "reaction":
            return new + number(0.1) * u * (number(1.0) - u * u)
        return module.tanh(new) if body == "tanh" else new

    def ours(u: Any, c: Any) -> Any:
        def stepped(u: Any, b: Any, *place: Any) -> Any:
            total = []
            for axis, by in itertools.product(range(rank), (-1, 1)):
                there = list(place)
                there[axis] = there[axis] + by
                total.append(read(u, (b,), there, shape, border))
            around = functools.reduce(lambda a, b: a + b, total)
            return step(te, u(b, *place), around, c(*place))

        def after(u: Any) -> Any:
            return te.compute(full, lambda *place: stepped(u, *place), name="step")

        for _ in range(steps):
            u = after(u)
        return u

    def neighbours(module: Any, u: Any, pad: Any) -> Any:
        if border == "wrap":
            axis_name = "dims" if module.__name__ == "torch" else "axis"
            return sum(
                module.roll(u, by, **{axis_name: axis + 1})
                for axis, by in itertools.product(range(rank), (-1, 1))
            )
        wide = pad(u)
        middle = [slice(None), *(slice(1, -1),) * rank]
        total = 0.0
        for axis, part in itertools.product(range(rank), (slice(0, -2), slice(2, None))):
            place = list(middle)
            place[axis + 1] = part
            total = total + wide[tuple(place)]
        return total

    def in_torch(torch: Any, u: Any, c: Any) -> Any:
        def pad(u: Any) -> Any:
            return padded_torch(torch, u[:, None], 1, border, rank)[:, 0]

        for _ in range(steps):
            u = step(torch, u, neighbours(torch, u, pad), c)
        return u

    def in_jax(jax: Any, u: Any, c: Any) -> Any:
        for _ in range(steps):
            around = neighbours(jax.numpy, u, lambda u: padded_jax(jax, u, 1, border, rank))
            u = step(jax.numpy, u, around, c)
        return u

    inputs = {"u": Input(full, kind=kind), "c": Input(shape, 0.02, 0.1, kind=kind)}
    return draws.pullback(inputs, full, ours, in_torch, in_jax, kind)


def draw_convolution(rng: Random) -> dict[str, Any]:
    kernel = rng.choice([1, 3, 3, 5])
    dilation = rng.choice([1, 1, 2])
    return {
        "batch": draws.size(rng, 1, 6),
        "channels": draws.size(rng, 3, 48),
        "filters": draws.size(rng, 5, 64),
        "size": draws.size(rng, 12, 40),
        "kernel": kernel,
        "stride": rng.choice([1, 1, 2]),
        "dilation": dilation,
        "padding": rng.choice([0, (kernel - 1) * dilation // 2]),
        "last": rng.random() < 0.4,
    }


def convolution(
    batch: int,
    channels: int,
    filters: int,
    size: int,
    kernel: int,
    stride: int,
    dilation: int,
    padding: int,
    last: bool,
) -> Case:
    """A convolution of images with channels first or last; filters are laid out as PyTorch's."""
    count = (size + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1

    def laid(n: int, c: Any, h: Any, w: Any) -> tuple[Any, ...]:
        return (n, h, w, c) if last else (n, c, h, w)

    def ours(x: Any, w: Any) -> Any:
        c = te.reduce_axis((0, channels), "c")
        r, s = te.reduce_axis((0, kernel), "r"), te.reduce_axis((0, kernel), "s")

        def element(*place: Any) -> Any:
            n, f, i, j = (place[0], place[3], place[1], place[2]) if last else place
            row = i * stride + r * dilation - padding
            column = j * stride + s * dilation - padding
            inside = te.all(row >= 0, row < size, column >= 0, column < size)
            value = x(*laid(n, c, row, column))
            if padding:
                value = te.if_then_else(inside, value, 0.0)
            return te.sum(value * w[f, c, r, s], axis=[c, r, s])

        return te.compute(laid(batch, filters, count, count), element, name="convolved")

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        if last:  # a view: the channels are the contiguous axis of a permuted tensor
            x = x.permute(0, 3, 1, 2)
        y = torch.nn.functional.conv2d(x, w, None, stride, padding, dilation)
        return y.permute(0, 2, 3, 1) if last else y

    def in_jax(jax: Any, x: Any, w: Any) -> Any:
        layout = "NHWC" if last else "NCHW"
        return jax.lax.conv_general_dilated(
            x,
            w,
            (stride,) * 2,
            ((padding,) * 2,) * 2,
            rhs_dilation=(dilation,) * 2,
            dimension_numbers=(layout, "OIHW", layout),
        )

    inputs = {
        "x": Input(laid(batch, channels, size, size)),
        "w": Input((filters, channels, kernel, kernel), 0.2),
    }
    return draws.pullback(
        inputs, laid(batch, filters, count, count), ours, in_torch, in_jax, channels_last=not last
    )


FAMILIES = {
    "window": (draw_window, window),
    "stencil": (draw_stencil, stencil),
    "convolution": (draw_convolution, convolution),
}
