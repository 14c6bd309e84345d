"""Signals: filters, spectra, wavelets, correlations."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def long_filter(channels: int, length: int, taps: int) -> Case:
    """A causal filter per channel: ``y[c, t] = Σ_k w[c, k]·x[c, t - k]``."""
    padding = taps - 1

    def ours(x: Any, w: Any) -> Any:
        return reduced(
            (channels, length),
            (taps,),
            lambda c, t, k: w[c, k] * te.if_then_else(t >= k, x[c, t - k], 0.0),
        )

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        conv = torch.nn.functional.conv1d
        return conv(x[None], w.flip(1)[:, None], padding=padding, groups=channels)[0, :, :length]

    def in_jax(jax: Any, x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x[None], w[:, None, ::-1], (1,), [(padding, 0)], feature_group_count=channels
        )[0]

    return operator(
        {"x": Input((channels, length)), "w": Input((channels, taps), 0.1)},
        (channels, length),
        ours,
        in_torch,
        in_jax,
    )


def spectrogram(batch: int, length: int, frame: int, hop: int) -> Case:
    """Log power of the Fourier transforms of frames under a window that is learnt."""
    frames, bins = (length - frame) // hop + 1, frame // 2 + 1
    step = 2.0 * pi / frame

    def ours(x: Any, w: Any) -> Any:
        angles = mapped((frame, bins), lambda k, f: ((k * f) % frame).astype("float32") * step)
        cosine = mapped((frame, bins), lambda k, f: te.cos(angles[k, f]))
        sine = mapped((frame, bins), lambda k, f: te.sin(angles[k, f]))
        windowed = mapped((batch, frames, frame), lambda n, t, k: x[n, t * hop + k] * w[k])
        real, imaginary = (
            reduced(
                (batch, frames, bins),
                (frame,),
                lambda n, t, f, k, wave=wave: windowed[n, t, k] * wave[k, f],
            )
            for wave in (cosine, sine)
        )
        return mapped(
            (batch, frames, bins),
            lambda n, t, f: te.log(
                real[n, t, f] * real[n, t, f] + imaginary[n, t, f] * imaginary[n, t, f] + 1e-3
            ),
        )

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        power = torch.fft.rfft(x.unfold(1, frame, hop) * w)
        return torch.log(power.real**2 + power.imag**2 + 1e-3)

    def in_jax(jax: Any, x: Any, w: Any) -> Any:
        place = jax.numpy.arange(frames)[:, None] * hop + jax.numpy.arange(frame)
        power = jax.numpy.fft.rfft(x[:, place] * w)
        return jax.numpy.log(power.real**2 + power.imag**2 + 1e-3)

    return operator(
        {"x": Input((batch, length)), "w": Input((frame,))},
        (batch, frames, bins),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def wavelet(rows: int, length: int) -> Case:
    """One level of a Daubechies transform with four taps, wrapped around: halves side by side."""
    half = length // 2

    def ours(x: Any, h: Any) -> Any:
        def body(r: Any, t: Any, k: Any) -> Any:
            place = (t % half * 2 + k) % length
            sign = te.if_then_else(k % 2 == 0, 1.0, -1.0)
            tap = te.if_then_else(t < half, h[k], sign * h[3 - k])
            return x[r, place] * tap

        return reduced((rows, length), (4,), body)

    def array(roll: Any, join: Any, x: Any, h: Any) -> Any:
        shifts = [x[:, ::2], x[:, 1::2], roll(x[:, ::2]), roll(x[:, 1::2])]
        low = sum(h[k] * shifts[k] for k in range(4))
        high = sum((-1.0) ** k * h[3 - k] * shifts[k] for k in range(4))
        return join([low, high])

    return operator(
        {"x": Input((rows, length)), "h": Input((4,))},
        (rows, length),
        ours,
        lambda torch, x, h: array(lambda v: torch.roll(v, -1, 1), lambda v: torch.cat(v, 1), x, h),
        lambda jax, x, h: array(
            lambda v: jax.numpy.roll(v, -1, 1), lambda v: jax.numpy.concatenate(v, 1), x, h
        ),
        tolerance=1e-3,
    )


def autocorrelation(batch: int, length: int, lags: int) -> Case:
    """``Σ_t x[t]·x[t + l] / Σ_t x[t]²`` for each lag."""

    def ours(x: Any) -> Any:
        raw = reduced(
            (batch, lags),
            (length,),
            lambda n, l, t: te.if_then_else(t + l < length, x[n, t] * x[n, t + l], 0.0),  # noqa: E741
        )
        return mapped((batch, lags), lambda n, l: raw[n, l] / (raw[n, 0] + 1e-3))  # noqa: E741

    def array(pad: Any, stack: Any, x: Any) -> Any:
        padded = pad(x)
        raw = stack([(x * padded[:, lag : lag + length]).sum(1) for lag in range(lags)])
        return raw / (raw[:, :1] + 1e-3)

    return operator(
        {"x": Input((batch, length))},
        (batch, lags),
        ours,
        lambda torch, x: array(
            lambda v: torch.nn.functional.pad(v, (0, lags)), lambda v: torch.stack(v, 1), x
        ),
        lambda jax, x: array(
            lambda v: jax.numpy.pad(v, ((0, 0), (0, lags))), lambda v: jax.numpy.stack(v, 1), x
        ),
        tolerance=1e-3,
    )


def detection(ranges: int, speeds: int, near: int, far: int) -> Case:
    """The excess of power over that of the cells around, beyond `near` of them and up to `far`:
    padded along the range, periodic along the speed.
    """
    cells = float((2 * far + 1) ** 2 - (2 * near + 1) ** 2)

    def ours(re: Any, im: Any, scale: Any) -> Any:
        power = mapped((ranges, speeds), lambda r, v: re[r, v] * re[r, v] + im[r, v] * im[r, v])

        def box(width: int) -> Any:
            def cell(r: Any, v: Any, a: Any, b: Any) -> Any:
                inside = te.all(r + a >= width, r + a < ranges + width)
                place = te.max(te.min(r + a - width, ranges - 1), 0)
                return te.if_then_else(inside, power[place, (v + b - width + speeds) % speeds], 0.0)

            return reduced((ranges, speeds), (2 * width + 1, 2 * width + 1), cell)

        inner, outer = box(near), box(far)
        return mapped(
            (ranges, speeds),
            lambda r, v: te.sigmoid(
                power[r, v] - scale[0] * (outer[r, v] - inner[r, v]) * (1.0 / cells)
            ),
        )

    def array(lib: Any, re: Any, im: Any, scale: Any, sigmoid: Any) -> Any:
        power = re * re + im * im

        def box(width: int) -> Any:
            nothing = lib.zeros_like(power[:width])
            rows = lib.concatenate([nothing, power, nothing])
            whole = lib.concatenate([rows[:, -width:], rows, rows[:, :width]], 1)
            tall = sum(whole[a : a + ranges] for a in range(2 * width + 1))
            return sum(tall[:, b : b + speeds] for b in range(2 * width + 1))

        return sigmoid(power - scale * (box(far) - box(near)) / cells)

    grid = Input((ranges, speeds))
    return operator(
        {"re": grid, "im": grid, "scale": Input((1,), 0.1, 1.0)},
        (ranges, speeds),
        ours,
        lambda torch, *arrays: array(torch, *arrays, torch.sigmoid),
        lambda jax, *arrays: array(jax.numpy, *arrays, jax.nn.sigmoid),
    )


def fourier_mix(batch: int, length: int, width: int) -> Case:
    """The real part of Fourier transforms along two axes, whose tables are computed."""

    def table(size: int, function: Any) -> Any:
        step = 2.0 * pi / size
        return mapped((size, size), lambda a, b: function((a * b % size).astype("float32") * step))

    def ours(x: Any) -> Any:
        shape = (batch, length, width)
        cosine, sine = table(width, te.cos), table(width, te.sin)
        real = reduced(shape, (width,), lambda b, i, e, d: x[b, i, d] * cosine[d, e])
        other = reduced(shape, (width,), lambda b, i, e, d: x[b, i, d] * sine[d, e])
        rows, columns = table(length, te.cos), table(length, te.sin)
        return reduced(
            shape,
            (length,),
            lambda b, i, e, m: rows[i, m] * real[b, m, e] - columns[i, m] * other[b, m, e],
        )

    return operator(
        {"x": Input((batch, length, width))},
        (batch, length, width),
        ours,
        lambda torch, x: torch.fft.fft2(x).real,
        lambda jax, x: jax.numpy.fft.fft2(x).real,
    )


CASES: dict[str, Callable[[], Case]] = {
    "filter-of-127-taps": lambda: long_filter(16, 8000, 127),
    "spectrogram": lambda: spectrogram(4, 16000, 256, 128),
    "wavelet": lambda: wavelet(256, 1024),
    "autocorrelation": lambda: autocorrelation(32, 2000, 40),
    "detection": lambda: detection(201, 101, 1, 4),
    "fourier-mix": lambda: fourier_mix(4, 90, 66),
}
