"""kmeans: the squares of the distances to the nearest centroids, and a step of Newton's method.

Which centroid is the nearest is found without a derivative; the distance to it is what is
differentiated, so a derivative adds up one term per point and not one per pair. The Hessian by the
centroids is diagonal, so its product with a vector of ones is its diagonal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm import te, topi

import tvm_autodiff as ad

from ..evaluation import Eval, Function, Problem
from ..fields import InputError, array


class Sizes(NamedTuple):
    """Points, centroids, and the dimension of the space."""

    n: int
    k: int
    d: int


def read(data: Any) -> Problem:
    """The points and the centroids."""
    points = array(data, "points", (None, None))
    n, d = points.shape
    centroids = array(data, "centroids", (None, d))
    if not points.size or not centroids.size:
        raise InputError("'points' and 'centroids' must not be empty")
    return Problem(Sizes(n, len(centroids), d), [points, centroids])


def distances(sizes: Sizes, points: Any, centroids: Any) -> Any:
    """``|points[i] - centroids[j]|²`` of all pairs."""
    n, k, d = sizes
    c = te.reduce_axis((0, d), "c")
    return te.compute(
        (n, k),
        lambda i, j: te.sum(
            (points[i, c] - centroids[j, c]) * (points[i, c] - centroids[j, c]), axis=c
        ),
        name="distance",
    )


def least(sizes: Sizes, points: Any, centroids: Any) -> Any:
    """``Σ_i min_j |points[i] - centroids[j]|²``."""
    n, k, _ = sizes
    i, j = te.reduce_axis((0, n), "i"), te.reduce_axis((0, k), "j")
    distance = distances(sizes, points, centroids)
    nearest = te.compute((n,), lambda i: te.min(distance[i, j], axis=j), name="nearest")
    return te.compute((), lambda: te.sum(nearest[i], axis=i), name="cost")


def to_nearest(sizes: Sizes, points: Any, centroids: Any) -> Any:
    """The same where the nearest centroid of each point is known."""
    n, _, d = sizes
    i, c = te.reduce_axis((0, n), "i"), te.reduce_axis((0, d), "c")
    nearest = topi.argmin(distances(sizes, points, centroids), axis=1)
    away = te.compute((n, d), lambda i, c: points[i, c] - centroids[nearest[i], c], name="away")
    return te.compute((), lambda: te.sum(away[i, c] * away[i, c], axis=[i, c]), name="cost")


def _inputs(sizes: Sizes) -> list[Any]:
    points = te.placeholder((sizes.n, sizes.d), "float64", name="points")
    return [points, te.placeholder((sizes.k, sizes.d), "float64", name="centroids")]


def cost(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The value."""
    inputs = _inputs(sizes)
    return inputs, [least(sizes, *inputs)]


def direction(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The gradient over the diagonal of the Hessian."""
    inputs = _inputs(sizes)
    value, centroids = to_nearest(sizes, *inputs), inputs[1]
    ones = te.compute(centroids.shape, lambda j, c: te.const(1.0, "float64"), name="ones")
    [gradient] = ad.differentiate(value, [centroids])
    [diagonal] = ad.hvp(value, centroids, ones)
    result = te.compute(
        centroids.shape, lambda j, c: gradient[j, c] / diagonal[j, c], name="direction"
    )
    return inputs, [result]


EVAL = Eval(
    read,
    {
        "cost": Function(cost, lambda sizes, results: float(results[0])),
        "dir": Function(direction, lambda sizes, results: results[0].tolist()),
    },
)
