"""Grids: simulation steps on them, and filters of images without products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, topi

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced

D2Q9 = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
W9 = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4


def lattice_boltzmann(n: int) -> Case:
    """Periodic streaming and a relaxation towards equilibrium; omega per cell."""

    def ours(f: Any, omega: Any) -> Any:
        # moments of the streamed populations, then collision
        def at(q: Any, i: Any, j: Any) -> Any:
            dx, dy = D2Q9[q]
            return f[q, te.indexmod(i - dx + n, n), te.indexmod(j - dy + n, n)]

        rho = mapped((n, n), lambda i, j: sum((at(q, i, j) for q in range(1, 9)), at(0, i, j)))

        def moment(axis: Any) -> Any:
            def body(i: Any, j: Any) -> Any:
                total = te.const(0.0, "float32")
                for q in range(9):
                    c = D2Q9[q][axis]
                    if c:
                        total = total + float(c) * at(q, i, j)
                return total / rho[i, j]

            return body

        u = mapped((n, n), moment(0))
        v = mapped((n, n), moment(1))

        def pieces(q: Any) -> Any:
            dx, dy = D2Q9[q]

            def body(i: Any, j: Any) -> Any:
                cu = float(dx) * u[i, j] + float(dy) * v[i, j]
                uu = u[i, j] * u[i, j] + v[i, j] * v[i, j]
                eq = W9[q] * rho[i, j] * (1.0 + 3.0 * cu + 4.5 * cu * cu - 1.5 * uu)
                own = at(q, i, j)
                return own + omega[i, j] * (eq - own)

            return mapped((n, n), body)

        return topi.stack([pieces(q) for q in range(9)], axis=0)

    def array(numpy: Any, roll: Any, f: Any, omega: Any) -> Any:
        s = [roll(f[q], D2Q9[q]) for q in range(9)]
        rho = sum(s[1:], s[0])
        u = sum(D2Q9[q][0] * s[q] for q in range(9) if D2Q9[q][0]) / rho
        v = sum(D2Q9[q][1] * s[q] for q in range(9) if D2Q9[q][1]) / rho
        uu = u * u + v * v
        out = []
        for q in range(9):
            cu = D2Q9[q][0] * u + D2Q9[q][1] * v
            eq = W9[q] * rho * (1 + 3 * cu + 4.5 * cu * cu - 1.5 * uu)
            out.append(s[q] + omega * (eq - s[q]))
        return numpy.stack(out)

    return operator(
        {"f": Input((9, n, n), 0.02, 0.2), "omega": Input((n, n), 0.1, 1.0)},
        (9, n, n),
        ours,
        lambda torch, *a: array(torch, lambda x, s: torch.roll(x, s, (0, 1)), *a),
        lambda jax, *a: array(jax.numpy, lambda x, s: jax.numpy.roll(x, s, (0, 1)), *a),
        tolerance=1e-3,
    )


def wave_3d(n: int) -> Case:
    """A leapfrog step of the wave equation, fourth order, borders clamped, speed per cell."""
    c0, c1, c2 = -2.5, 4 / 3, -1 / 12

    def ours(u: Any, before: Any, c: Any) -> Any:
        def clamp(i):
            return te.max(te.min(i, n - 1), 0)

        def laplace(i: Any, j: Any, k: Any) -> Any:
            total = 3.0 * c0 * u[i, j, k]
            for s, f in ((1, c1), (2, c2)):
                for d in (-s, s):
                    total = total + f * (
                        u[clamp(i + d), j, k] + u[i, clamp(j + d), k] + u[i, j, clamp(k + d)]
                    )
            return total

        return mapped(
            (n, n, n),
            lambda i, j, k: (
                2.0 * u[i, j, k] - before[i, j, k] + c[i, j, k] * c[i, j, k] * laplace(i, j, k)
            ),
        )

    def array(pad: Any, u: Any, before: Any, c: Any) -> Any:
        p = pad(u)
        m = slice(2, 2 + n)
        total = 3 * c0 * u
        for s, f in ((1, c1), (2, c2)):
            for d in (-s, s):
                o = slice(2 + d, 2 + d + n)
                total = total + f * (p[o, m, m] + p[m, o, m] + p[m, m, o])
        return 2 * u - before + c * c * total

    box = (n, n, n)
    return operator(
        {"u": Input(box), "before": Input(box), "c": Input(box, 0.1, 0.4)},
        box,
        ours,
        lambda torch, *a: array(
            lambda x: torch.nn.functional.pad(x[None, None], (2,) * 6, mode="replicate")[0, 0], *a
        ),
        lambda jax, *a: array(lambda x: jax.numpy.pad(x, 2, mode="edge"), *a),
    )


def poisson(n: int, sweeps: int) -> Case:
    """Weighted Jacobi sweeps for a Poisson equation with variable coefficients, zero borders."""

    def ours(b: Any, k: Any) -> Any:
        def swept(u: Any) -> Any:
            def read(i: Any, j: Any) -> Any:
                inside = te.all(i >= 0, i < n, j >= 0, j < n)
                return te.if_then_else(inside, u[i, j], 0.0)

            def sweep(i: Any, j: Any) -> Any:
                return 0.2 * u[i, j] + 0.8 * k[i, j] * (
                    read(i - 1, j) + read(i + 1, j) + read(i, j - 1) + read(i, j + 1) + b[i, j]
                )

            return mapped((n, n), sweep)

        u = mapped((n, n), lambda i, j: te.const(0.0, "float32"))
        for _ in range(sweeps):
            u = swept(u)
        return reduced((), (n, n), lambda i, j: (u[i, j] - 0.5) * (u[i, j] - 0.5))

    def array(numpy: Any, pad: Any, b: Any, k: Any) -> Any:
        u = numpy.zeros_like(b)
        for _ in range(sweeps):
            p = pad(u)
            u = 0.2 * u + 0.8 * k * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] + b)
        return ((u - 0.5) ** 2).sum()

    return operator(
        {"b": Input((n, n)), "k": Input((n, n), 0.02, 0.25)},
        (),
        ours,
        lambda torch, *a: array(torch, lambda x: torch.nn.functional.pad(x, (1, 1, 1, 1)), *a),
        lambda jax, *a: array(jax.numpy, lambda x: jax.numpy.pad(x, 1), *a),
    )


def median(batch: int, size: int) -> Case:
    """The median of 3 x 3 windows by a network of minima and maxima, inner pixels."""
    net = [
        (1, 2),
        (4, 5),
        (7, 8),
        (0, 1),
        (3, 4),
        (6, 7),
        (1, 2),
        (4, 5),
        (7, 8),
        (0, 3),
        (5, 8),
        (4, 7),
        (3, 6),
        (1, 4),
        (2, 5),
        (4, 7),
        (4, 2),
        (6, 4),
        (4, 2),
    ]
    out = size - 2

    def run(v: Any, low: Any, high: Any) -> Any:
        for a, b in net:
            v[a], v[b] = low(v[a], v[b]), high(v[a], v[b])
        return v[4]

    def ours(x: Any) -> Any:
        def plane(k: int) -> Any:
            return mapped((batch, out, out), lambda n, i, j: x[n, i + k // 3, j + k % 3])

        def low(a, b):
            return mapped((batch, out, out), lambda n, i, j: te.min(a[n, i, j], b[n, i, j]))

        def high(a, b):
            return mapped((batch, out, out), lambda n, i, j: te.max(a[n, i, j], b[n, i, j]))

        return run([plane(k) for k in range(9)], low, high)

    def array(numpy: Any, x: Any) -> Any:
        v = [x[:, k // 3 : k // 3 + out, k % 3 : k % 3 + out] for k in range(9)]
        return run(v, numpy.minimum, numpy.maximum)

    return operator(
        {"x": Input((batch, size, size))},
        (batch, out, out),
        ours,
        lambda torch, *a: array(torch, *a),
        lambda jax, *a: array(jax.numpy, *a),
    )


def harris(batch: int, size: int) -> Case:
    """Harris corner response with Sobel slopes and a 5 x 5 box, inner pixels."""
    a, b = size - 2, size - 6

    def ours(x: Any) -> Any:
        def dx(n: Any, i: Any, j: Any) -> Any:
            return (
                x[n, i, j + 2]
                - x[n, i, j]
                + 2.0 * (x[n, i + 1, j + 2] - x[n, i + 1, j])
                + x[n, i + 2, j + 2]
                - x[n, i + 2, j]
            )

        def dy(n: Any, i: Any, j: Any) -> Any:
            return (
                x[n, i + 2, j]
                - x[n, i, j]
                + 2.0 * (x[n, i + 2, j + 1] - x[n, i, j + 1])
                + x[n, i + 2, j + 2]
                - x[n, i, j + 2]
            )

        sx, sy = mapped((batch, a, a), dx), mapped((batch, a, a), dy)

        def box(p: Any, q: Any) -> Any:
            return reduced(
                (batch, b, b), (5, 5), lambda n, i, j, k, m: p[n, i + k, j + m] * q[n, i + k, j + m]
            )

        xx, yy, xy = box(sx, sx), box(sy, sy), box(sx, sy)
        return mapped(
            (batch, b, b),
            lambda n, i, j: (
                xx[n, i, j] * yy[n, i, j]
                - xy[n, i, j] * xy[n, i, j]
                - 0.05 * (xx[n, i, j] + yy[n, i, j]) * (xx[n, i, j] + yy[n, i, j])
            ),
        )

    def array(pool: Any, x: Any) -> Any:
        dx = (
            x[:, :-2, 2:]
            - x[:, :-2, :-2]
            + 2 * (x[:, 1:-1, 2:] - x[:, 1:-1, :-2])
            + x[:, 2:, 2:]
            - x[:, 2:, :-2]
        )
        dy = (
            x[:, 2:, :-2]
            - x[:, :-2, :-2]
            + 2 * (x[:, 2:, 1:-1] - x[:, :-2, 1:-1])
            + x[:, 2:, 2:]
            - x[:, :-2, 2:]
        )
        xx, yy, xy = pool(dx * dx), pool(dy * dy), pool(dx * dy)
        return xx * yy - xy * xy - 0.05 * (xx + yy) ** 2

    def slid(x: Any) -> Any:
        rows = sum(x[:, k : k + b] for k in range(5))
        return sum(rows[:, :, k : k + b] for k in range(5))

    return operator(
        {"x": Input((batch, size, size))},
        (batch, b, b),
        ours,
        lambda torch, *v: array(slid, *v),
        lambda jax, *v: array(slid, *v),
        tolerance=1e-3,
    )


def dilation(batch: int, size: int, reach: int) -> Case:
    """Grey dilation of images by a learnt structuring element, clamped at borders."""
    edge = 2 * reach + 1
    shape = (batch, size, size)

    def ours(x: Any, s: Any) -> Any:
        def clamp(i):
            return te.max(te.min(i, size - 1), 0)

        return reduced(
            shape,
            (edge, edge),
            lambda n, i, j, k, m: x[n, clamp(i + k - reach), clamp(j + m - reach)] + s[k, m],
            te.max,
        )

    def array(pad: Any, maximum: Any, stack: Any, x: Any, s: Any) -> Any:
        p = pad(x)
        views = [
            p[:, k : k + size, m : m + size] + s[k, m] for k in range(edge) for m in range(edge)
        ]
        top = views[0]
        for v in views[1:]:
            top = maximum(top, v)
        return top

    return operator(
        {"x": Input(shape), "s": Input((edge, edge), 0.5)},
        shape,
        ours,
        lambda torch, *a: array(
            lambda x: torch.nn.functional.pad(x[None], (reach,) * 4, mode="replicate")[0],
            torch.maximum,
            torch.stack,
            *a,
        ),
        lambda jax, *a: array(
            lambda x: jax.numpy.pad(x, ((0, 0), (reach, reach), (reach, reach)), mode="edge"),
            jax.numpy.maximum,
            None,
            *a,
        ),
    )


def bicubic(channels: int, size: int, factor: int) -> Case:
    """Catmull-Rom upsampling by a whole factor with clamped borders."""
    big = size * factor

    def ours(x: Any, w: Any) -> Any:
        def clamp(i):
            return te.max(te.min(i, size - 1), 0)

        down = reduced(
            (channels, big, size),
            (4,),
            lambda c, i, j, k: (
                w[te.indexmod(i, factor), k] * x[c, clamp(te.indexdiv(i, factor) + k - 1), j]
            ),
        )
        return reduced(
            (channels, big, big),
            (4,),
            lambda c, i, j, k: (
                w[te.indexmod(j, factor), k] * down[c, i, clamp(te.indexdiv(j, factor) + k - 1)]
            ),
        )

    def array(numpy: Any, pad: Any, reshape: Any, x: Any, w: Any) -> Any:
        p = pad(x, ((0, 0), (1, 2), (0, 0)))
        parts = sum(
            w[:, k][:, None, None, None] * p[None, :, k : k + size] for k in range(4)
        )  # f c i j
        down = (
            parts.transpose(0, 1).transpose(1, 2).reshape(channels, big, size)
            if reshape
            else numpy.transpose(parts, (1, 2, 0, 3)).reshape(channels, big, size)
        )
        p = pad(down, ((0, 0), (0, 0), (1, 2)))
        parts = sum(w[:, k][None, None, None, :] * p[:, :, k : k + size, None] for k in range(4))
        return parts.reshape(channels, big, big)

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        def pad(v: Any, widths: Any) -> Any:
            (_, _), (a, b), (c, d) = widths
            return torch.nn.functional.pad(v[None], (c, d, a, b), mode="replicate")[0]

        return array(torch, pad, True, x, w)

    def in_jax(jax: Any, x: Any, w: Any) -> Any:
        return array(
            jax.numpy, lambda v, widths: jax.numpy.pad(v, widths, mode="edge"), False, x, w
        )

    return operator(
        {"x": Input((channels, size, size)), "w": Input((factor, 4))},
        (channels, big, big),
        ours,
        in_torch,
        in_jax,
    )


def response_norm(batch: int, channels: int, size: int, reach: int) -> Case:
    """Local response normalisation across channels."""
    shape = (batch, channels, size, size)

    def ours(x: Any) -> Any:
        total = reduced(
            shape,
            (2 * reach + 1,),
            lambda n, c, i, j, k: te.if_then_else(
                te.all(c + k >= reach, c + k < channels + reach),
                x[n, c + k - reach, i, j] * x[n, c + k - reach, i, j],
                0.0,
            ),
        )
        return mapped(
            shape,
            lambda n, c, i, j: (
                x[n, c, i, j] * te.power(2.0 + 1e-2 * total[n, c, i, j], te.const(-0.75, "float32"))
            ),
        )

    def array(pad: Any, x: Any) -> Any:
        p = pad(x * x)
        total = sum(p[:, k : k + channels] for k in range(2 * reach + 1))
        return x * (2 + 1e-2 * total) ** -0.75

    return operator(
        {"x": Input(shape)},
        shape,
        ours,
        lambda torch, x: array(lambda v: torch.nn.functional.pad(v, (0, 0, 0, 0, reach, reach)), x),
        lambda jax, x: array(
            lambda v: jax.numpy.pad(v, ((0, 0), (reach, reach), (0, 0), (0, 0))), x
        ),
    )


CASES: dict[str, Callable[[], Case]] = {
    "lattice-boltzmann": lambda: lattice_boltzmann(96),
    "wave-3d": lambda: wave_3d(48),
    "poisson": lambda: poisson(128, 4),
    "median": lambda: median(4, 130),
    "harris": lambda: harris(4, 160),
    "dilation": lambda: dilation(4, 96, 2),
    "bicubic": lambda: bicubic(3, 96, 2),
    "response-norm": lambda: response_norm(8, 64, 28, 2),
}
