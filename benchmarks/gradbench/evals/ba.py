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


def reprojection_error(z: Any, feature: Any) -> Any:
    """What an observation lacks: the weight times the distance of projection and feature.

    z is the camera (rotation vector, centre, focal length, principal point, two coefficients of
    radial distortion), the point and the weight.
    """
    c, e, s = (te.reduce_axis((0, size), name) for size, name in ((3, "c"), (3, "e"), (2, "s")))
    square = te.compute((), lambda: te.sum(z[c] * z[c], axis=c), name="square")
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
    offset = te.compute((3,), lambda i: z[CAMERA + i] - z[3 + i], name="offset")
    along = te.compute((), lambda: te.sum(z[e] * offset[e], axis=e), name="along")
    rotated = te.compute(
        (3,),
        lambda i: (
            offset[i] * cosine()
            + (z[(i + 1) % 3] * offset[(i + 2) % 3] - z[(i + 2) % 3] * offset[(i + 1) % 3]) * sine()
            + z[i] * along() * versine()
        ),
        name="rotated",
    )
    flat = te.compute((2,), lambda i: rotated[i] / rotated[2], name="flat")
    radius = te.compute((), lambda: te.sum(flat[s] * flat[s], axis=s), name="radius")
    lens = te.compute((), lambda: 1.0 + radius() * (z[9] + radius() * z[10]), name="lens")
    return te.compute(
        (2,),
        lambda i: z[ROW - 1] * (flat[i] * lens() * z[6] + z[7 + i] - feature[i]),
        name="reprojection_error",
    )


def weight_error(z: Any) -> Any:
    """How far the square of the weight is from one."""
    return te.compute((), lambda: 1.0 - z[ROW - 1] * z[ROW - 1], name="weight_error")


class _Tensors(NamedTuple):
    """The inputs, and the parameters of one observation and of all."""

    inputs: list[Any]
    one: Any
    feature: Any
    batches: dict[Any, Any]
    places: Any


def _tensors(sizes: Sizes) -> _Tensors:
    n, m, p = sizes
    cameras = te.placeholder((n, CAMERA), "float64", name="cameras")
    points = te.placeholder((m, POINT), "float64", name="points")
    weights = te.placeholder((p,), "float64", name="weights")
    features = te.placeholder((p, 2), "float64", name="features")
    places = te.placeholder((p, 2), "int32", name="places")
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
    inputs = [cameras, points, weights, features, places]
    return _Tensors(inputs, one, feature, {one: parameters, feature: features}, places)


def objective(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The errors of all observations, and those of their weights."""
    tensors = _tensors(sizes)
    error = reprojection_error(tensors.one, tensors.feature)
    outputs = ad.vmap([error, weight_error(tensors.one)], tensors.batches)
    return tensors.inputs, outputs


def jacobian(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """Values and columns of the two rows of each observation, of each weight; starts of rows."""
    n, m, p = sizes
    tensors = _tensors(sizes)
    by_row = ad.jacobian(reprojection_error(tensors.one, tensors.feature), tensors.one)
    [of_weight] = ad.differentiate(weight_error(tensors.one), [tensors.one])
    last = te.compute((), lambda: of_weight[ROW - 1], name="of_weight")
    values, weights = ad.vmap([by_row, last], tensors.batches)
    places = tensors.places
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
    return tensors.inputs, [values, weights, columns, weight_columns, starts]


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
