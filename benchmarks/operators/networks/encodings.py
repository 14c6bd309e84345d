"""Positional encodings: sines of frequencies that are powers of the place of a component."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator


def frequencies(n: int, dims: int, bands: int) -> Case:
    """NeRF: ``sin`` and ``cos`` of ``2^l·x[n, c]`` side by side."""
    wide = 2 * bands

    def ours(x: Any) -> Any:
        def body(i: Any, j: Any) -> Any:
            level = (j % wide // 2).astype("float32")
            angle = x[i, j // wide] * te.power(te.const(2.0, "float32"), level)
            return te.if_then_else(j % 2 == 0, te.sin(angle), te.cos(angle))

        return mapped((n, dims * wide), body)

    def array(numpy: Any, stack: Any, x: Any) -> Any:
        angle = x[:, :, None] * 2.0 ** numpy.arange(bands)
        return stack((numpy.sin(angle), numpy.cos(angle)), -1).reshape(n, -1)

    return operator(
        {"x": Input((n, dims))},
        (n, dims * wide),
        ours,
        lambda torch, x: array(torch, torch.stack, x),
        lambda jax, x: array(jax.numpy, jax.numpy.stack, x),
        tolerance=1e-3,
    )


def absolute(batch: int, length: int, width: int) -> Case:
    """``scale·x + sin`` or ``cos`` of the place times a frequency per pair of components."""
    step = -2.0 / width

    def ours(x: Any, scale: Any) -> Any:
        def body(n: Any, t: Any, j: Any) -> Any:
            angle = t.astype("float32") * te.power(
                te.const(10000.0, "float32"), (j // 2).astype("float32") * step
            )
            wave = te.if_then_else(j % 2 == 0, te.sin(angle), te.cos(angle))
            return x[n, t, j] * scale[j] + wave

        return mapped((batch, length, width), body)

    def array(numpy: Any, stack: Any, x: Any, scale: Any) -> Any:
        rate = 10000.0 ** (numpy.arange(width // 2) * step)
        angle = numpy.arange(length)[:, None] * rate
        wave = stack((numpy.sin(angle), numpy.cos(angle)), -1).reshape(length, width)
        return x * scale + wave

    return operator(
        {"x": Input((batch, length, width)), "scale": Input((width,))},
        (batch, length, width),
        ours,
        lambda torch, *arrays: array(torch, torch.stack, *arrays),
        lambda jax, *arrays: array(jax.numpy, jax.numpy.stack, *arrays),
        tolerance=1e-3,
    )


CASES: dict[str, Callable[[], Case]] = {
    "encoding-frequencies": lambda: frequencies(8192, 3, 6),
    "encoding-absolute": lambda: absolute(16, 128, 64),
}
