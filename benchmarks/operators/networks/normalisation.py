"""Normalised, quantised and gated layers, in both layouts of images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def group_norm_last(batch: int, size: int, groups: int, width: int) -> Case:
    """Group norm and SiLU of images with the channels last."""
    box = (batch, size, size, groups * width)
    count = float(size * size * width)

    def ours(x: Any, gain: Any, bias: Any) -> Any:
        over = (size, size, width)
        mean = reduced(
            (batch, groups), over, lambda n, g, i, j, c: x[n, i, j, g * width + c] / count
        )

        def square(n: Any, g: Any, i: Any, j: Any, c: Any) -> Any:
            d = x[n, i, j, g * width + c] - mean[n, g]
            return d * d / count

        var = reduced((batch, groups), over, square)

        def normal(n: Any, i: Any, j: Any, c: Any) -> Any:
            g = te.indexdiv(c, width)
            return (x[n, i, j, c] - mean[n, g]) * te.rsqrt(var[n, g] + 1e-5) * gain[c] + bias[c]

        y = mapped(box, normal)
        return mapped(box, lambda *place: y[place] * te.sigmoid(y[place]))

    def in_torch(torch: Any, x: Any, gain: Any, bias: Any) -> Any:
        first = x.permute(0, 3, 1, 2)
        y = torch.nn.functional.group_norm(first, groups, gain, bias, 1e-5)
        return torch.nn.functional.silu(y).permute(0, 2, 3, 1)

    def in_jax(jax: Any, x: Any, gain: Any, bias: Any) -> Any:
        v = x.reshape(batch, size, size, groups, width)
        mean = v.mean((1, 2, 4), keepdims=True)
        var = ((v - mean) ** 2).mean((1, 2, 4), keepdims=True)
        return jax.nn.silu(((v - mean) * jax.lax.rsqrt(var + 1e-5)).reshape(box) * gain + bias)

    channels = (groups * width,)
    return operator(
        {"x": Input(box), "gain": Input(channels, 0.1, 1.0), "bias": Input(channels, 0.1)},
        box,
        ours,
        in_torch,
        in_jax,
    )


def adaptive_instance_norm(batch: int, channels: int, size: int) -> Case:
    """Instance norm with a gain and a bias of each image from a style vector."""
    box, count = (batch, channels, size, size), float(size * size)

    def ours(x: Any, style: Any, w: Any) -> Any:
        styles = int(style.shape[1])
        affine = reduced((batch, 2 * channels), (styles,), lambda n, c, k: style[n, k] * w[k, c])
        mean = reduced((batch, channels), (size, size), lambda n, c, i, j: x[n, c, i, j] / count)
        var = reduced(
            (batch, channels),
            (size, size),
            lambda n, c, i, j: (x[n, c, i, j] - mean[n, c]) * (x[n, c, i, j] - mean[n, c]) / count,
        )
        return mapped(
            box,
            lambda n, c, i, j: (
                (x[n, c, i, j] - mean[n, c]) * te.rsqrt(var[n, c] + 1e-5) * (1.0 + affine[n, c])
                + affine[n, c + channels]
            ),
        )

    def in_torch(torch: Any, x: Any, style: Any, w: Any) -> Any:
        gain, bias = (style @ w)[..., None, None].chunk(2, 1)
        return torch.nn.functional.instance_norm(x) * (1 + gain) + bias

    def in_jax(jax: Any, x: Any, style: Any, w: Any) -> Any:
        gain, bias = jax.numpy.split((style @ w)[..., None, None], 2, 1)
        mean = x.mean((2, 3), keepdims=True)
        var = ((x - mean) ** 2).mean((2, 3), keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * (1 + gain) + bias

    return operator(
        {
            "x": Input(box),
            "style": Input((batch, 48)),
            "w": Input((48, 2 * channels), 0.1),
        },
        box,
        ours,
        in_torch,
        in_jax,
    )


def weight_norm_convolution(batch: int, width: int, length: int, dilation: int) -> Case:
    """A dilated causal convolution with normalised weights and a gate of tanh and sigmoid."""
    taps, outputs = 3, 2 * width
    reach = (taps - 1) * dilation

    def ours(x: Any, v: Any, g: Any) -> Any:
        square = reduced((outputs,), (width, taps), lambda o, c, k: v[o, c, k] * v[o, c, k])
        w = mapped((outputs, width, taps), lambda o, c, k: g[o] * v[o, c, k] * te.rsqrt(square[o]))
        y = reduced(
            (batch, outputs, length),
            (width, taps),
            lambda n, o, t, c, k: te.if_then_else(
                t + k * dilation >= reach, x[n, c, t + k * dilation - reach] * w[o, c, k], 0.0
            ),
        )
        return mapped(
            (batch, width, length),
            lambda n, c, t: te.tanh(y[n, c, t]) * te.sigmoid(y[n, c + width, t]),
        )

    def in_torch(torch: Any, x: Any, v: Any, g: Any) -> Any:
        w = g[:, None, None] * v * (v * v).sum((1, 2), keepdim=True) ** -0.5
        padded = torch.nn.functional.pad(x, (reach, 0))
        a, b = torch.nn.functional.conv1d(padded, w, dilation=dilation).chunk(2, 1)
        return torch.tanh(a) * torch.sigmoid(b)

    def in_jax(jax: Any, x: Any, v: Any, g: Any) -> Any:
        w = g[:, None, None] * v * (v * v).sum((1, 2), keepdims=True) ** -0.5
        y = jax.lax.conv_general_dilated(x, w, (1,), [(reach, 0)], rhs_dilation=(dilation,))
        return jax.numpy.tanh(y[:, :width]) * jax.nn.sigmoid(y[:, width:])

    return operator(
        {
            "x": Input((batch, width, length)),
            "v": Input((outputs, width, taps)),
            "g": Input((outputs,), 0.1, 1.0),
        },
        (batch, width, length),
        ours,
        in_torch,
        in_jax,
    )


def spectral_norm(rows: int, inputs: int, outputs: int) -> Case:
    """A layer over the largest singular value of its weights by one step of power iteration."""

    def ours(x: Any, w: Any, u: Any) -> Any:
        a = reduced((inputs,), (outputs,), lambda k, o: w[o, k] * u[o])
        aa = reduced((), (inputs,), lambda k: a[k] * a[k])
        v = mapped((inputs,), lambda k: a[k] * te.rsqrt(aa()))
        b = reduced((outputs,), (inputs,), lambda o, k: w[o, k] * v[k])
        bb = reduced((), (outputs,), lambda o: b[o] * b[o])
        y = reduced((rows, outputs), (inputs,), lambda r, o, k: x[r, k] * w[o, k])
        return mapped((rows, outputs), lambda r, o: y[r, o] * te.rsqrt(bb()))

    def array(numpy: Any, x: Any, w: Any, u: Any) -> Any:
        a = u @ w
        b = w @ (a * (a * a).sum() ** -0.5)
        return x @ w.T * (b * b).sum() ** -0.5

    return operator(
        {
            "x": Input((rows, inputs)),
            "w": Input((outputs, inputs), 0.2),
            "u": Input((outputs,)),
        },
        (rows, outputs),
        ours,
        lambda torch, *a: array(torch, *a),
        lambda jax, *a: array(jax.numpy, *a),
        fixed=("u",),
    )


def half_rms_norm(rows: int, width: int) -> Case:
    """A residual sum and its root mean square norm in float16, with sums in float32."""
    half = "float16"

    def ours(x: Any, residual: Any, gain: Any) -> Any:
        h = mapped((rows, width), lambda r, c: x[r, c] + residual[r, c])
        wide = mapped((rows, width), lambda r, c: h[r, c].astype("float32"))
        mean = reduced((rows,), (width,), lambda r, c: wide[r, c] * wide[r, c] / float(width))
        return mapped(
            (rows, width),
            lambda r, c: (wide[r, c] * te.rsqrt(mean[r] + 1e-6)).astype(half) * gain[c],
        )

    def in_torch(torch: Any, x: Any, residual: Any, gain: Any) -> Any:
        wide = (x + residual).float()
        return (wide * torch.rsqrt((wide * wide).mean(1, keepdim=True) + 1e-6)).to(x.dtype) * gain

    def in_jax(jax: Any, x: Any, residual: Any, gain: Any) -> Any:
        kind = x.dtype if x.dtype == "float64" else "float32"
        wide = (x + residual).astype(kind)
        mean = (wide * wide).mean(1, keepdims=True)
        return (wide * jax.lax.rsqrt(mean + 1e-6)).astype(x.dtype) * gain

    case = operator(
        {
            "x": Input((rows, width), kind=half),
            "residual": Input((rows, width), kind=half),
            "gain": Input((width,), 0.1, 1.0, kind=half),
        },
        (rows, width),
        ours,
        in_torch,
        in_jax,
        tolerance=4e-3,
    )
    return dataclasses.replace(case, head=Input((rows, width), kind=half))


def squeeze_excite(batch: int, size: int, channels: int, narrow: int) -> Case:
    """Channels, last, scaled by a gate of their means."""
    box, count = (batch, size, size, channels), float(size * size)

    def ours(x: Any, down: Any, up: Any) -> Any:
        mean = reduced((batch, channels), (size, size), lambda n, c, i, j: x[n, i, j, c] / count)
        h = reduced((batch, narrow), (channels,), lambda n, k, c: mean[n, c] * down[c, k])
        act = mapped((batch, narrow), lambda n, k: te.max(h[n, k], te.const(0.0, "float32")))
        gate = reduced((batch, channels), (narrow,), lambda n, c, k: act[n, k] * up[k, c])
        return mapped(box, lambda n, i, j, c: x[n, i, j, c] * te.sigmoid(gate[n, c]))

    def array(relu: Any, sigmoid: Any, x: Any, down: Any, up: Any) -> Any:
        return x * sigmoid(relu(x.mean((1, 2)) @ down) @ up)[:, None, None]

    return operator(
        {
            "x": Input(box),
            "down": Input((channels, narrow)),
            "up": Input((narrow, channels)),
        },
        box,
        ours,
        lambda torch, *a: array(torch.relu, torch.sigmoid, *a),
        lambda jax, *a: array(jax.nn.relu, jax.nn.sigmoid, *a),
    )


def soft_quantised(rows: int, inputs: int, outputs: int) -> Case:
    """A product with weights on a grid of each output; a tanh stands for each step of the grid."""
    sharp, high, low = 5.0, te.const(7.0, "float32"), te.const(-7.0, "float32")

    def ours(x: Any, w: Any, step: Any) -> Any:
        def grid(o: Any, k: Any) -> Any:
            z = te.max(te.min(w[o, k] / step[o], high), low)
            cell = te.floor(z)
            return step[o] * (cell + 0.5 + 0.5 * te.tanh(sharp * (z - cell - 0.5)) / tanh_half)

        q = mapped((outputs, inputs), grid)
        return reduced((rows, outputs), (inputs,), lambda r, o, k: x[r, k] * q[o, k])

    tanh_half = 0.9866142981514303  # tanh(sharp / 2)

    def array(numpy: Any, clip: Any, x: Any, w: Any, step: Any) -> Any:
        z = clip(w / step[:, None], -7.0, 7.0)
        cell = numpy.floor(z)
        q = step[:, None] * (cell + 0.5 + 0.5 * numpy.tanh(sharp * (z - cell - 0.5)) / tanh_half)
        return x @ q.T

    return operator(
        {
            "x": Input((rows, inputs)),
            "w": Input((outputs, inputs), 0.4),
            "step": Input((outputs,), 0.01, 0.1),
        },
        (rows, outputs),
        ours,
        lambda torch, *a: array(torch, torch.clamp, *a),
        lambda jax, *a: array(jax.numpy, jax.numpy.clip, *a),
        tolerance=1e-3,
    )


CASES: dict[str, Callable[[], Case]] = {
    "group-norm-last": lambda: group_norm_last(4, 33, 8, 7),
    "adaptive-instance-norm": lambda: adaptive_instance_norm(8, 33, 33),
    "weight-norm-convolution": lambda: weight_norm_convolution(4, 33, 400, 4),
    "spectral-norm": lambda: spectral_norm(100, 257, 100),
    "half-rms-norm": lambda: half_rms_norm(512, 768),
    "squeeze-excite": lambda: squeeze_excite(4, 28, 100, 25),
    "soft-quantised": lambda: soft_quantised(100, 257, 100),
}
