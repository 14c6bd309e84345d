"""Cases of estimation: a mixture of Gaussians, bundle adjustment, the Hessian of a regression.

The first two are those of ADBench (Srajer, Kukelova, Fitzgibbon 2018), with all floats in float32.
"""

from __future__ import annotations

from tvm import te

from .case import Case, Entry, Input

WISHART = 1.0  # precision of the prior of a covariance


def gaussian_mixture(points: int, width: int, kernels: int) -> Case:
    """The log likelihood of a mixture, and its gradients.

    The inverse square root of the covariance of kernel k is lower triangular: exp(logs[k]) on the
    diagonal, lower[k] below it; what lower[k] holds elsewhere is not read.
    """

    def ours(x, alphas, means, logs, lower):
        a, b, c = (te.reduce_axis((0, width), name) for name in "abc")
        k, s, m, o = (te.reduce_axis((0, kernels), name) for name in "ksmo")
        i = te.reduce_axis((0, points), "i")
        below = te.compute(
            (points, kernels, width),
            lambda i, k, a: te.sum(
                te.if_then_else(b < a, lower[k, a, b] * (x[i, b] - means[k, b]), 0.0), axis=b
            ),
            name="below",
        )
        whitened = te.compute(
            (points, kernels, width),
            lambda i, k, a: te.exp(logs[k, a]) * (x[i, a] - means[k, a]) + below[i, k, a],
            name="whitened",
        )
        squares = te.compute(
            (points, kernels),
            lambda i, k: te.sum(whitened[i, k, a] * whitened[i, k, a], axis=a),
            name="squares",
        )
        log_det = te.compute((kernels,), lambda k: te.sum(logs[k, c], axis=c), name="log_det")
        terms = te.compute(
            (points, kernels),
            lambda i, k: alphas[k] + log_det[k] - 0.5 * squares[i, k],
            name="terms",
        )
        largest = te.compute((points,), lambda i: te.max(terms[i, k], axis=k), name="largest")
        total = te.compute(
            (points,), lambda i: te.sum(te.exp(terms[i, s] - largest[i]), axis=s), name="total"
        )
        likelihood = te.compute(
            (), lambda: te.sum(te.log(total[i]) + largest[i], axis=i), name="likelihood"
        )
        weights = te.compute((), lambda: te.sum(te.exp(alphas[m]), axis=m), name="weights")
        p, q = te.reduce_axis((0, width), "p"), te.reduce_axis((0, width), "q")
        prior = te.compute(
            (),
            lambda: te.sum(
                te.if_then_else(
                    q < p,
                    lower[o, p, q] * lower[o, p, q],
                    te.if_then_else(q == p, te.exp(2.0 * logs[o, p]), 0.0),
                ),
                axis=[o, p, q],
            ),
            name="prior",
        )
        return te.compute(
            (),
            lambda: likelihood() - points * te.log(weights()) + 0.5 * WISHART * WISHART * prior(),
            name="objective",
        )

    def in_torch(torch, x, alphas, means, logs, lower):
        triangle = torch.tril(lower, -1)
        factor = triangle + torch.diag_embed(torch.exp(logs))
        centred = x[None] - means[:, None]
        squares = torch.bmm(centred, factor.transpose(1, 2)).square().sum(2)
        terms = (alphas + logs.sum(1))[:, None] - 0.5 * squares
        return (
            torch.logsumexp(terms, 0).sum()
            - points * torch.logsumexp(alphas, 0)
            + 0.5 * WISHART**2 * (triangle.square().sum() + torch.exp(2 * logs).sum())
        )

    def in_jax(jax, x, alphas, means, logs, lower):
        numpy = jax.numpy
        triangle = numpy.tril(lower, -1)
        factor = triangle + numpy.exp(logs)[:, :, None] * numpy.eye(width, dtype=logs.dtype)
        centred = x[None] - means[:, None]
        squares = numpy.square(numpy.einsum("kib,kab->kia", centred, factor)).sum(2)
        terms = (alphas + logs.sum(1))[:, None] - 0.5 * squares
        return (
            jax.nn.logsumexp(terms, 0).sum()
            - points * jax.nn.logsumexp(alphas)
            + 0.5 * WISHART**2 * (numpy.square(triangle).sum() + numpy.exp(2 * logs).sum())
        )

    return Case(
        inputs={
            "x": Input((points, width)),
            "alphas": Input((kernels,)),
            "means": Input((kernels, width)),
            "logs": Input((kernels, width), 0.2),
            "lower": Input((kernels, width, width), 0.2),
        },
        wrt=("alphas", "means", "logs", "lower"),
        te=ours,
        torch=in_torch,
        jax=in_jax,
    )


def bundle_adjustment(count: int) -> Case:
    """How far points are projected from where they were seen: Jacobians by camera, point, weight.

    A camera is its rotation vector, centre, focal length, principal point and two coefficients of
    radial distortion. A point is moved into the camera's frame (Rodrigues' formula), projected,
    distorted and scaled.
    """

    def ours(camera, point, weight, feature):
        c = te.reduce_axis((0, 3), "c")
        e = te.reduce_axis((0, 3), "e")
        m = te.reduce_axis((0, 2), "m")
        square = te.compute(
            (count,), lambda n: te.sum(camera[n, c] * camera[n, c], axis=c), name="square"
        )
        angle = te.compute((count,), lambda n: te.sqrt(square[n]), name="angle")
        axis = te.compute((count, 3), lambda n, i: camera[n, i] / angle[n], name="axis")
        offset = te.compute((count, 3), lambda n, i: point[n, i] - camera[n, 3 + i], name="offset")
        along = te.compute(
            (count,), lambda n: te.sum(axis[n, e] * offset[n, e], axis=e), name="along"
        )
        across = te.compute(
            (count, 3),
            lambda n, i: (
                axis[n, (i + 1) % 3] * offset[n, (i + 2) % 3]
                - axis[n, (i + 2) % 3] * offset[n, (i + 1) % 3]
            ),
            name="across",
        )
        rotated = te.compute(
            (count, 3),
            lambda n, i: (
                offset[n, i] * te.cos(angle[n])
                + across[n, i] * te.sin(angle[n])
                + axis[n, i] * along[n] * (1.0 - te.cos(angle[n]))
            ),
            name="rotated",
        )
        flat = te.compute((count, 2), lambda n, i: rotated[n, i] / rotated[n, 2], name="flat")
        radius = te.compute(
            (count,), lambda n: te.sum(flat[n, m] * flat[n, m], axis=m), name="radius"
        )
        lens = te.compute(
            (count,),
            lambda n: 1.0 + radius[n] * (camera[n, 9] + radius[n] * camera[n, 10]),
            name="lens",
        )
        return te.compute(
            (count, 2),
            lambda n, i: (
                weight[n] * (flat[n, i] * lens[n] * camera[n, 6] + camera[n, 7 + i] - feature[n, i])
            ),
            name="residual",
        )

    def with_arrays(library, camera, point, weight, feature):
        """The same with the functions of an array library."""
        vector, centre, scale, middle, bend = (
            camera[:, :3],
            camera[:, 3:6],
            camera[:, 6:7],
            camera[:, 7:9],
            camera[:, 9:],
        )
        angle = library.sqrt((vector * vector).sum(1))[:, None]
        axis, offset = vector / angle, point - centre
        along = (axis * offset).sum(1)[:, None]
        sine, cosine = library.sin(angle), library.cos(angle)
        rotated = (
            offset * cosine + cross(library, axis, offset) * sine + axis * along * (1 - cosine)
        )
        flat = rotated[:, :2] / rotated[:, 2:]
        radius = (flat * flat).sum(1)[:, None]
        lens = 1 + radius * (bend[:, :1] + radius * bend[:, 1:])
        return weight[:, None] * (flat * lens * scale + middle - feature)

    def cross(library, a, b):
        parts = [
            a[:, (n + 1) % 3] * b[:, (n + 2) % 3] - a[:, (n + 2) % 3] * b[:, (n + 1) % 3]
            for n in range(3)
        ]
        return library.stack(parts, 1)

    return Case(
        inputs={
            "camera": Input((count, 11), 0.05, 0.4),
            "point": Input((count, 3), 0.2, 4.0),
            "weight": Input((count,), 0.2, 1.0),
            "feature": Input((count, 2)),
        },
        wrt=("camera", "point", "weight"),
        derivative="jacobian",
        te=ours,
        torch=with_arrays,
        jax=lambda jax, *arrays: with_arrays(jax.numpy, *arrays),
    )


def logistic_hessian(samples: int, features: int) -> Case:
    """The Hessian of the mean log loss of a logistic regression."""

    def ours(x, labels, w):
        k = te.reduce_axis((0, features), "k")
        n = te.reduce_axis((0, samples), "n")
        score = te.compute((samples,), lambda n: te.sum(x[n, k] * w[k], axis=k), name="score")
        return te.compute(
            (),
            lambda: te.sum(
                (te.log(1.0 + te.exp(score[n])) - labels[n] * score[n]) / samples, axis=n
            ),
            name="loss",
        )

    def in_torch(torch, x, labels, w):
        score = x @ w
        return (torch.nn.functional.softplus(score) - labels * score).mean()

    def in_jax(jax, x, labels, w):
        score = x @ w
        return (jax.nn.softplus(score) - labels * score).mean()

    return Case(
        inputs={
            "x": Input((samples, features)),
            "labels": Input((samples,), 0.3, 0.5),
            "w": Input((features,), 0.05),
        },
        wrt=("w",),
        derivative="hessian",
        te=ours,
        torch=in_torch,
        jax=in_jax,
        flop=2 * samples * features * features,
    )


ENTRIES = [
    Entry(
        "gaussian-mixture",
        "Gaussian mixture, n 1000, d 10, K 25",
        gaussian_mixture,
        {"points": 1000, "width": 10, "kernels": 25},
        {"points": 17, "width": 4, "kernels": 3},
    ),
    Entry(
        "bundle-adjustment",
        "bundle adjustment, 8192 Jacobians 2x15",
        bundle_adjustment,
        {"count": 8192},
        {"count": 13},
    ),
    Entry(
        "logistic-hessian",
        "logistic regression 2048x256, Hessian",
        logistic_hessian,
        {"samples": 2048, "features": 256},
        {"samples": 23, "features": 7},
    ),
]
