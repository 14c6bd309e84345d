"""Physics and geometry: forces between particles, fields on grids, rotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def gravity(n: int) -> Case:
    """The acceleration of each of n bodies by all, softened."""

    def ours(x: Any, m: Any) -> Any:
        square = reduced((n, n), (3,), lambda i, j, c: (x[j, c] - x[i, c]) * (x[j, c] - x[i, c]))
        pull = mapped(
            (n, n),
            lambda i, j: m[j] / ((square[i, j] + 0.01) * te.sqrt(square[i, j] + 0.01)),
        )
        return reduced((n, 3), (n,), lambda i, c, j: pull[i, j] * (x[j, c] - x[i, c]))

    def array(einsum: Any, x: Any, m: Any) -> Any:
        d = x - x[:, None]
        square = (d * d).sum(2) + 0.01
        return einsum("ij,ijc->ic", m * square**-1.5, d)

    return operator(
        {"x": Input((n, 3)), "m": Input((n,), 0.1, 1.0)},
        (n, 3),
        ours,
        lambda torch, x, m: array(torch.einsum, x, m),
        lambda jax, x, m: array(jax.numpy.einsum, x, m),
        tolerance=1e-3,
    )


def lennard_jones(n: int) -> Case:
    """The energy of pairs inside of a periodic box, up to a distance."""
    size, cut = 10.0, 6.0

    def ours(x: Any, eps: Any) -> Any:
        def square(i: Any, j: Any) -> Any:
            total: Any = te.const(0.0, "float32")
            for c in range(3):
                d = x[i, c] - x[j, c]
                d = d - te.round(d * (1.0 / size)) * size
                total = total + d * d
            return total + 0.5

        def body(i: Any, j: Any) -> Any:
            s = square(i, j)
            inverse = 1.0 / (s * s * s)
            energy = eps[i] * eps[j] * (inverse * inverse - inverse)
            return te.if_then_else(te.all(i < j, s < cut), energy, 0.0)

        return reduced((), (n, n), body)

    def array(numpy: Any, x: Any, eps: Any) -> Any:
        d = x[:, None] - x
        d = d - numpy.round(d * (1.0 / size)) * size
        s = (d * d).sum(2) + 0.5
        inverse = 1.0 / (s * s * s)
        energy = eps[:, None] * eps * (inverse * inverse - inverse)
        span = numpy.arange(n)
        return numpy.where((span[:, None] < span) & (s < cut), energy, 0.0).sum()

    return operator(
        {"x": Input((n, 3), 3.0), "eps": Input((n,), 0.1, 1.0)},
        (),
        ours,
        lambda torch, x, eps: array(torch, x, eps),
        lambda jax, x, eps: array(jax.numpy, x, eps),
        tolerance=1e-3,
    )


def shallow_water(size: int) -> Case:
    """A step of the shallow water equations on a periodic grid; the squared change is the loss."""

    def ours(h: Any, u: Any, v: Any) -> Any:
        def ddx(f: Callable[[Any, Any], Any], i: Any, j: Any) -> Any:
            return (f(i, (j + 1) % size) - f(i, (j + size - 1) % size)) * 0.5

        def ddy(f: Callable[[Any, Any], Any], i: Any, j: Any) -> Any:
            return (f((i + 1) % size, j) - f((i + size - 1) % size, j)) * 0.5

        def height(i: Any, j: Any) -> Any:
            return h[i, j]

        def body(i: Any, j: Any) -> Any:
            dh = ddx(lambda a, b: h[a, b] * u[a, b], i, j) + ddy(
                lambda a, b: h[a, b] * v[a, b], i, j
            )
            du = (
                u[i, j] * ddx(lambda a, b: u[a, b], i, j)
                + v[i, j] * ddy(lambda a, b: u[a, b], i, j)
                + 9.8 * ddx(height, i, j)
            )
            dv = (
                u[i, j] * ddx(lambda a, b: v[a, b], i, j)
                + v[i, j] * ddy(lambda a, b: v[a, b], i, j)
                + 9.8 * ddy(height, i, j)
            )
            return dh * dh + du * du + dv * dv

        return reduced((), (size, size), body)

    def array(roll: Any, h: Any, u: Any, v: Any) -> Any:
        def ddx(f: Any) -> Any:
            return (roll(f, -1, 1) - roll(f, 1, 1)) * 0.5

        def ddy(f: Any) -> Any:
            return (roll(f, -1, 0) - roll(f, 1, 0)) * 0.5

        dh = ddx(h * u) + ddy(h * v)
        du = u * ddx(u) + v * ddy(u) + 9.8 * ddx(h)
        dv = u * ddx(v) + v * ddy(v) + 9.8 * ddy(h)
        return (dh * dh + du * du + dv * dv).sum()

    return operator(
        {"h": Input((size, size), 0.1, 1.0), "u": Input((size, size)), "v": Input((size, size))},
        (),
        ours,
        lambda torch, *arrays: array(torch.roll, *arrays),
        lambda jax, *arrays: array(jax.numpy.roll, *arrays),
        tolerance=1e-3,
    )


def quaternions(batch: int, joints: int, points: int) -> Case:
    """Points per joint turned by unit quaternions and blended by weights."""

    def ours(q: Any, p: Any, w: Any) -> Any:
        square = reduced((batch, joints), (4,), lambda b, n, k: q[b, n, k] * q[b, n, k])

        def entry(b: Any, n: Any, r: int, c: int) -> Any:
            scale = 2.0 / square[b, n]
            s, a = q[b, n, 0], [q[b, n, k] for k in (1, 2, 3)]
            if r == c:
                one, two = (a[k] for k in range(3) if k != r)
                return 1.0 - scale * (one * one + two * two)
            third = 3 - r - c
            sign = -1.0 if (c - r) % 3 == 1 else 1.0
            return scale * (a[r] * a[c] + sign * s * a[third])

        def matrix(b: Any, n: Any, r: Any, c: Any) -> Any:
            value: Any = te.const(0.0, "float32")
            for row in range(3):
                for column in range(3):
                    here = te.all(r == row, c == column)
                    value = te.if_then_else(here, entry(b, n, row, column), value)
            return value

        turned = mapped((batch, joints, 3, 3), matrix)
        return reduced(
            (batch, points, 3),
            (joints, 3),
            lambda b, i, r, n, c: w[i, n] * turned[b, n, r, c] * p[i, n, c],
        )

    def array(stack: Any, einsum: Any, q: Any, p: Any, w: Any) -> Any:
        s, x, y, z = (q[..., k] for k in range(4))
        f = 2.0 / (q * q).sum(-1)
        rows = [
            stack([1 - f * (y * y + z * z), f * (x * y - s * z), f * (x * z + s * y)], -1),
            stack([f * (x * y + s * z), 1 - f * (x * x + z * z), f * (y * z - s * x)], -1),
            stack([f * (x * z - s * y), f * (y * z + s * x), 1 - f * (x * x + y * y)], -1),
        ]
        return einsum("in,bnrc,inc->bir", w, stack(rows, -2), p)

    return operator(
        {
            "q": Input((batch, joints, 4)),
            "p": Input((points, joints, 3)),
            "w": Input((points, joints)),
        },
        (batch, points, 3),
        ours,
        lambda torch, *arrays: array(torch.stack, torch.einsum, *arrays),
        lambda jax, *arrays: array(jax.numpy.stack, jax.numpy.einsum, *arrays),
        tolerance=1e-3,
    )


def springs(rows: int, columns: int) -> Case:
    """The energy of springs between neighbours of a cloth, in six directions."""
    ways = ((1, 0), (0, 1), (1, 1), (1, -1), (2, 0), (0, 2))

    def ours(x: Any, length: Any, stiffness: Any) -> Any:
        total: Any = None
        for way, (down, right) in enumerate(ways):

            def energy(i: Any, j: Any, way: int = way, down: int = down, right: int = right) -> Any:
                first, second = j + max(-right, 0), j + max(right, 0)
                apart = [x[i + down, second, c] - x[i, first, c] for c in range(3)]
                square = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2]
                stretch = te.sqrt(square + 1e-6) - length[way]
                return stiffness[way] * stretch * stretch

            axes = [te.reduce_axis((0, rows - down)), te.reduce_axis((0, columns - abs(right)))]
            part = te.compute((), lambda: te.sum(energy(*axes), axis=axes), "energy")  # noqa: B023
            total = part if total is None else total + part
        return total

    def array(sqrt: Any, x: Any, length: Any, stiffness: Any) -> Any:
        total = 0.0
        for way, (down, right) in enumerate(ways):
            first = x[: rows - down, max(-right, 0) : columns - max(right, 0)]
            apart = x[down:, max(right, 0) : columns + min(right, 0)] - first
            stretch = sqrt((apart * apart).sum(-1) + 1e-6) - length[way]
            total = total + (stiffness[way] * stretch * stretch).sum()
        return total

    return operator(
        {
            "x": Input((rows, columns, 3)),
            "length": Input((6,), 0.1, 1.0),
            "stiffness": Input((6,), 0.1, 1.0),
        },
        (),
        ours,
        lambda torch, *arrays: array(torch.sqrt, *arrays),
        lambda jax, *arrays: array(jax.numpy.sqrt, *arrays),
        tolerance=1e-3,
    )


CASES: dict[str, Callable[[], Case]] = {
    "gravity": lambda: gravity(500),
    "lennard-jones": lambda: lennard_jones(600),
    "shallow-water": lambda: shallow_water(256),
    "springs": lambda: springs(101, 87),
    "quaternion-skinning": lambda: quaternions(32, 16, 500),
}
