"""Scatter-adds at positions given by index tensors: `scatter_add` and `segment_sum`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgumentError
from ..expr.dtypes import integer_range
from ..expr.nodes import Tensor, const_value, dtype_of, is_float, is_integer, is_tensor, load
from ..expr.rewrite import contains_load
from ..expr.simplify import prove_equal
from ..graph.kinds.scatter_add import ScatterLayout, scatter_add_stage
from ..graph.stage import Extent, data_axis, make_stage, shape_of
from ..keywords import checked_keywords

_LARGEST = integer_range("int64")[1]


@checked_keywords
def scatter_add(
    values: Tensor,
    indices: Tensor | Sequence[Tensor],
    shape: Sequence[Any],
    *,
    name: str = "scatter_add",
) -> Tensor:
    """Add values at positions given by index tensors: ``out[i[p], j[p], ..., t] += values[p, t]``.

    The result starts from zero. Values at equal positions are summed, in the order of the values.
    Positions with a negative or too large index are skipped; negative indices do not count from the
    end.

    Parameters
    ----------
    values : Tensor
        The values to add, of shape ``points + shape[len(indices):]`` and of a floating point or
        integer dtype, which is the dtype of the result.
    indices : Tensor or sequence of Tensor
        One tensor of shape `points` and of any integer dtype for each of the leading dimensions of
        the result. A single tensor indexes the first dimension.
    shape : sequence of int or expression
        The shape of the result. Extents may be symbolic.
    name : str
        The name of the stage.

    Returns
    -------
    Tensor
        A tensor of shape `shape`. Its derivative with respect to `values` reads the cotangent at
        the same positions, and is differentiable again.

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor, an index tensor is not of an integer dtype, or shapes do not
        match.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import te
    >>> from tvm_autodiff import build
    >>> values, i = te.placeholder((3, 2), name="values"), te.placeholder((3,), "int32", name="i")
    >>> total = scatter_add(values, i, (2, 2))
    >>> build([values, i], total)(np.ones((3, 2), "float32"), np.array([1, 5, 1], "int32"))
    array([[0., 0.],
           [2., 2.]], dtype=float32)

    Notes
    -----
    ``scatter_add(v, i, s)`` equals ``jax.numpy.zeros(s).at[i].add(v)`` for non-negative indices,
    and ``numpy.add.at(numpy.zeros(s), i, v)`` for indices inside the shape.
    """
    if not isinstance(name, str):
        raise InvalidArgumentError(f"name must be a str, got {name!r}")
    values = _tensor(values, "values")
    listed = [indices] if is_tensor(indices) else indices
    if not isinstance(listed, (list, tuple)) or not listed:
        raise InvalidArgumentError(
            "indices must be a te.Tensor or a sequence of them, one for each leading dimension "
            f"of the result, got {listed!r}"
        )
    places = [_tensor(tensor, f"indices[{number}]") for number, tensor in enumerate(listed)]
    extents = _extents(shape)
    _check(values, places, extents)
    if not places[0].shape:  # a single place
        values, *places = (_with_one_point(tensor) for tensor in (values, *places))
    points = len(places[0].shape)
    dims = [*range(len(places)), *(-1 for _ in extents[len(places) :])]
    layout = ScatterLayout.points_first(dims, points)
    return scatter_add_stage(name, places, values, extents, layout)


@checked_keywords
def segment_sum(
    data: Tensor, segment_ids: Tensor, num_segments: Any, *, name: str = "segment_sum"
) -> Tensor:
    """Sum the elements with equal segment ids: ``out[ids[e], t] += data[e, t]``.

    Parameters
    ----------
    data : Tensor
        A tensor of shape ``segment_ids.shape + rest``, of a floating point or integer dtype.
    segment_ids : Tensor
        The segment of each element, of any integer dtype, in any order. Elements with a negative
        id, or an id of `num_segments` or more, are skipped.
    num_segments : int or expression
        The number of segments, which may be symbolic.
    name : str
        The name of the stage.

    Returns
    -------
    Tensor
        A tensor of shape ``(num_segments,) + rest``, with zeros for segments without elements.

    Raises
    ------
    InvalidArgumentError
        As in `scatter_add`.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import te
    >>> from tvm_autodiff import build
    >>> data, ids = te.placeholder((4,), name="data"), te.placeholder((4,), "int64", name="ids")
    >>> sums = build([data, ids], segment_sum(data, ids, 3))
    >>> sums(np.array([1, 2, 3, 4], "float32"), np.array([0, 2, 0, 2]))
    array([4., 0., 6.], dtype=float32)

    References
    ----------
    ``jax.ops.segment_sum``.
    """
    data, segment_ids = _tensor(data, "data"), _tensor(segment_ids, "segment_ids")
    rest = list(data.shape)[len(segment_ids.shape) :]
    return scatter_add(data, [segment_ids], [num_segments, *rest], name=name)


def _tensor(value: Any, what: str) -> Tensor:
    if not is_tensor(value):
        raise InvalidArgumentError(
            f"{what} must be a te.Tensor (a placeholder or the result of te.compute), "
            f"got {type(value).__name__}"
        )
    return value


def _extents(shape: Any) -> list[Any]:
    if not hasattr(shape, "__iter__") or isinstance(shape, (str, bytes)):
        raise InvalidArgumentError(f"shape must be a sequence of extents, got {shape!r}")
    extents = list(shape)
    for number, extent in enumerate(extents):
        value = extent if isinstance(extent, int) else const_value(extent)
        is_extent = not isinstance(extent, (bool, float)) and (
            isinstance(extent, int) or _is_size(extent)
        )
        if not is_extent or (value is not None and not 0 <= value <= _LARGEST):
            raise InvalidArgumentError(
                f"shape[{number}] must be an integer or an integer expression that is not "
                f"negative and fits int64, got {extent!r}"
            )
    return extents


def _is_size(extent: Any) -> bool:
    """Whether an extent is an integer expression that reads no data."""
    is_expr = hasattr(extent, "ty") and not is_tensor(extent)
    return is_expr and is_integer(extent) and not contains_load(extent)


def _check(values: Tensor, places: Sequence[Tensor], extents: Sequence[Any]) -> None:
    if not is_float(values) and not is_integer(values):
        raise InvalidArgumentError(
            f"values {values.op.name} must be of a floating point or integer dtype, "
            f"not {dtype_of(values)}"
        )
    for tensor in places:
        if not is_integer(tensor):
            raise InvalidArgumentError(
                f"index tensor {tensor.op.name} must be of an integer dtype, not {dtype_of(tensor)}"
            )
        if not _equal(shape_of(tensor), shape_of(places[0])):
            raise InvalidArgumentError(
                f"index tensors must have equal shapes: {places[0].op.name} has "
                f"{_text(shape_of(places[0]))}, {tensor.op.name} has {_text(shape_of(tensor))}"
            )
    if len(places) > len(extents):
        raise InvalidArgumentError(
            f"{len(places)} index tensors for a result of rank {len(extents)}: pass at most one "
            "for each of its dimensions"
        )
    wanted = (*shape_of(places[0]), *extents[len(places) :])
    if not _equal(shape_of(values), wanted):
        raise InvalidArgumentError(
            f"values {values.op.name} must have the shape of the index tensors followed by that of "
            f"an element of the result, {_text(wanted)}, got {_text(shape_of(values))}"
        )


def _equal(left: Sequence[Extent], right: Sequence[Extent]) -> bool:
    return len(left) == len(right) and all(map(prove_equal, left, right))


def _text(shape: Sequence[Extent]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _with_one_point(tensor: Tensor) -> Tensor:
    """``t → t[None]``."""
    axes = [data_axis(f"i{n}", extent) for n, extent in enumerate((1, *shape_of(tensor)))]
    body = load(tensor, [axis.var for axis in axes[1:]])
    return make_stage(f"{tensor.op.name}_at", axes, [body])[0]
