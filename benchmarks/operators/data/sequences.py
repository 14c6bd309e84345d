"""Recurrences over time or layers, with few states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

import tvm_autodiff as ad

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def neurons(n: int, steps: int) -> Case:
    """FitzHugh-Nagumo neurons with input currents: Euler steps, mean square voltage."""

    def ours(current: Any, a: Any, b: Any, tau: Any) -> Any:
        v0 = mapped((n,), lambda i: te.const(-1.0, "float32"))
        w0 = mapped((n,), lambda i: te.const(1.0, "float32"))

        def step(state: Any, x: Any) -> Any:
            v, w = state
            nv = mapped(
                (n,), lambda i: v[i] + 0.1 * (v[i] - v[i] * v[i] * v[i] / 3.0 - w[i] + x[i])
            )
            nw = mapped((n,), lambda i: w[i] + 0.1 * (v[i] + a[i] - b[i] * w[i]) / tau[i])
            return (nv, nw), nv

        _, vs = ad.scan(step, (v0, w0), current)
        return reduced((), (steps, n), lambda t, i: vs[t, i] * vs[t, i] / float(steps * n))

    def in_torch(torch: Any, current: Any, a: Any, b: Any, tau: Any) -> Any:
        v = -torch.ones_like(a)
        w = torch.ones_like(a)
        vs = []
        for t in range(steps):
            v, w = v + 0.1 * (v - v * v * v / 3 - w + current[t]), w + 0.1 * (v + a - b * w) / tau
            vs.append(v)
        return (torch.stack(vs) ** 2).mean()

    def in_jax(jax: Any, current: Any, a: Any, b: Any, tau: Any) -> Any:
        numpy = jax.numpy

        def step(state: Any, x: Any) -> Any:
            v, w = state
            v, w = v + 0.1 * (v - v * v * v / 3 - w + x), w + 0.1 * (v + a - b * w) / tau
            return (v, w), v

        _, vs = jax.lax.scan(step, (-numpy.ones_like(a), numpy.ones_like(a)), current)
        return (vs**2).mean()

    return operator(
        {
            "current": Input((steps, n), 0.3, 0.5),
            "a": Input((n,), 0.05, 0.7),
            "b": Input((n,), 0.05, 0.8),
            "tau": Input((n,), 0.5, 12.5),
        },
        (),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def thin_film(waves: int, layers: int) -> Case:
    """Reflectance of a stack of dielectric layers at normal incidence, by Rouard's recursion."""

    def ours(d: Any, index: Any, wave: Any) -> Any:
        # from the substrate upwards; interface m is between layers m and m+1
        r0 = mapped((waves,), lambda w: (index[layers - 1] - 1.5) / (index[layers - 1] + 1.5))
        i0 = mapped((waves,), lambda w: te.const(0.0, "float32"))
        fresnel = mapped(
            (layers,),
            lambda m: te.if_then_else(
                m == 0,
                (1.0 - index[0]) / (1.0 + index[0]),
                (index[te.max(m - 1, 0)] - index[m]) / (index[te.max(m - 1, 0)] + index[m]),
            ),
        )
        optical = mapped((layers,), lambda m: 12.566371 * index[m] * d[m])

        def step(state: Any, xs: Any) -> Any:
            re, im = state
            f, o = xs
            c = mapped((waves,), lambda w: te.cos(o() / wave[w]))
            s = mapped((waves,), lambda w: te.sin(o() / wave[w]))
            a = mapped((waves,), lambda w: re[w] * c[w] + im[w] * s[w])
            b = mapped((waves,), lambda w: im[w] * c[w] - re[w] * s[w])
            den = mapped(
                (waves,),
                lambda w: (1.0 + f() * a[w]) * (1.0 + f() * a[w]) + f() * b[w] * f() * b[w],
            )
            nre = mapped(
                (waves,), lambda w: ((f() + a[w]) * (1.0 + f() * a[w]) + f() * b[w] * b[w]) / den[w]
            )
            nim = mapped(
                (waves,), lambda w: (b[w] * (1.0 + f() * a[w]) - f() * b[w] * (f() + a[w])) / den[w]
            )
            return (nre, nim), None

        (re, im), _ = ad.scan(step, (r0, i0), (fresnel, optical), reverse=True)
        return mapped((waves,), lambda w: re[w] * re[w] + im[w] * im[w])

    def array(numpy: Any, one: Any, complexly: Any, d: Any, index: Any, wave: Any) -> Any:
        up = numpy.concatenate([one(index), index[:-1]])
        f = (up - index) / (up + index)
        r = complexly((index[-1] - 1.5) / (index[-1] + 1.5) * numpy.ones_like(wave))
        for m in range(layers - 1, -1, -1):
            phase = 12.566371 * index[m] * d[m] / wave
            e = r * numpy.exp(-1j * phase)
            r = (f[m] + e) / (1 + f[m] * e)
        return r.real**2 + r.imag**2

    return operator(
        {
            "d": Input((layers,), 0.02, 0.1),
            "index": Input((layers,), 0.3, 2.0),
            "wave": Input((waves,), 0.08, 0.6),
        },
        (waves,),
        ours,
        lambda torch, *a: array(torch, lambda x: torch.ones_like(x[:1]), lambda x: x + 0j, *a),
        lambda jax, *a: array(
            jax.numpy, lambda x: jax.numpy.ones_like(x[:1]), lambda x: x + 0j, *a
        ),
        tolerance=1e-3,
    )


def biquad(rows: int, length: int) -> Case:
    """Second-order recursive filters in direct form II transposed, one per row."""

    def ours(x: Any, b: Any, a: Any) -> Any:
        zero = mapped((rows,), lambda r: te.const(0.0, "float32"))
        time = mapped((length, rows), lambda t, r: x[r, t])

        def step(state: Any, u: Any) -> Any:
            s, z = state
            y = mapped((rows,), lambda r: b[r, 0] * u[r] + s[r])
            ns = mapped((rows,), lambda r: b[r, 1] * u[r] - a[r, 0] * y[r] + z[r])
            nz = mapped((rows,), lambda r: b[r, 2] * u[r] - a[r, 1] * y[r])
            return (ns, nz), y

        _, ys = ad.scan(step, (zero, zero), time)
        return mapped((rows, length), lambda r, t: ys[t, r])

    def in_torch(torch: Any, x: Any, b: Any, a: Any) -> Any:
        s, z = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        ys = []
        for u in x.unbind(1):
            y = b[:, 0] * u + s
            s, z = b[:, 1] * u - a[:, 0] * y + z, b[:, 2] * u - a[:, 1] * y
            ys.append(y)
        return torch.stack(ys, 1)

    def in_jax(jax: Any, x: Any, b: Any, a: Any) -> Any:
        def step(state: Any, u: Any) -> Any:
            s, z = state
            y = b[:, 0] * u + s
            return (b[:, 1] * u - a[:, 0] * y + z, b[:, 2] * u - a[:, 1] * y), y

        zero = jax.numpy.zeros_like(x[:, 0])
        return jax.lax.scan(step, (zero, zero), x.T)[1].T

    return operator(
        {"x": Input((rows, length)), "b": Input((rows, 3)), "a": Input((rows, 2), 0.2, 0.1)},
        (rows, length),
        ours,
        in_torch,
        in_jax,
        tolerance=2e-3,
    )


def crf(steps: int, batch: int, states: int) -> Case:
    """A linear-chain conditional random field: log partition less the score of given labels."""

    def ours(emit: Any, trans: Any, label: Any) -> Any:
        first = mapped((batch, states), lambda b, s: emit[0, b, s])
        rest = mapped((steps - 1, batch, states), lambda t, b, s: emit[t + 1, b, s])

        def step(alpha: Any, x: Any) -> Any:
            top = reduced(
                (batch, states), (states,), lambda b, s, r: alpha[b, r] + trans[r, s], te.max
            )
            total = reduced(
                (batch, states),
                (states,),
                lambda b, s, r: te.exp(alpha[b, r] + trans[r, s] - top[b, s]),
            )
            return mapped(
                (batch, states), lambda b, s: te.log(total[b, s]) + top[b, s] + x[b, s]
            ), None

        alpha, _ = ad.scan(step, first, rest)
        top = reduced((batch,), (states,), lambda b, s: alpha[b, s], te.max)
        total = reduced((batch,), (states,), lambda b, s: te.exp(alpha[b, s] - top[b]))
        emitted = reduced((batch,), (steps,), lambda b, t: emit[t, b, label[t, b]])
        moved = reduced((batch,), (steps - 1,), lambda b, t: trans[label[t, b], label[t + 1, b]])
        return reduced((), (batch,), lambda b: te.log(total[b]) + top[b] - emitted[b] - moved[b])

    def in_torch(torch: Any, emit: Any, trans: Any, label: Any) -> Any:
        alpha = emit[0]
        for t in range(1, steps):
            alpha = torch.logsumexp(alpha[:, :, None] + trans, 1) + emit[t]
        gold = emit.gather(2, label[..., None]).sum() + trans[label[:-1], label[1:]].sum()
        return torch.logsumexp(alpha, 1).sum() - gold

    def in_jax(jax: Any, emit: Any, trans: Any, label: Any) -> Any:
        numpy = jax.numpy

        def step(alpha: Any, x: Any) -> Any:
            return jax.nn.logsumexp(alpha[:, :, None] + trans, 1) + x, None

        alpha, _ = jax.lax.scan(step, emit[0], emit[1:])
        gold = (
            numpy.take_along_axis(emit, label[..., None], 2).sum()
            + trans[label[:-1], label[1:]].sum()
        )
        return jax.nn.logsumexp(alpha, 1).sum() - gold

    return operator(
        {
            "emit": Input((steps, batch, states)),
            "trans": Input((states, states)),
            "label": Input((steps, batch), below=states),
        },
        (),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def selective_scan(batch: int, length: int, width: int, states: int) -> Case:
    """The recurrence of a selective state-space model, with a skip connection."""

    def ours(u: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any) -> Any:
        first = mapped((batch, width, states), lambda n, d, s: te.const(0.0, "float32"))

        def time(x, *rest):
            return mapped((length, batch, *rest), lambda t, n, *p: x[(n, t, *p)])

        xs = (time(u, width), time(delta, width), time(b, states), time(c, states))

        def step(h: Any, x: Any) -> Any:
            ut, dt, bt, ct = x
            new = mapped(
                (batch, width, states),
                lambda n, d, s: (
                    h[n, d, s] * te.exp(dt[n, d] * a[d, s]) + dt[n, d] * bt[n, s] * ut[n, d]
                ),
            )
            y = reduced((batch, width), (states,), lambda n, d, s: new[n, d, s] * ct[n, s])
            return new, y

        _, ys = ad.scan(step, first, xs)
        return mapped((batch, length, width), lambda n, t, d: ys[t, n, d] + skip[d] * u[n, t, d])

    def in_torch(torch: Any, u: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any) -> Any:
        h = torch.zeros((batch, width, states), dtype=u.dtype)
        decay = torch.exp(delta[..., None] * a)
        drive = (delta * u)[..., None] * b[:, :, None, :]
        ys = []
        for t in range(length):
            h = h * decay[:, t] + drive[:, t]
            ys.append((h * c[:, t, None]).sum(-1))
        return torch.stack(ys, 1) + skip * u

    def in_jax(jax: Any, u: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any) -> Any:
        numpy = jax.numpy

        def step(h: Any, x: Any) -> Any:
            ut, dt, bt, ct = x
            h = h * numpy.exp(dt[..., None] * a) + (dt * ut)[..., None] * bt[:, None]
            return h, (h * ct[:, None]).sum(-1)

        xs = tuple(numpy.moveaxis(v, 1, 0) for v in (u, delta, b, c))
        _, ys = jax.lax.scan(step, numpy.zeros((batch, width, states), u.dtype), xs)
        return numpy.moveaxis(ys, 0, 1) + skip * u

    return operator(
        {
            "u": Input((batch, length, width)),
            "delta": Input((batch, length, width), 0.02, 0.1),
            "a": Input((width, states), 0.2, -1.0),
            "b": Input((batch, length, states)),
            "c": Input((batch, length, states)),
            "skip": Input((width,)),
        },
        (batch, length, width),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def lorenz_96(batch: int, sites: int, steps: int) -> Case:
    """Runge-Kutta steps of Lorenz's model of weather on a circle, float64."""
    f = "float64"

    def ours(start: Any, force: Any) -> Any:
        shape = (batch, sites)

        def slope(x: Any) -> Any:
            return mapped(
                shape,
                lambda b, i: (
                    (x[b, te.indexmod(i + 1, sites)] - x[b, te.indexmod(i + sites - 2, sites)])
                    * x[b, te.indexmod(i + sites - 1, sites)]
                    - x[b, i]
                    + force[b]
                ),
            )

        def step(x: Any, _: Any) -> Any:
            k1 = slope(x)
            k2 = slope(mapped(shape, lambda b, i: x[b, i] + 0.005 * k1[b, i]))
            k3 = slope(mapped(shape, lambda b, i: x[b, i] + 0.005 * k2[b, i]))
            k4 = slope(mapped(shape, lambda b, i: x[b, i] + 0.01 * k3[b, i]))
            new = mapped(
                shape,
                lambda b, i: (
                    x[b, i] + 0.01 / 6.0 * (k1[b, i] + 2.0 * k2[b, i] + 2.0 * k3[b, i] + k4[b, i])
                ),
            )
            return new, None

        end, _ = ad.scan(step, start, length=steps)
        return reduced((), shape, lambda b, i: end[b, i] * end[b, i])

    def slope(roll: Any, x: Any, force: Any) -> Any:
        return (roll(x, -1) - roll(x, 2)) * roll(x, 1) - x + force[:, None]

    def one(roll: Any, x: Any, force: Any) -> Any:
        k1 = slope(roll, x, force)
        k2 = slope(roll, x + 0.005 * k1, force)
        k3 = slope(roll, x + 0.005 * k2, force)
        k4 = slope(roll, x + 0.01 * k3, force)
        return x + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def in_torch(torch: Any, start: Any, force: Any) -> Any:
        x = start
        for _ in range(steps):
            x = one(lambda v, s: torch.roll(v, s, 1), x, force)
        return (x * x).sum()

    def in_jax(jax: Any, start: Any, force: Any) -> Any:
        def roll(v, s):
            return jax.numpy.roll(v, s, 1)

        x, _ = jax.lax.scan(lambda x, _: (one(roll, x, force), None), start, None, length=steps)
        return (x * x).sum()

    return operator(
        {
            "start": Input((batch, sites), 1.0, 2.0, kind=f),
            "force": Input((batch,), 0.5, 8.0, kind=f),
        },
        (),
        ours,
        in_torch,
        in_jax,
    )


def tridiagonal(rows: int, n: int) -> Case:
    """Systems of three diagonals solved by elimination and substitution."""

    def ours(low: Any, diag: Any, up: Any, rhs: Any) -> Any:
        def t(x):
            return mapped((n, rows), lambda i, r: x[r, i])

        zero = mapped((rows,), lambda r: te.const(0.0, "float32"))

        def forward(state: Any, x: Any) -> Any:
            c, d = state
            m, g, u, b = x
            den = mapped((rows,), lambda r: g[r] - m[r] * c[r])
            nc = mapped((rows,), lambda r: u[r] / den[r])
            nd = mapped((rows,), lambda r: (b[r] - m[r] * d[r]) / den[r])
            return (nc, nd), (nc, nd)

        _, (cs, ds) = ad.scan(forward, (zero, zero), (t(low), t(diag), t(up), t(rhs)))

        def backward(y: Any, x: Any) -> Any:
            c, d = x
            new = mapped((rows,), lambda r: d[r] - c[r] * y[r])
            return new, new

        _, ys = ad.scan(backward, zero, (cs, ds), reverse=True)
        return mapped((rows, n), lambda r, i: ys[i, r])

    def in_torch(torch: Any, low: Any, diag: Any, up: Any, rhs: Any) -> Any:
        c = d = torch.zeros_like(low[:, 0])
        cs, ds = [], []
        for i in range(n):
            den = diag[:, i] - low[:, i] * c
            c, d = up[:, i] / den, (rhs[:, i] - low[:, i] * d) / den
            cs.append(c), ds.append(d)
        y = torch.zeros_like(d)
        ys = []
        for i in range(n - 1, -1, -1):
            y = ds[i] - cs[i] * y
            ys.append(y)
        return torch.stack(ys[::-1], 1)

    def in_jax(jax: Any, low: Any, diag: Any, up: Any, rhs: Any) -> Any:
        zero = jax.numpy.zeros_like(low[:, 0])

        def forward(state: Any, x: Any) -> Any:
            c, d = state
            m, g, u, b = x
            den = g - m * c
            new = (u / den, (b - m * d) / den)
            return new, new

        _, (cs, ds) = jax.lax.scan(forward, (zero, zero), (low.T, diag.T, up.T, rhs.T))

        def backward(y: Any, x: Any) -> Any:
            c, d = x
            y = d - c * y
            return y, y

        return jax.lax.scan(backward, zero, (cs, ds), reverse=True)[1].T

    box = (rows, n)
    return operator(
        {
            "low": Input(box, 0.3),
            "diag": Input(box, 0.2, 4.0),
            "up": Input(box, 0.3),
            "rhs": Input(box),
        },
        box,
        ours,
        in_torch,
        in_jax,
    )


CASES: dict[str, Callable[[], Case]] = {
    "neurons": lambda: neurons(512, 200),
    "thin-film": lambda: thin_film(2048, 12),
    "biquad": lambda: biquad(64, 1000),
    "crf": lambda: crf(60, 32, 24),
    "selective-scan": lambda: selective_scan(2, 128, 64, 16),
    "lorenz-96": lambda: lorenz_96(64, 40, 100),
    "tridiagonal": lambda: tridiagonal(512, 128),
}
