"""Rendering and imaging: what is seen of volumes, splats, colours and projections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def volume_rendering(rays: int, samples: int) -> Case:
    """Colours of rays through a field of densities: transmittance is a prefix sum."""

    def ours(sigma: Any, rgb: Any, delta: Any) -> Any:
        depth = mapped(
            (rays, samples),
            lambda r, s: te.max(sigma[r, s], te.const(0.0, "float32")) * delta[r, s],
        )
        before = reduced(
            (rays, samples), (samples,), lambda r, s, k: te.if_then_else(k < s, depth[r, k], 0.0)
        )
        weight = mapped(
            (rays, samples), lambda r, s: te.exp(-before[r, s]) * (1.0 - te.exp(-depth[r, s]))
        )
        return reduced(
            (rays, 3), (samples,), lambda r, c, s: weight[r, s] * te.sigmoid(rgb[r, s, c])
        )

    def array(
        numpy: Any, relu: Any, sigmoid: Any, einsum: Any, sigma: Any, rgb: Any, delta: Any
    ) -> Any:
        depth = relu(sigma) * delta
        before = numpy.cumsum(depth, 1) - depth
        weight = numpy.exp(-before) * (1 - numpy.exp(-depth))
        return (weight[..., None] * sigmoid(rgb)).sum(1)

    return operator(
        {
            "sigma": Input((rays, samples)),
            "rgb": Input((rays, samples, 3)),
            "delta": Input((rays, samples), 0.01, 0.05),
        },
        (rays, 3),
        ours,
        lambda torch, *a: array(torch, torch.relu, torch.sigmoid, torch.einsum, *a),
        lambda jax, *a: array(jax.numpy, jax.nn.relu, jax.nn.sigmoid, jax.numpy.einsum, *a),
        fixed=("delta",),
    )


def splatting(height: int, width: int, count: int) -> Case:
    """Sorted anisotropic gaussians blended front to back on a grid of pixels."""

    def ours(mean: Any, conic: Any, opacity: Any, colour: Any) -> Any:
        def alpha(p: Any, q: Any, k: Any) -> Any:
            dx = q.astype("float32") * (1.0 / width) - mean[k, 0]
            dy = p.astype("float32") * (1.0 / height) - mean[k, 1]
            power = conic[k, 0] * dx * dx + 0.5 * conic[k, 1] * dx * dy + conic[k, 2] * dy * dy
            return te.sigmoid(opacity[k]) * te.exp(-0.5 * power)

        a = mapped((height, width, count), alpha)
        log = mapped((height, width, count), lambda p, q, k: te.log(1.0 - a[p, q, k]))
        before = reduced(
            (height, width, count),
            (count,),
            lambda p, q, k, j: te.if_then_else(j < k, log[p, q, j], 0.0),
        )
        return reduced(
            (height, width, 3),
            (count,),
            lambda p, q, c, k: te.exp(before[p, q, k]) * a[p, q, k] * colour[k, c],
        )

    def array(
        numpy: Any, arange: Any, sigmoid: Any, mean: Any, conic: Any, opacity: Any, colour: Any
    ) -> Any:
        x = arange(width, mean) / width
        y = arange(height, mean) / height
        dx = x[None, :, None] - mean[:, 0]
        dy = y[:, None, None] - mean[:, 1]
        power = conic[:, 0] * dx * dx + 0.5 * conic[:, 1] * dx * dy + conic[:, 2] * dy * dy
        a = sigmoid(opacity) * numpy.exp(-0.5 * power)
        log = numpy.log1p(-a)
        before = numpy.cumsum(log, -1) - log
        return (numpy.exp(before) * a) @ colour

    return operator(
        {
            "mean": Input((count, 2), 0.3, 0.5),
            "conic": Input((count, 3), 2.0, 30.0),
            "opacity": Input((count,)),
            "colour": Input((count, 3)),
        },
        (height, width, 3),
        ours,
        lambda torch, *a: array(torch, lambda n, x: torch.arange(n).to(x.dtype), torch.sigmoid, *a),
        lambda jax, *a: array(
            jax.numpy, lambda n, x: jax.numpy.arange(n).astype(x.dtype), jax.nn.sigmoid, *a
        ),
        tolerance=1e-3,
    )


def lut_3d(pixels: int, size: int) -> Case:
    """A colour cube looked up by trilinear interpolation, pixel by pixel."""
    top = size - 1

    def ours(image: Any, cube: Any) -> Any:
        place = mapped(
            (pixels, 3), lambda p, c: te.max(te.min(image[p, c], 0.9999), 0.0001) * float(top)
        )
        low = mapped((pixels, 3), lambda p, c: te.floor(place[p, c]).astype("int32"))
        part = mapped((pixels, 3), lambda p, c: place[p, c] - te.floor(place[p, c]))

        def look(p: Any, c: Any) -> Any:
            total = None
            for corner in range(8):
                bits = [(corner >> k) & 1 for k in range(3)]
                weight = None
                for k in range(3):
                    f = part[p, k] if bits[k] else 1.0 - part[p, k]
                    weight = f if weight is None else weight * f
                term = (
                    weight * cube[low[p, 0] + bits[0], low[p, 1] + bits[1], low[p, 2] + bits[2], c]
                )
                total = term if total is None else total + term
            return total

        return mapped((pixels, 3), look)

    def array(clip: Any, floor: Any, integer: Any, image: Any, cube: Any) -> Any:
        place = clip(image) * top
        low = integer(floor(place))
        part = place - floor(place)
        total = 0
        for corner in range(8):
            bits = [(corner >> k) & 1 for k in range(3)]
            weight = 1
            for k in range(3):
                weight = weight * (part[:, k] if bits[k] else 1 - part[:, k])
            total = (
                total
                + weight[:, None]
                * cube[low[:, 0] + bits[0], low[:, 1] + bits[1], low[:, 2] + bits[2]]
            )
        return total

    return operator(
        {"image": Input((pixels, 3), 0.2, 0.5), "cube": Input((size, size, size, 3))},
        (pixels, 3),
        ours,
        lambda torch, *a: array(
            lambda x: torch.clip(x, 0.0001, 0.9999), torch.floor, lambda x: x.detach().long(), *a
        ),
        lambda jax, *a: array(
            lambda x: jax.numpy.clip(x, 0.0001, 0.9999),
            jax.numpy.floor,
            lambda x: x.astype("int32"),
            *a,
        ),
        tolerance=1e-2,
    )


def harmonics(n: int) -> Case:
    """View-dependent colours of points: a basis of 9 spherical harmonics times coefficients."""

    def basis(x: Any, y: Any, z: Any) -> Any:
        return [
            0.2820948,
            -0.4886025 * y,
            0.4886025 * z,
            -0.4886025 * x,
            1.0925485 * x * y,
            -1.0925485 * y * z,
            0.3153916 * (3.0 * z * z - 1.0),
            -1.0925485 * x * z,
            0.5462742 * (x * x - y * y),
        ]

    def ours(point: Any, camera: Any, coef: Any) -> Any:
        d = mapped((n, 3), lambda i, c: point[i, c] - camera[c])
        length = reduced((n,), (3,), lambda i, c: d[i, c] * d[i, c])
        unit = mapped((n, 3), lambda i, c: d[i, c] * te.rsqrt(length[i]))

        def colour(i: Any, c: Any) -> Any:
            b = basis(unit[i, 0], unit[i, 1], unit[i, 2])
            total = b[0] * coef[i, 0, c]
            for k in range(1, 9):
                total = total + b[k] * coef[i, k, c]
            return te.max(total + 0.5, 0.0)

        return mapped((n, 3), colour)

    def array(relu: Any, point: Any, camera: Any, coef: Any) -> Any:
        d = point - camera
        unit = d * (d * d).sum(-1, keepdims=True) ** -0.5
        b = basis(*(unit[:, k : k + 1] for k in range(3)))
        return relu(sum(b[k] * coef[:, k] for k in range(9)) + 0.5)

    return operator(
        {"point": Input((n, 3)), "camera": Input((3,), 1.0, 4.0), "coef": Input((n, 9, 3), 0.3)},
        (n, 3),
        ours,
        lambda torch, *a: array(torch.relu, *a),
        lambda jax, *a: array(jax.nn.relu, *a),
        tolerance=1e-3,
    )


def covariances(n: int) -> Case:
    """3 x 3 covariances of gaussians from logarithms of scales and quaternions."""

    def rotation(w: Any, x: Any, y: Any, z: Any) -> Any:
        return [
            [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
            [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
            [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
        ]

    def ours(q: Any, s: Any) -> Any:
        square = reduced((n,), (4,), lambda i, k: q[i, k] * q[i, k])
        u = mapped((n, 4), lambda i, k: q[i, k] * te.rsqrt(square[i]))

        def entry(i: Any, r: Any, c: Any) -> Any:
            m = rotation(u[i, 0], u[i, 1], u[i, 2], u[i, 3])
            value = m[2][2]
            for a in range(3):
                for b in range(3):
                    if (a, b) != (2, 2):
                        value = te.if_then_else(te.all(r == a, c == b), m[a][b], value)
            return value

        turned = mapped((n, 3, 3), lambda i, r, c: entry(i, r, c))
        m = mapped((n, 3, 3), lambda i, r, c: turned[i, r, c] * te.exp(s[i, c]))
        return reduced((n, 3, 3), (3,), lambda i, r, c, k: m[i, r, k] * m[i, c, k])

    def array(numpy: Any, q: Any, s: Any) -> Any:
        u = q * (q * q).sum(-1, keepdims=True) ** -0.5
        R = rotation(*(u[:, k] for k in range(4)))
        R = numpy.stack([numpy.stack(row, -1) for row in R], -2)
        m = R * numpy.exp(s)[:, None, :]
        return numpy.einsum("irk,ick->irc", m, m)

    return operator(
        {"q": Input((n, 4)), "s": Input((n, 3), 0.3)},
        (n, 3, 3),
        ours,
        lambda torch, *a: array(torch, *a),
        lambda jax, *a: array(jax.numpy, *a),
        tolerance=1e-3,
    )


def radon(size: int, angles: int, detectors: int) -> Case:
    """Line integrals of an image at several angles, bilinear, zero beyond the borders."""

    def ours(image: Any, angle: Any) -> Any:
        half, dh = (size - 1) / 2.0, (detectors - 1) / 2.0

        def position(a: Any, d: Any, t: Any, first: Any) -> Any:
            s, u = d.astype("float32") - dh, t.astype("float32") - half
            if first:
                return te.cos(angle[a]) * s - te.sin(angle[a]) * u + half
            return te.sin(angle[a]) * s + te.cos(angle[a]) * u + half

        shape = (angles, detectors, size)
        x = mapped(shape, lambda a, d, t: position(a, d, t, True))
        y = mapped(shape, lambda a, d, t: position(a, d, t, False))
        x0 = mapped(shape, lambda *p: te.floor(x[p]).astype("int32"))
        y0 = mapped(shape, lambda *p: te.floor(y[p]).astype("int32"))

        def pixel(j: Any, i: Any) -> Any:
            inside = te.all(i >= 0, i < size, j >= 0, j < size)
            return te.if_then_else(
                inside, image[te.max(te.min(j, size - 1), 0), te.max(te.min(i, size - 1), 0)], 0.0
            )

        def value(*p: Any) -> Any:
            fx, fy = x[p] - te.floor(x[p]), y[p] - te.floor(y[p])
            return (1.0 - fy) * (
                (1.0 - fx) * pixel(y0[p], x0[p]) + fx * pixel(y0[p], x0[p] + 1)
            ) + fy * ((1.0 - fx) * pixel(y0[p] + 1, x0[p]) + fx * pixel(y0[p] + 1, x0[p] + 1))

        samples = mapped(shape, value)
        return reduced((angles, detectors), (size,), lambda a, d, t: samples[a, d, t])

    def array(numpy: Any, arange: Any, integer: Any, image: Any, angle: Any) -> Any:
        half, dh = (size - 1) / 2, (detectors - 1) / 2
        s = arange(detectors)[None, :, None] - dh
        u = arange(size)[None, None, :] - half
        c, n = numpy.cos(angle)[:, None, None], numpy.sin(angle)[:, None, None]
        x, y = c * s - n * u + half, n * s + c * u + half
        fx, fy = x - numpy.floor(x), y - numpy.floor(y)
        x0, y0 = integer(numpy.floor(x)), integer(numpy.floor(y))

        def pixel(j: Any, i: Any) -> Any:
            inside = (i >= 0) & (i < size) & (j >= 0) & (j < size)
            v = image[numpy.clip(j, 0, size - 1), numpy.clip(i, 0, size - 1)]
            return numpy.where(inside, v, numpy.zeros_like(v))

        value = (1 - fy) * ((1 - fx) * pixel(y0, x0) + fx * pixel(y0, x0 + 1)) + fy * (
            (1 - fx) * pixel(y0 + 1, x0) + fx * pixel(y0 + 1, x0 + 1)
        )
        return value.sum(-1)

    return operator(
        {"image": Input((size, size)), "angle": Input((angles,))},
        (angles, detectors),
        ours,
        lambda torch, *a: array(
            torch, lambda n: torch.arange(n).to(a[0].dtype), lambda v: v.detach().long(), *a
        ),
        lambda jax, *a: array(
            jax.numpy,
            lambda n: jax.numpy.arange(n).astype(a[0].dtype),
            lambda v: v.astype("int32"),
            *a,
        ),
        tolerance=1e-2,
        fixed=("angle",),
    )


CASES: dict[str, Callable[[], Case]] = {
    "volume-rendering": lambda: volume_rendering(4096, 64),
    "splatting": lambda: splatting(40, 40, 96),
    "lut-3d": lambda: lut_3d(20000, 17),
    "harmonics": lambda: harmonics(20000),
    "covariances": lambda: covariances(10000),
    "radon": lambda: radon(64, 60, 90),
}
