"""ba: how far points are seen from where cameras should see them, and its sparse Jacobian.

One observation is written for its 15 parameters (camera, point, weight) and mapped over all: the
Jacobian of a row then lies as CSR has it. Which camera and point an observation has is data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import te

import tvm_autodiff as ad

from ...suite.case import Array, aligned
from ..evaluation import Eval, Function, Problem
from ..fields import array, integer, number

CAMERA, POINT = 11, 3  #: parameters of a camera, and of a point
ROW = CAMERA + POINT + 1  #: parameters of an observation: those of both, and its weight
SHOWN = 2 * ROW  #: elements of the matrix that the eval asks for, beside the last one


class Sizes(NamedTuple):
    """Cameras, points, observations."""

    n: int
    m: int
    p: int


def read(data: Any) -> Problem:
    """The input, which holds one camera, point, weight and feature, as many times as it says."""
    sizes = Sizes(integer(data, "n", 1), integer(data, "m", 1), integer(data, "p", 1))
    n, m, p = sizes
    numbers = np.arange(p)
    arrays = [
        np.tile(array(data, "cam", (CAMERA,)), (n, 1)),
        np.tile(array(data, "x", (POINT,)), (m, 1)),
        np.full(p, number(data, "w")),
        np.tile(array(data, "feat", (2,)), (p, 1)),
        np.stack([numbers % n, numbers % m], 1).astype("int32"),
    ]
    return Problem(sizes, [aligned(values) for values in arrays])


def reprojection_error(camera: Any, point: Any, weight: Any, feature: Any) -> Any:
    """What an observation lacks: the weight times the distance of projection and feature.

    A camera is a rotation vector, a centre, a focal length, a principal point, and two coefficients
    of radial distortion.
    """
    c, e, s = (te.reduce_axis((0, size), name) for size, name in ((3, "c"), (3, "e"), (2, "s")))
    square = te.compute((), lambda: te.sum(camera[c] * camera[c], axis=c), name="square")
    # at no rotation the limits of Rodrigues' formula: a divisor of one keeps its derivative finite
    turned = square() > 0.0
    angle = te.compute((), lambda: te.sqrt(te.if_then_else(turned, square(), 1.0)), name="angle")
    cosine = te.compute((), lambda: te.if_then_else(turned, te.cos(angle()), 1.0), name="cosine")
    sine = te.compute(
        (), lambda: te.if_then_else(turned, te.sin(angle()) / angle(), 1.0), name="sine"
    )
    versine = te.compute(
        (),
        lambda: te.if_then_else(turned, (1.0 - te.cos(angle())) / (angle() * angle()), 0.0),
        name="versine",
    )
    offset = te.compute((3,), lambda i: point[i] - camera[3 + i], name="offset")
    along = te.compute((), lambda: te.sum(camera[e] * offset[e], axis=e), name="along")
    rotated = te.compute(
        (3,),
        lambda i: (
            offset[i] * cosine()
            + (
                camera[(i + 1) % 3] * offset[(i + 2) % 3]
                - camera[(i + 2) % 3] * offset[(i + 1) % 3]
            )
            * sine()
            + camera[i] * along() * versine()
        ),
        name="rotated",
    )
    flat = te.compute((2,), lambda i: rotated[i] / rotated[2], name="flat")
    radius = te.compute((), lambda: te.sum(flat[s] * flat[s], axis=s), name="radius")
    lens = te.compute((), lambda: 1.0 + radius() * (camera[9] + radius() * camera[10]), name="lens")
    return te.compute(
        (2,),
        lambda i: weight() * (flat[i] * lens() * camera[6] + camera[7 + i] - feature[i]),
        name="reprojection_error",
    )


def weight_error(weight: Any) -> Any:
    """How far the square of the weight is from one."""
    return te.compute((), lambda: 1.0 - weight() * weight(), name="weight_error")


def _inputs(sizes: Sizes) -> list[Any]:
    n, m, p = sizes
    return [
        te.placeholder((n, CAMERA), "float64", name="cameras"),
        te.placeholder((m, POINT), "float64", name="points"),
        te.placeholder((p,), "float64", name="weights"),
        te.placeholder((p, 2), "float64", name="features"),
        te.placeholder((p, 2), "int32", name="places"),
    ]


def _observation() -> list[Any]:
    """What one observation is made of: a camera, a point, a weight and a feature."""
    shapes = {"camera": (CAMERA,), "point": (POINT,), "weight": (), "feature": (2,)}
    return [te.placeholder(shape, "float64", name=name) for name, shape in shapes.items()]


def objective(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The errors of all observations, and those of their weights."""
    cameras, points, weights, features, places = inputs = _inputs(sizes)
    one = _observation()
    of_all = [
        te.compute((sizes.p, CAMERA), lambda i, c: cameras[places[i, 0], c], name="of_cameras"),
        te.compute((sizes.p, POINT), lambda i, c: points[places[i, 1], c], name="of_points"),
        weights,
        features,
    ]
    errors = [reprojection_error(*one), weight_error(one[2])]
    return inputs, ad.vmap(errors, dict(zip(one, of_all, strict=True)))


def jacobian(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """Values and columns of the two rows of each observation, of each weight; starts of rows."""
    n, m, p = sizes
    cameras, points, weights, features, places = inputs = _inputs(sizes)
    parameters = te.compute(
        (p, ROW),
        lambda i, c: te.if_then_else(
            c < CAMERA,
            cameras[places[i, 0], c],
            te.if_then_else(c < ROW - 1, points[places[i, 1], c - CAMERA], weights[i]),
        ),
        name="parameters",
    )
    one = te.placeholder((ROW,), "float64", name="one")
    feature = te.placeholder((2,), "float64", name="feature")
    camera = te.compute((CAMERA,), lambda c: one[c], name="camera")
    point = te.compute((POINT,), lambda c: one[CAMERA + c], name="point")
    weight = te.compute((), lambda: one[ROW - 1], name="weight")
    by_row = ad.jacobian(reprojection_error(camera, point, weight, feature), one)
    [of_weight] = ad.differentiate(weight_error(weight), [weight])
    values, by_weight = ad.vmap([by_row, of_weight], {one: parameters, feature: features})
    after = CAMERA * n + POINT * m
    columns = te.compute(
        (p, 2, ROW),
        lambda i, r, c: te.if_then_else(
            c < CAMERA,
            CAMERA * places[i, 0] + c,
            te.if_then_else(c < ROW - 1, CAMERA * n + POINT * places[i, 1] + c - CAMERA, after + i),
        ),
        name="columns",
    )
    weight_columns = te.compute((p,), lambda i: after + i, name="weight_columns")
    starts = te.compute(
        (3 * p + 1,),
        lambda i: te.if_then_else(i < 2 * p, ROW * i, SHOWN * p + i - 2 * p),
        name="starts",
    )
    return inputs, [values, by_weight, columns, weight_columns, starts]


def _place(sizes: Sizes) -> list[Array]:
    """Arrays for the outputs of `jacobian`: values and columns are whole arrays of a matrix."""
    p = sizes.p
    values, columns = aligned(np.zeros(SHOWN * p + p)), aligned(np.zeros(SHOWN * p + p, "int32"))
    cut = SHOWN * p
    shape = (p, 2, ROW)
    return [
        *(values[:cut].reshape(shape), values[cut:], columns[:cut].reshape(shape), columns[cut:]),
        aligned(np.zeros(3 * p + 1, "int32")),
    ]


def _write_objective(sizes: Sizes, results: Sequence[Array]) -> dict[str, Any]:
    """The first observation's errors; the eval repeats one observation."""
    errors, weights = results
    return {
        "reproj_error": {"elements": errors[0].tolist(), "repeated": sizes.p},
        "w_err": {"element": float(weights[0]), "repeated": sizes.p},
    }


def _write_jacobian(sizes: Sizes, results: Sequence[Array]) -> dict[str, Any]:
    """The first 30 elements of each array of the matrix, and the last one."""
    values, weights, columns, weight_columns, starts = results
    return {
        "rows": [*starts[:SHOWN].tolist(), int(starts[-1])],
        "cols": [*columns[0].ravel().tolist(), int(weight_columns[-1])],
        "vals": [*values[0].ravel().tolist(), float(weights[-1])],
    }


EVAL = Eval(
    read,
    {
        "objective": Function(objective, _write_objective),
        "jacobian": Function(jacobian, _write_jacobian, _place),
    },
)
