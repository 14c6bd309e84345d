"""Points, rays and curves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def chamfer(batch: int, n: int, m: int) -> Case:
    """Mean squared distance to the nearest point of the other cloud, both ways."""

    def ours(x: Any, y: Any) -> Any:
        def near(a: Any, b: Any, n: int, m: int) -> Any:
            def square(i: Any, p: Any, q: Any) -> Any:
                return sum((a[i, p, k] - b[i, q, k]) * (a[i, p, k] - b[i, q, k]) for k in range(3))

            low = reduced((batch, n), (m,), square, te.min)
            return reduced((), (batch, n), lambda i, p: low[i, p] / float(n))

        there, back = near(x, y, n, m), near(y, x, m, n)
        return mapped((), lambda: there() + back())

    def array(low: Any, x: Any, y: Any) -> Any:
        d = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
        return low(d, 2).mean(1).sum() + low(d, 1).mean(1).sum()

    return operator(
        {"x": Input((batch, n, 3)), "y": Input((batch, m, 3))},
        (),
        ours,
        lambda torch, *a: array(torch.amin, *a),
        lambda jax, *a: array(jax.numpy.min, *a),
        tolerance=1e-3,
    )


def interpolated_features(n: int, known: int, width: int) -> Case:
    """Features of points from three given neighbours, weighted by inverse square distances."""

    def ours(point: Any, source: Any, feature: Any, index: Any) -> Any:
        def weight(i: Any, k: Any) -> Any:
            gaps = [point[i, a] - source[index[i, k], a] for a in range(3)]
            return 1.0 / (sum(gap * gap for gap in gaps) + 1e-2)

        w = mapped((n, 3), weight)
        total = reduced((n,), (3,), lambda i, k: w[i, k])
        return reduced(
            (n, width), (3,), lambda i, c, k: w[i, k] / total[i] * feature[index[i, k], c]
        )

    def array(point: Any, source: Any, feature: Any, index: Any) -> Any:
        w = 1 / (((point[:, None] - source[index]) ** 2).sum(-1) + 1e-2)
        share = w / w.sum(1)[:, None]
        return (share[..., None] * feature[index]).sum(1)

    return operator(
        {
            "point": Input((n, 3)),
            "source": Input((known, 3)),
            "feature": Input((known, width)),
            "index": Input((n, 3), below=known),
        },
        (n, width),
        ours,
        lambda torch, *a: array(*a),
        lambda jax, *a: array(*a),
        tolerance=1e-3,
    )


def soft_boxes(rays: int, boxes: int) -> Case:
    """How much of each box a ray crosses, by slabs, summed over boxes with their densities."""

    def ours(origin: Any, inverse: Any, low: Any, high: Any, density: Any) -> Any:
        def crossed(r: Any, b: Any) -> Any:
            near, far = te.const(0.0, "float32"), te.const(1e3, "float32")
            for a in range(3):
                one = (low[b, a] - origin[r, a]) * inverse[r, a]
                two = (high[b, a] - origin[r, a]) * inverse[r, a]
                near = te.max(near, te.min(one, two))
                far = te.min(far, te.max(one, two))
            return density[b] * te.max(far - near, te.const(0.0, "float32"))

        total = reduced((rays,), (boxes,), crossed)
        return mapped((rays,), lambda r: te.exp(-total[r]))

    def in_torch(torch: Any, origin: Any, inverse: Any, low: Any, high: Any, density: Any) -> Any:
        one = (low - origin[:, None]) * inverse[:, None]
        two = (high - origin[:, None]) * inverse[:, None]
        near = torch.minimum(one, two).amax(-1).clamp_min(0.0)
        far = torch.maximum(one, two).amin(-1).clamp_max(1e3)
        return torch.exp(-(torch.relu(far - near) @ density))

    def in_jax(jax: Any, origin: Any, inverse: Any, low: Any, high: Any, density: Any) -> Any:
        numpy = jax.numpy
        one = (low - origin[:, None]) * inverse[:, None]
        two = (high - origin[:, None]) * inverse[:, None]
        near = numpy.maximum(numpy.minimum(one, two).max(-1), 0.0)
        far = numpy.minimum(numpy.maximum(one, two).min(-1), 1e3)
        return numpy.exp(-(jax.nn.relu(far - near) @ density))

    return operator(
        {
            "origin": Input((rays, 3)),
            "inverse": Input((rays, 3), 1.0, 2.0),
            "low": Input((boxes, 3), 0.3, -1.0),
            "high": Input((boxes, 3), 0.3, 1.0),
            "density": Input((boxes,), 0.1, 0.3),
        },
        (rays,),
        ours,
        in_torch,
        in_jax,
        tolerance=1e-3,
    )


def spline_curves(curves: int, knots: int, samples: int) -> Case:
    """Uniform cubic B-splines in the plane at given places of the parameter, float64."""
    double = "float64"

    def ours(control: Any, t: Any, segment: Any) -> Any:
        def weight(k: int, u: Any) -> Any:
            v = 1.0 - u
            return (
                v * v * v / 6.0,
                (3.0 * u * u * u - 6.0 * u * u + 4.0) / 6.0,
                (3.0 * v * v * v - 6.0 * v * v + 4.0) / 6.0,
                u * u * u / 6.0,
            )[k]

        return mapped(
            (curves, samples, 2),
            lambda c, s, a: sum(
                weight(k, t[c, s]) * control[c, segment[c, s] + k, a] for k in range(4)
            ),
        )

    def array(stack: Any, pick: Any, control: Any, t: Any, segment: Any) -> Any:
        v = 1 - t
        weights = stack(
            [
                v**3 / 6,
                (3 * t**3 - 6 * t**2 + 4) / 6,
                (3 * v**3 - 6 * v**2 + 4) / 6,
                t**3 / 6,
            ]
        )
        return sum(weights[k][..., None] * pick(control, segment + k) for k in range(4))

    case = operator(
        {
            "control": Input((curves, knots, 2), kind=double),
            "t": Input((curves, samples), 0.2, 0.5, kind=double),
            "segment": Input((curves, samples), below=knots - 3),
        },
        (curves, samples, 2),
        ours,
        lambda torch, *a: array(
            torch.stack,
            lambda p, i: torch.gather(p, 1, i[..., None].expand(curves, samples, 2)),
            *a,
        ),
        lambda jax, *a: array(
            jax.numpy.stack, lambda p, i: jax.numpy.take_along_axis(p, i[..., None], 1), *a
        ),
        tolerance=1e-10,
    )
    return dataclasses.replace(case, head=Input((curves, samples, 2), kind=double))


def distance_geometry(n: int) -> Case:
    """Huber losses of the distances between points beside given ones."""

    def ours(x: Any, target: Any, weight: Any) -> Any:
        def loss(i: Any, j: Any) -> Any:
            square = sum((x[i, k] - x[j, k]) * (x[i, k] - x[j, k]) for k in range(3))
            gap = te.abs(te.sqrt(square + 1e-4) - target[i, j])
            return weight[i, j] * te.if_then_else(gap < 0.5, gap * gap, gap - 0.25)

        return reduced((), (n, n), loss)

    def array(numpy: Any, x: Any, target: Any, weight: Any) -> Any:
        d = numpy.sqrt(((x[:, None] - x) ** 2).sum(-1) + 1e-4)
        gap = abs(d - target)
        return (weight * numpy.where(gap < 0.5, gap * gap, gap - 0.25)).sum()

    return operator(
        {
            "x": Input((n, 3)),
            "target": Input((n, n), 0.5, 2.0),
            "weight": Input((n, n), 0.1, 0.5),
        },
        (),
        ours,
        lambda torch, *a: array(torch, *a),
        lambda jax, *a: array(jax.numpy, *a),
        fixed=("target", "weight"),
        tolerance=1e-3,
    )


def ewald(n: int) -> Case:
    """The part in real space of a sum of Coulomb energies in a periodic box, float64."""
    double, side, reach, alpha = "float64", 4.0, 2.0, 1.5

    def ours(x: Any, q: Any) -> Any:
        def energy(i: Any, j: Any) -> Any:
            gaps = [x[i, k] - x[j, k] for k in range(3)]
            wrapped = [gap - side * te.floor(gap / side + 0.5) for gap in gaps]
            r2 = sum(gap * gap for gap in wrapped)
            inside = te.all(i != j, r2 < reach * reach)
            r = te.sqrt(te.if_then_else(inside, r2, 1.0))
            return te.if_then_else(inside, q[i] * q[j] * (1.0 - te.erf(alpha * r)) / r, 0.0)

        return reduced((), (n, n), energy)

    def array(numpy: Any, erf: Any, eye: Any, x: Any, q: Any) -> Any:
        gap = x[:, None] - x
        r2 = ((gap - side * numpy.floor(gap / side + 0.5)) ** 2).sum(-1)
        inside = ~eye & (r2 < reach * reach)
        r = numpy.sqrt(numpy.where(inside, r2, 1.0))
        return numpy.where(inside, q[:, None] * q * (1 - erf(alpha * r)) / r, 0.0).sum()

    return operator(
        {"x": Input((n, 3), 2.0, kind=double), "q": Input((n,), kind=double)},
        (),
        ours,
        lambda torch, *a: array(torch, torch.erf, torch.eye(n, dtype=torch.bool), *a),
        lambda jax, *a: array(jax.numpy, jax.lax.erf, jax.numpy.eye(n, dtype=bool), *a),
        tolerance=1e-9,
    )


CASES: dict[str, Callable[[], Case]] = {
    "chamfer": lambda: chamfer(4, 257, 300),
    "interpolated-features": lambda: interpolated_features(4000, 500, 33),
    "soft-boxes": lambda: soft_boxes(2000, 33),
    "spline-curves": lambda: spline_curves(100, 33, 257),
    "distance-geometry": lambda: distance_geometry(300),
    "ewald": lambda: ewald(257),
}
