"""Images: convolutions and filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def convolution(batch: int, channels: int, size: int, filters: int) -> Case:
    """A convolution 3x3 without padding."""
    out = size - 2

    def ours(x: Any, w: Any) -> Any:
        return reduced(
            (batch, filters, out, out),
            (channels, 3, 3),
            lambda n, f, i, j, c, r, s: x[n, c, i + r, j + s] * w[f, c, r, s],
        )

    return operator(
        {"x": Input((batch, channels, size, size)), "w": Input((filters, channels, 3, 3))},
        (batch, filters, out, out),
        ours,
        lambda torch, x, w: torch.nn.functional.conv2d(x, w),
        lambda jax, x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "VALID"),
    )


def similarity(batch: int, size: int, window: int) -> Case:
    """Structural similarity with a window of any weights, and its mean as a loss."""
    out = size - window + 1

    def ours(x: Any, y: Any, w: Any) -> Any:
        def mean(f: Callable[..., Any]) -> Any:
            return reduced(
                (batch, out, out),
                (window, window),
                lambda n, i, j, r, s: w[r] * w[s] * f(n, i + r, j + s),
            )

        a, b = mean(lambda *p: x[p]), mean(lambda *p: y[p])
        aa, bb = mean(lambda *p: x[p] * x[p]), mean(lambda *p: y[p] * y[p])
        ab = mean(lambda *p: x[p] * y[p])

        def body(n: Any, i: Any, j: Any) -> Any:
            u, v = a[n, i, j], b[n, i, j]
            top = (2.0 * u * v + 0.01) * (2.0 * (ab[n, i, j] - u * v) + 0.03)
            below = (u * u + v * v + 0.01) * (aa[n, i, j] - u * u + bb[n, i, j] - v * v + 0.03)
            return top / below

        return reduced((), (batch, out, out), body)

    def array(mean: Any, x: Any, y: Any, w: Any) -> Any:
        u, v = mean(x, w), mean(y, w)
        aa, bb, ab = mean(x * x, w) - u * u, mean(y * y, w) - v * v, mean(x * y, w) - u * v
        top = (2.0 * u * v + 0.01) * (2.0 * ab + 0.03)
        return (top / ((u * u + v * v + 0.01) * (aa + bb + 0.03))).sum()

    def in_torch(torch: Any, x: Any, y: Any, w: Any) -> Any:
        def mean(f: Any, w: Any) -> Any:
            f = torch.nn.functional.conv2d(f[:, None], w[None, None, :, None])
            return torch.nn.functional.conv2d(f, w[None, None, None])[:, 0]

        return array(mean, x, y, w)

    def in_jax(jax: Any, x: Any, y: Any, w: Any) -> Any:
        def mean(f: Any, w: Any) -> Any:
            conv = jax.lax.conv_general_dilated
            f = conv(f[:, None], w[None, None, :, None], (1, 1), "VALID")
            return conv(f, w[None, None, None], (1, 1), "VALID")[:, 0]

        return array(mean, x, y, w)

    images = Input((batch, size, size), 0.2, 0.5)
    return operator(
        {"x": images, "y": images, "w": Input((window,), 0.01, 0.1)},
        (),
        ours,
        in_torch,
        in_jax,
        fixed=("w",),
        tolerance=1e-3,
    )


def grid_sample(batch: int, channels: int, size: int, out: int) -> Case:
    """Bilinear samples of an image at places that are data, clamped at borders."""

    def ours(x: Any, g: Any) -> Any:
        def body(n: Any, c: Any, i: Any, j: Any) -> Any:
            def at(axis: int) -> tuple[Any, Any, Any]:
                place = g[n, axis, i, j] * (size - 1.0)
                low = te.floor(place)
                first = te.max(te.min(low.astype("int32"), size - 1), 0)
                second = te.max(te.min(low.astype("int32") + 1, size - 1), 0)
                return first, second, place - low

            top, bottom, y = at(0)
            left, right, z = at(1)
            above = x[n, c, top, left] * (1.0 - z) + x[n, c, top, right] * z
            below = x[n, c, bottom, left] * (1.0 - z) + x[n, c, bottom, right] * z
            return above * (1.0 - y) + below * y

        return mapped((batch, channels, out, out), body)

    def array(numpy: Any, integer: Any, x: Any, g: Any) -> Any:
        place = g * (size - 1.0)
        low = numpy.floor(place)
        first = numpy.clip(integer(low), 0, size - 1)
        second = numpy.clip(integer(low) + 1, 0, size - 1)
        part = place - low
        n = numpy.arange(batch)[:, None, None]
        y, z = part[:, 0, None], part[:, 1, None]

        def read(rows: Any, columns: Any) -> Any:
            return numpy.moveaxis(x[n, :, rows, columns], -1, 1)

        above = read(first[:, 0], first[:, 1]) * (1.0 - z) + read(first[:, 0], second[:, 1]) * z
        below = read(second[:, 0], first[:, 1]) * (1.0 - z) + read(second[:, 0], second[:, 1]) * z
        return above * (1.0 - y) + below * y

    return operator(
        {
            "x": Input((batch, channels, size, size)),
            "g": Input((batch, 2, out, out), 0.2, 0.5),
        },
        (batch, channels, out, out),
        ours,
        lambda torch, x, g: array(torch, lambda v: v.long(), x, g),
        lambda jax, x, g: array(jax.numpy, lambda v: v.astype("int32"), x, g),
        tolerance=1e-3,
    )


CASES: dict[str, Callable[[], Case]] = {
    "convolution-3x3": lambda: convolution(4, 3, 64, 32),
    "structural-similarity": lambda: similarity(8, 96, 11),
    "grid-sample": lambda: grid_sample(4, 8, 64, 48),
}
