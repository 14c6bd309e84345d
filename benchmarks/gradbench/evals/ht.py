"""ht: how far points are from the surface of a posed hand, and its Jacobian in forward mode.

Bones turn relative to their parents; vertices move with the bones by weights; a point is compared
with a vertex or with a place in a triangle. Parents are data: the transforms of 1, 2, 4, ...
ancestors are multiplied together, so the program knows only how deep the tree is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import te

import tvm_autodiff as ad

from ...suite.case import Array, aligned
from ..evaluation import Eval, Function, Problem
from ..fields import InputError, array, field, places

THETA = 26  #: parameters: a rotation vector, a translation, four angles of each of five fingers
POSE = 6  #: those that move the hand as a whole: the rotation vector and the translation
ANGLES = THETA - POSE
FINGERS = 5


class Sizes(NamedTuple):
    """Bones, vertices, triangles, points; doublings of ancestors; two kinds of hands."""

    bones: int
    vertices: int
    triangles: int
    points: int
    doublings: int
    on_surface: bool  #: whether points correspond to places in triangles
    mirrored: bool

    @property
    def columns(self) -> int:
        """Columns of the Jacobian: those of a point's own place come first."""
        return THETA + 2 * self.on_surface


def read(data: Any) -> Problem:
    """The parameters, the model of the hand and the points."""
    theta = array(data, "theta", (THETA,))
    parents = array(data, "data.model.parents", (None,), "int32")
    bones = len(parents)
    base_positions = array(data, "data.model.base_positions", (None, 4))
    vertices = len(base_positions)
    points = array(data, "data.points", (None, 3))
    us = array(data, "us", (None, 2))
    on_surface = len(us) > 0
    if not len(points) or not bones or not vertices:
        raise InputError("'data.points', 'data.model.parents' and base_positions must not be empty")
    if on_surface and len(us) != len(points):
        raise InputError(f"'us' has {len(us)} rows, 'data.points' has {len(points)}")
    triangles = places(data, "data.model.triangles", (None, 3), vertices)
    ancestors = _ancestors(parents)
    sizes = Sizes(
        *(bones, vertices, len(triangles), len(points), len(ancestors), on_surface),
        bool(field(data, "data.model.is_mirrored")),
    )
    arrays = [
        theta,
        *([us] if on_surface else []),
        ancestors,
        array(data, "data.model.base_relatives", (bones, 4, 4)),
        array(data, "data.model.inverse_base_absolutes", (bones, 4, 4)),
        base_positions,
        array(data, "data.model.weights", (vertices, bones)),
        *([triangles] if on_surface else []),
        places(
            *(data, "data.correspondences", (len(points),)),
            below=len(triangles) if on_surface else vertices,
        ),
        points,
    ]
    return Problem(sizes, arrays)


def _ancestors(parents: Array) -> Array:
    """Of each bone the ancestors 1, 2, 4, ... above it, -1 where there is none; at least a row."""
    bones = np.arange(len(parents))
    if (parents >= bones).any() or (parents < -1).any():
        raise InputError("'data.model.parents' names a parent that does not come before its bone")
    rows = [parents]
    while (rows[-1] >= 0).any():
        last = rows[-1]
        rows.append(np.where(last >= 0, last[last], -1).astype("int32"))
    return aligned(np.stack(rows[:-1] or rows))


def _chosen(place: Sequence[Any], entries: dict[tuple[int, int], Any], other: Any) -> Any:
    """The entry of a matrix at a place, `other` where none is written."""
    row, column = place
    result = other
    for (r, c), entry in entries.items():
        result = te.if_then_else(te.all(row == r, column == c), entry, result)
    return result


def _one(row: Any, column: Any) -> Any:
    return te.if_then_else(row == column, te.const(1.0, "float64"), 0.0)


def local_rotations(sizes: Sizes, fingers: Any) -> Any:
    """The turn of each bone about its parent, a 4×4 matrix: about x, then about z.

    A finger has four bones. Its first one does not turn, the second one turns about both axes, the
    others about x.
    """

    def angles(bone: Any) -> tuple[Any, Any]:
        finger, joint = (bone + 2) // 4 - 1, (bone + 2) % 4
        turns = te.all(bone >= 2, finger < FINGERS, joint < 3)
        # places of other bones are moved into the range: nothing reads what they hold
        first = te.min(te.max(4 * finger, 0), ANGLES - 4)
        about_x = fingers[te.min(first + te.if_then_else(joint == 0, 0, joint + 1), ANGLES - 1)]
        about_z = fingers[first + 1]
        return (
            te.if_then_else(turns, about_x, 0.0),
            te.if_then_else(te.all(turns, joint == 0), about_z, 0.0),
        )

    x = te.compute((sizes.bones,), lambda b: angles(b)[0], name="about_x")
    z = te.compute((sizes.bones,), lambda b: angles(b)[1], name="about_z")

    def body(b: Any, r: Any, c: Any) -> Any:
        cx, sx, cz, sz = te.cos(x[b]), te.sin(x[b]), te.cos(z[b]), te.sin(z[b])
        entries = {
            **{(0, 0): cz, (0, 1): -sz * cx, (0, 2): sz * sx},
            **{(1, 0): sz, (1, 1): cz * cx, (1, 2): -cz * sx},
            **{(2, 1): sx, (2, 2): cx},
        }
        return _chosen((r, c), entries, te.if_then_else(te.all(r == 3, c == 3), 1.0, 0.0))

    return te.compute((sizes.bones, 4, 4), body, name="turns")


def _products(left: Any, right: Any, name: str, of: Any = lambda b: b) -> Any:
    """The products of matrices, of bone by bone or of those that `of` tells with each bone."""
    h = te.reduce_axis((0, 4), "h")
    return te.compute(
        right.shape,
        lambda b, r, c: te.sum(left[of(b), r, h] * right[b, h, c], axis=h),
        name=name,
    )


def absolutes(sizes: Sizes, relative: Any, ancestors: Any) -> Any:
    """The product of the relative transforms of a bone and all its ancestors."""
    result = relative
    for step in range(sizes.doublings):
        result = _above(result, ancestors, step)
    return result


def _above(transforms: Any, ancestors: Any, step: int) -> Any:
    """Each transform after that of an ancestor, where the bone has this one."""
    above = _products(
        *(transforms, transforms, f"above{step}"), lambda b: te.max(ancestors[step, b], 0)
    )
    return te.compute(
        transforms.shape,
        lambda b, r, c: te.if_then_else(
            ancestors[step, b] >= 0, above[b, r, c], transforms[b, r, c]
        ),
        name=f"absolute{step}",
    )


def global_rotation(pose: Any) -> Any:
    """The matrix of the rotation vector that the pose begins with; one where it is short."""
    i = te.reduce_axis((0, 3), "i")
    square = te.compute((), lambda: te.sum(pose[i] * pose[i], axis=i), name="square")
    turned = square() >= 1e-8
    norm = te.compute((), lambda: te.sqrt(te.if_then_else(turned, square(), 1.0)), name="norm")
    axis = te.compute((3,), lambda i: pose[i] / norm(), name="axis")

    def body(r: Any, c: Any) -> Any:
        sine, cosine = te.sin(norm()), te.cos(norm())
        x, y, z = axis[0] * sine, axis[1] * sine, axis[2] * sine
        entries = {(0, 1): -z, (0, 2): y, (1, 0): z, (1, 2): -x, (2, 0): -y, (2, 1): x}
        both = axis[r] * axis[c] * (1.0 - cosine)
        matrix = both + _chosen((r, c), entries, te.if_then_else(r == c, cosine, 0.0))
        return te.if_then_else(turned, matrix, _one(r, c))

    return te.compute((3, 3), body, name="rotation")


def posed_vertices(sizes: Sizes, fingers: Any, model: dict[str, Any]) -> Any:
    """Where the bones move the vertices, before the hand is moved as a whole."""
    vertices, bones = sizes.vertices, sizes.bones
    turns = local_rotations(sizes, fingers)
    relative = _products(model["base_relatives"], turns, "relative")
    absolute = absolutes(sizes, relative, model["ancestors"])
    transform = _products(absolute, model["inverse_base_absolutes"], "transform")
    b, h = te.reduce_axis((0, bones), "b"), te.reduce_axis((0, 4), "h")
    weights, base = model["weights"], model["base_positions"]
    # depends on no angle, so a derivative has one sum over bones and coordinates
    skin = te.compute((vertices, bones, 4), lambda v, b, h: weights[v, b] * base[v, h], name="skin")
    return te.compute(
        (vertices, 3),
        lambda v, c: te.sum(skin[v, b, h] * transform[b, c, h], axis=[b, h]),
        name="posed",
    )


def errors(sizes: Sizes, pose: Any, fingers: Any, us: Any, model: dict[str, Any]) -> Any:
    """What each point lacks to its place on the hand.

    The weights of a place in a triangle add up to one, so the hand may be moved as a whole after
    the corners are blended: there are fewer places than corners.
    """
    posed = posed_vertices(sizes, fingers, model)
    points, found = model["points"], model["correspondences"]

    def place(i: Any, c: Any) -> Any:
        if not sizes.on_surface:
            return posed[found[i], c]
        first, second, third = (posed[model["triangles"][found[i], s], c] for s in range(3))
        return us[i, 0] * first + us[i, 1] * second + (1.0 - us[i, 0] - us[i, 1]) * third

    places = te.compute((sizes.points, 3), place, name="places")
    sign = -1.0 if sizes.mirrored else 1.0
    e, rotation = te.reduce_axis((0, 3), "e"), global_rotation(pose)
    turned = te.compute(
        (sizes.points, 3),
        lambda i, c: te.sum(
            rotation[c, e] * te.if_then_else(e == 0, sign * places[i, e], places[i, e]), axis=e
        ),
        name="turned",
    )
    return te.compute(
        (sizes.points, 3),
        lambda i, c: points[i, c] - turned[i, c] - pose[3 + c],
        name="errors",
    )


def _model(sizes: Sizes) -> dict[str, Any]:
    """Placeholders in the order of the arrays."""
    bones, vertices, triangles, points, doublings, on_surface, _ = sizes
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "theta": ((THETA,), "float64"),
        **({"us": ((points, 2), "float64")} if on_surface else {}),
        "ancestors": ((doublings, bones), "int32"),
        "base_relatives": ((bones, 4, 4), "float64"),
        "inverse_base_absolutes": ((bones, 4, 4), "float64"),
        "base_positions": ((vertices, 4), "float64"),
        "weights": ((vertices, bones), "float64"),
        **({"triangles": ((triangles, 3), "int32")} if on_surface else {}),
        "correspondences": ((points,), "int32"),
        "points": ((points, 3), "float64"),
    }
    return {name: te.placeholder(*spec, name=name) for name, spec in shapes.items()}


def objective(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The errors of all points."""
    model = _model(sizes)
    return list(model.values()), [errors(sizes, *_parts(model["theta"]), model.get("us"), model)]


def jacobian(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The derivative for a shift of each point, which comes first, and that for theta."""
    model = _model(sizes)
    pose, fingers = _parts(model["theta"])
    parts = [pose, fingers]
    us = model.get("us")
    if us is not None:
        # one shift for all points: a row reads its own place alone
        shift = te.compute((2,), lambda j: te.const(0.0, "float64"), name="shift")
        parts.insert(0, shift)
        us = te.compute(us.shape, lambda i, j: model["us"][i, j] + shift[j], name="shifted")
    value = errors(sizes, pose, fingers, us, model)
    columns = [ad.jacobian(value, part, mode="forward") for part in parts]
    return list(model.values()), [_side_by_side(columns)]


def _parts(theta: Any) -> tuple[Any, Any]:
    """The parameters of the whole hand and those of the fingers: vertices read them apart."""
    return (
        te.compute((POSE,), lambda c: theta[c], name="pose"),
        te.compute((ANGLES,), lambda c: theta[POSE + c], name="fingers"),
    )


def _side_by_side(blocks: Sequence[Any]) -> Any:
    """Tensors joined along their last axis."""
    *outer, _ = blocks[0].shape
    widths = [int(block.shape[-1]) for block in blocks]

    def body(*place: Any) -> Any:
        *row, column = place
        end = sum(widths)
        result = None
        for block, width in zip(reversed(blocks), reversed(widths), strict=True):
            end -= width
            inside = te.min(te.max(column - end, 0), width - 1)
            entry = block(*row, inside)
            result = (
                entry if result is None else te.if_then_else(column < end + width, entry, result)
            )
        return result

    return te.compute((*outer, sum(widths)), body, name="jacobian")


EVAL = Eval(
    read,
    {
        "objective": Function(objective, lambda sizes, results: results[0].ravel().tolist()),
        "jacobian": Function(
            jacobian,
            lambda sizes, results: results[0].reshape(-1, sizes.columns).tolist(),
        ),
    },
)
