"""The evals without loops over time, as users of array libraries would write them.

Each function takes a `Library` and an input of GradBench. It returns a `Peer`: the arguments, and
the functions of the eval that take them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import multigammaln

from .library import Library, Peer


def gmm(library: Library, data: Mapping[str, Any]) -> Peer:
    """The log posterior of a mixture of Gaussians, and its gradients."""
    xp, n, d, k = library.numpy, data["n"], data["d"], data["k"]
    m, gamma = data["m"], data["gamma"]
    freedom = d + m + 1
    # numbers of Python: torch.compile fails on those of numpy
    prior = float(k * (freedom * d * np.log(gamma / np.sqrt(2)) - multigammaln(freedom / 2, d)))
    columns, rows = np.triu_indices(d, 1)
    diagonal = np.arange(d)
    places = [library.constant(np.concatenate([diagonal, part])) for part in (rows, columns)]

    def objective(alpha: Any, mu: Any, q: Any, lower: Any, x: Any) -> Any:
        values = xp.concatenate([xp.exp(q), lower], 1)
        factor = library.scattered((k, d, d), (slice(None), *places), values)
        image = (x @ factor.reshape(k * d, d).T).reshape(n, k, d)
        away = image - (factor @ mu[:, :, None])[:, :, 0]
        terms = alpha + q.sum(1) - 0.5 * (away * away).sum(2)
        wishart = m * q.sum() - 0.5 * gamma * gamma * (factor * factor).sum()
        likelihood = library.log_sum_exp(terms, 1).sum() - n * library.log_sum_exp(alpha, 0)
        return likelihood + wishart + prior - n * d / 2 * np.log(2 * np.pi)

    shapes = {"alpha": (k,), "mu": (k, d), "q": (k, d), "l": (k, len(rows)), "x": (n, d)}
    arguments = (np.asarray(data[name], "float64").reshape(s) for name, s in shapes.items())
    return Peer(
        tuple(map(library.constant, arguments)),
        {"objective": objective, "jacobian": library.grad(objective, (0, 1, 2, 3))},
    )


def kmeans(library: Library, data: Mapping[str, Any]) -> Peer:
    """Squared distances to the nearest centroids; the gradient over the diagonal of the Hessian.

    The nearest centroid is found without a derivative and then gathered. The transpose of a gather
    is a scatter; the derivative of a minimum would go through all distances again.
    """
    xp = library.numpy

    def squares(points: Any, centroids: Any) -> Any:
        product = points @ centroids.T
        return (points * points).sum(1)[:, None] + (centroids * centroids).sum(1) - 2 * product

    def cost(points: Any, centroids: Any) -> Any:
        return xp.amin(squares(points, centroids), 1).sum()

    def direction(points: Any, centroids: Any) -> Any:
        nearest = library.nearest(squares(points, centroids))

        def of_nearest(centroids: Any) -> Any:
            away = points - centroids[nearest]
            return (away * away).sum()

        gradient = library.grad(of_nearest, 0)
        first, second = library.jvp(gradient, (centroids,), (xp.ones_like(centroids),))
        return first / second

    arguments = (np.asarray(data[name], "float64") for name in ("points", "centroids"))
    return Peer(tuple(map(library.constant, arguments)), {"cost": cost, "dir": direction})


def llsq(library: Library, data: Mapping[str, Any]) -> Peer:
    """Half the sum of squared residuals of a polynomial fitted to a sign function."""
    xp, n, m = library.numpy, data["n"], len(data["x"])

    def primal(x: Any, numbers: Any) -> Any:
        point = numbers * 2.0 / (n - 1.0) - 1.0
        rest = xp.sign(point) - library.powers(point, m) @ x
        return 0.5 * (rest * rest).sum()

    arguments = (np.asarray(data["x"], "float64"), np.arange(n, dtype="float64"))
    functions = {"primal": primal, "gradient": library.grad(primal, 0)}
    return Peer(tuple(map(library.constant, arguments)), functions)


def lse(library: Library, data: Mapping[str, Any]) -> Peer:
    """The logarithm of a sum of exponentials in elementary operations, as the eval asks."""
    xp = library.numpy

    def primal(x: Any) -> Any:
        largest = library.largest(x)
        return largest + xp.log(xp.exp(x - largest).sum())

    argument = library.constant(np.asarray(data["x"], "float64"))
    return Peer((argument,), {"primal": primal, "gradient": library.grad(primal, 0)})


def ba(library: Library, data: Mapping[str, Any]) -> Peer:
    """Projection and weight errors; the values, columns and row starts of a sparse Jacobian."""
    xp, n, m, p = library.numpy, data["n"], data["m"], data["p"]

    def cross(a: Any, b: Any) -> Any:
        return xp.stack(
            [a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3] for i in range(3)]
        )

    def error(z: Any, feature: Any) -> Any:
        vector, offset = z[:3], z[11:14] - z[3:6]
        square = (vector * vector).sum()
        angle = xp.sqrt(xp.where(square > 0, square, xp.ones_like(square)))
        axis = vector / angle
        turned = (
            offset * xp.cos(angle)
            + cross(axis, offset) * xp.sin(angle)
            + axis * (axis * offset).sum() * (1 - xp.cos(angle))
        )
        turned = xp.where(square > 0, turned, offset + cross(vector, offset))
        flat = turned[:2] / turned[2]
        radius = (flat * flat).sum()
        lens = 1 + radius * (z[9] + radius * z[10])
        return z[14] * (flat * lens * z[6] + z[7:9] - feature)

    def parameters(cameras: Any, points: Any, weights: Any, places: Any) -> Any:
        parts = [cameras[places[:, 0]], points[places[:, 1]], weights[:, None]]
        return xp.concatenate(parts, 1)

    def objective(cameras: Any, points: Any, weights: Any, features: Any, places: Any) -> Any:
        errors = library.vmap(error)(parameters(cameras, points, weights, places), features)
        return errors, 1 - weights * weights

    def jacobian(cameras: Any, points: Any, weights: Any, features: Any, places: Any) -> Any:
        z = parameters(cameras, points, weights, places)
        values = library.vmap(library.jacrev(error))(z, features)
        numbers = xp.arange(p, dtype=places.dtype)
        row = xp.concatenate(
            [
                11 * places[:, :1] + library.constant(np.arange(11, dtype="int32")),
                11 * n + 3 * places[:, 1:] + library.constant(np.arange(3, dtype="int32")),
                (11 * n + 3 * m + numbers)[:, None],
            ],
            1,
        )
        columns = xp.concatenate([xp.concatenate([row, row], 1).reshape(-1), row[:, 14]])
        ends = xp.arange(p + 1, dtype=places.dtype)
        starts = [15 * xp.arange(2 * p, dtype=places.dtype), 30 * p + ends]
        flat = xp.concatenate([values.reshape(-1), -2 * weights])
        return flat, columns, xp.concatenate(starts)

    numbers = np.arange(p)
    arguments = (
        np.tile(np.asarray(data["cam"], "float64"), (n, 1)),
        np.tile(np.asarray(data["x"], "float64"), (m, 1)),
        np.full(p, float(data["w"])),
        np.tile(np.asarray(data["feat"], "float64"), (p, 1)),
        np.stack([numbers % n, numbers % m], 1).astype("int32"),
    )
    functions = {"objective": objective, "jacobian": jacobian}
    return Peer(tuple(map(library.constant, arguments)), functions)


def _levels(parents: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The bones of each level, and the places of their parents in the level above."""
    level: list[int] = []
    for parent in parents:
        level.append(0 if parent < 0 else level[parent] + 1)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for number in range(max(level) + 1):
        bones = np.flatnonzero(np.array(level) == number)
        above = found[-1][0] if found else np.array([-1])
        found.append((bones, np.searchsorted(above, np.array(parents)[bones])))
    return found


def ht(library: Library, data: Mapping[str, Any]) -> Peer:
    """The differences of points from a posed hand; the Jacobian in forward mode.

    All bones of a level are multiplied at once.
    """
    xp, model = library.numpy, data["data"]["model"]
    parents = [int(parent) for parent in model["parents"]]
    sign = library.constant(np.array([-1.0 if model["is_mirrored"] else 1.0, 1.0, 1.0]))
    found = np.asarray(data["data"]["correspondences"])
    on_surface = len(data["us"]) > 0
    triangles = np.asarray(model["triangles"]).reshape(-1, 3)
    corners = [library.constant(triangles[found, s]) for s in range(3)] if on_surface else [found]
    zero = library.constant(np.zeros(()))

    def turns(x: Any, z: Any) -> Any:
        nothing, whole = xp.zeros_like(x), xp.ones_like(x)
        cx, sx, cz, sz = xp.cos(x), xp.sin(x), xp.cos(z), xp.sin(z)
        rows = [[cz, -sz * cx, sz * sx, nothing], [sz, cz * cx, -cz * sx, nothing]]
        rows += [[nothing, sx, cx, nothing], [nothing, nothing, nothing, whole]]
        return xp.stack([xp.stack(row, 1) for row in rows], 1)

    def rotation(vector: Any) -> Any:
        angle = xp.sqrt((vector * vector).sum())
        x, y, z = vector / angle
        skew = xp.stack([xp.stack(row) for row in ([zero, -z, y], [z, zero, -x], [-y, x, zero])])
        outer = (vector / angle)[:, None] * (vector / angle)
        return (
            outer * (1 - xp.cos(angle))
            + skew * xp.sin(angle)
            + library.constant(np.eye(3)) * xp.cos(angle)
        )

    def places_of_angles(bone: int) -> tuple[int, int]:
        finger, joint = divmod(bone - 2, 4)
        first = 6 + 4 * finger
        if not (0 <= finger < 5 and joint < 3):
            return len(data["theta"]), len(data["theta"])  # of the zero behind
        return (first, first + 1) if joint == 0 else (first + joint + 1, len(data["theta"]))

    chosen = np.array([places_of_angles(bone) for bone in range(len(parents))])
    about_x, about_z = (library.constant(chosen[:, axis].copy()) for axis in range(2))
    by_number = _levels(parents)
    in_order = library.constant(np.argsort(np.concatenate([bones for bones, _ in by_number])))
    levels = [tuple(map(library.constant, level)) for level in by_number]

    def absolutes(relative: Any) -> Any:
        (bones, _), *others = levels
        found = [relative[bones]]
        for bones, above in others:
            found.append(found[-1][above] @ relative[bones])
        return xp.concatenate(found)[in_order]

    def objective(theta: Any, us: Any, relatives: Any, inverses: Any, skin: Any, points: Any):
        angles = xp.concatenate([theta, xp.zeros_like(theta[:1])])
        relative = relatives @ turns(angles[about_x], angles[about_z])
        transform = (absolutes(relative) @ inverses)[:, :3]
        columns = transform.swapaxes(1, 2).reshape(-1, 3)
        posed = (skin @ columns) * sign
        places = [posed[corner] for corner in corners]
        if on_surface:
            u, v = us[:, :1], us[:, 1:]
            places = [u * places[0] + v * places[1] + (1 - u - v) * places[2]]
        return points - places[0] @ rotation(theta[:3]).T - theta[3:6]

    def jacobian(theta: Any, us: Any, *rest: Any) -> Any:
        def moved(columns: Any) -> Any:
            return objective(columns[own:], us + columns[:own] if on_surface else us, *rest)

        own = 2 if on_surface else 0
        start = xp.concatenate([xp.zeros_like(theta[:own]), theta])
        return library.jacfwd(moved)(start)

    weights, base = np.asarray(model["weights"]), np.asarray(model["base_positions"])
    arguments = (
        np.asarray(data["theta"], "float64"),
        np.asarray(data["us"], "float64").reshape(-1, 2),
        np.asarray(model["base_relatives"], "float64"),
        np.asarray(model["inverse_base_absolutes"], "float64"),
        (weights[:, :, None] * base[:, None, :]).reshape(len(base), -1),
        np.asarray(data["data"]["points"], "float64"),
    )
    functions = {"objective": objective, "jacobian": jacobian}
    return Peer(tuple(map(library.constant, arguments)), functions)
