"""Time series and prices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def rolling(rows: int, length: int, window: int) -> Case:
    """Returns of prices as z-scores within a rolling window."""
    out = length - window + 1

    def ours(x: Any) -> Any:
        mean = reduced((rows, out), (window,), lambda r, t, k: x[r, t + k] / float(window))
        var = reduced(
            (rows, out),
            (window,),
            lambda r, t, k: (
                (x[r, t + k] - mean[r, t]) * (x[r, t + k] - mean[r, t]) / float(window - 1)
            ),
        )
        return mapped(
            (rows, out),
            lambda r, t: (x[r, t + window - 1] - mean[r, t]) * te.rsqrt(var[r, t] + 1e-5),
        )

    def in_torch(torch: Any, x: Any) -> Any:
        v = x.unfold(1, window, 1)
        return (x[:, window - 1 :] - v.mean(-1)) * torch.rsqrt(v.var(-1) + 1e-5)

    def in_jax(jax: Any, x: Any) -> Any:
        def sums(v):
            return jax.lax.reduce_window(v, 0.0, jax.lax.add, (1, window), (1, 1), "valid")

        mean = sums(x) / window
        var = (sums(x * x) - window * mean * mean) / (window - 1)
        return (x[:, window - 1 :] - mean) * jax.lax.rsqrt(var + 1e-5)

    return operator(
        {"x": Input((rows, length))}, (rows, out), ours, in_torch, in_jax, tolerance=1e-3
    )


def polyphase(rows: int, length: int, up: int, down: int, taps: int) -> Case:
    """Resampling by a ratio: output n uses the taps of phase (n * down) mod up."""
    out = (length - taps) * up // down

    def ours(x: Any, h: Any) -> Any:
        return reduced(
            (rows, out),
            (taps,),
            lambda r, n, k: h[te.indexmod(n * down, up), k] * x[r, te.indexdiv(n * down, up) + k],
        )

    def in_torch(torch: Any, x: Any, h: Any) -> Any:
        y = torch.nn.functional.conv1d(x[:, None], h[:, None])  # rows, phase, position
        n = torch.arange(out) * down
        return y[:, n % up, n // up]

    def in_jax(jax: Any, x: Any, h: Any) -> Any:
        y = jax.lax.conv_general_dilated(x[:, None], h[:, None], (1,), "VALID")
        n = jax.numpy.arange(out) * down
        return y[:, n % up, n // up]

    return operator(
        {"x": Input((rows, length)), "h": Input((up, taps))}, (rows, out), ours, in_torch, in_jax
    )


def causal_convolution(batch: int, length: int, width: int, taps: int) -> Case:
    """Depthwise along time, channels last, zeros before the start, then SiLU and a gate."""

    def ours(x: Any, w: Any, bias: Any, gate: Any) -> Any:
        y = reduced(
            (batch, length, width),
            (taps,),
            lambda n, t, c, k: te.if_then_else(
                t + k >= taps - 1, x[n, t + k - (taps - 1), c] * w[c, k], 0.0
            ),
        )
        z = mapped((batch, length, width), lambda n, t, c: y[n, t, c] + bias[c])
        return mapped(
            (batch, length, width),
            lambda n, t, c: z[n, t, c] * te.sigmoid(z[n, t, c]) * te.sigmoid(gate[n, t, c]),
        )

    def array(pad: Any, silu: Any, sigmoid: Any, x: Any, w: Any, bias: Any, gate: Any) -> Any:
        p = pad(x)
        y = sum(p[:, k : k + length] * w[:, k] for k in range(taps)) + bias
        return silu(y) * sigmoid(gate)

    return operator(
        {
            "x": Input((batch, length, width)),
            "w": Input((width, taps)),
            "bias": Input((width,)),
            "gate": Input((batch, length, width)),
        },
        (batch, length, width),
        ours,
        lambda torch, *a: array(
            lambda x: torch.nn.functional.pad(x, (0, 0, taps - 1, 0)),
            torch.nn.functional.silu,
            torch.sigmoid,
            *a,
        ),
        lambda jax, *a: array(
            lambda x: jax.numpy.pad(x, ((0, 0), (taps - 1, 0), (0, 0))),
            jax.nn.silu,
            jax.nn.sigmoid,
            *a,
        ),
    )


def asian_option(paths: int, steps: int) -> Case:
    """A call on the mean price along paths of geometric Brownian motion."""

    def ours(z: Any, s0: Any, sigma: Any, rate: Any) -> Any:
        dt = 1.0 / steps
        total = reduced(
            (paths, steps), (steps,), lambda p, t, k: te.if_then_else(k <= t, z[p, k], 0.0)
        )
        price = mapped(
            (paths, steps),
            lambda p, t: (
                s0()
                * te.exp(
                    (rate() - 0.5 * sigma() * sigma()) * (t.astype("float32") + 1.0) * dt
                    + sigma() * (dt**0.5) * total[p, t]
                )
            ),
        )
        mean = reduced((paths,), (steps,), lambda p, t: price[p, t] / float(steps))
        pay = mapped((paths,), lambda p: te.max(mean[p] - 100.0, te.const(0.0, "float32")))
        return reduced((), (paths,), lambda p: te.exp(-rate()) * pay[p] / float(paths))

    def array(numpy: Any, arange: Any, relu: Any, z: Any, s0: Any, sigma: Any, rate: Any) -> Any:
        dt = 1.0 / steps
        time = (arange(z) + 1) * dt
        price = s0 * numpy.exp(
            (rate - 0.5 * sigma**2) * time + sigma * dt**0.5 * numpy.cumsum(z, 1)
        )
        return numpy.exp(-rate) * relu(price.mean(1) - 100).mean()

    return operator(
        {
            "z": Input((paths, steps)),
            "s0": Input((), 1.0, 100.0),
            "sigma": Input((), 0.01, 0.2),
            "rate": Input((), 0.001, 0.03),
        },
        (),
        ours,
        lambda torch, *a: array(torch, lambda z: torch.arange(steps).to(z.dtype), torch.relu, *a),
        lambda jax, *a: array(
            jax.numpy, lambda z: jax.numpy.arange(steps).astype(z.dtype), jax.nn.relu, *a
        ),
        fixed=("z",),
        tolerance=1e-3,
    )


def black_scholes(n: int) -> Case:
    """Prices of options in closed form, float64; gradients are the Greeks."""

    def ours(s: Any, k: Any, t: Any, sigma: Any, r: Any) -> Any:
        root = mapped((n,), lambda i: sigma[i] * te.sqrt(t[i]))
        d1 = mapped(
            (n,),
            lambda i: (te.log(s[i] / k[i]) + (r() + 0.5 * sigma[i] * sigma[i]) * t[i]) / root[i],
        )

        def cdf(v):
            return 0.5 * (1.0 + te.erf(v * 0.7071067811865476))

        return mapped(
            (n,), lambda i: s[i] * cdf(d1[i]) - k[i] * te.exp(-r() * t[i]) * cdf(d1[i] - root[i])
        )

    def array(numpy: Any, erf: Any, s: Any, k: Any, t: Any, sigma: Any, r: Any) -> Any:
        root = sigma * numpy.sqrt(t)
        d1 = (numpy.log(s / k) + (r + 0.5 * sigma * sigma) * t) / root

        def cdf(v):
            return 0.5 * (1 + erf(v * 0.7071067811865476))

        return s * cdf(d1) - k * numpy.exp(-r * t) * cdf(d1 - root)

    f = "float64"
    case = operator(
        {
            "s": Input((n,), 5.0, 100.0, kind=f),
            "k": Input((n,), 10.0, 100.0, kind=f),
            "t": Input((n,), 0.05, 1.0, kind=f),
            "sigma": Input((n,), 0.01, 0.2, kind=f),
            "r": Input((), 0.001, 0.03, kind=f),
        },
        (n,),
        ours,
        lambda torch, *a: array(torch, torch.erf, *a),
        lambda jax, *a: array(jax.numpy, jax.lax.erf, *a),
        fixed=("k",),
    )
    return dataclasses.replace(case, head=Input((n,), kind=f))


def pinball(rows: int, horizon: int, quantiles: int) -> Case:
    """Quantile losses of forecasts, weighted by series."""

    def ours(forecast: Any, target: Any, weight: Any) -> Any:
        def loss(r: Any, t: Any, q: Any) -> Any:
            d = target[r, t] - forecast[r, t, q]
            level = (q.astype("float32") + 1.0) / float(quantiles + 1)
            return weight[r] * te.max(level * d, (level - 1.0) * d)

        return reduced((), (rows, horizon, quantiles), loss)

    def array(numpy: Any, levels: Any, forecast: Any, target: Any, weight: Any) -> Any:
        d = target[..., None] - forecast
        m = levels(forecast)
        return (weight[:, None, None] * numpy.maximum(m * d, (m - 1) * d)).sum()

    return operator(
        {
            "forecast": Input((rows, horizon, quantiles)),
            "target": Input((rows, horizon)),
            "weight": Input((rows,), 0.1, 1.0),
        },
        (),
        ours,
        lambda torch, *a: array(
            torch, lambda x: (torch.arange(quantiles).to(x.dtype) + 1) / (quantiles + 1), *a
        ),
        lambda jax, *a: array(
            jax.numpy,
            lambda x: (jax.numpy.arange(quantiles).astype(x.dtype) + 1) / (quantiles + 1),
            *a,
        ),
        fixed=("target",),
        tolerance=1e-3,
    )


CASES: dict[str, Callable[[], Case]] = {
    "rolling": lambda: rolling(200, 1000, 20),
    "polyphase": lambda: polyphase(32, 4000, 3, 2, 16),
    "causal-convolution": lambda: causal_convolution(4, 512, 96, 4),
    "asian-option": lambda: asian_option(4096, 64),
    "black-scholes": lambda: black_scholes(50000),
    "pinball": lambda: pinball(256, 100, 9),
}
