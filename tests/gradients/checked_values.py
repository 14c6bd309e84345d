"""Elements of tensors that are too large to be held; every integer on the way must fit its type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from tests.walks import address_of, bound_values, dtype_of, in_order, name_of, parts_of, read_of

Given = Callable[[Sequence[Any]], np.ndarray]

FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "let": lambda value, body: body,
    "select": np.where,
    "if_then_else": np.where,
}


def value_at(tensor: Any, indices: Sequence[np.ndarray], given: Given) -> np.ndarray:
    """The elements of a tensor at some places, NaN outside of it, every integer checked.

    Placeholders are `given`, a function of indices.
    """
    shape = tuple(int(extent) for extent in tensor.shape)
    inside = np.ones(np.broadcast_shapes(*map(np.shape, indices)), bool)
    for index, extent in zip(indices, shape, strict=True):
        inside &= (index >= 0) & (index < extent)
    clipped = [np.clip(index, 0, n - 1) for index, n in zip(indices, shape, strict=True)]
    op = tensor.op
    if isinstance(op, te.PlaceholderOp):
        return np.where(inside, given(clipped), np.nan)
    known = {address_of(axis.var): at for axis, at in zip(op.axis, clipped, strict=True)}
    body = op.body[tensor.value_index]
    if not isinstance(body, tirx.Reduce):
        return np.where(inside, values(body, known, given), np.nan)
    assert all(int(axis.dom.min) == 0 for axis in body.axis)
    extents = [values(axis.dom.extent, known, given) for axis in body.axis]  # ragged ones too
    added = [None] * len(extents)
    known = {key: at[(..., *added)] for key, at in known.items()}
    grid = np.meshgrid(*(np.arange(np.max(extent)) for extent in extents), indexing="ij")
    known |= {address_of(a.var): at for a, at in zip(body.axis, grid, strict=True)}
    [source] = body.source
    counts = [at < n[(..., *added)] for at, n in zip(grid, extents, strict=True)]
    terms = values(source, known, given)
    total = np.where(np.all(np.broadcast_arrays(*counts), axis=0), terms, 0.0)
    return np.where(inside, total.sum(axis=tuple(range(-len(extents), 0))), np.nan)


def values(expr: Any, variables: dict[int, Any], given: Given) -> np.ndarray:
    """The value of an expression; a number that its type cannot hold is a failure."""
    found: dict[int, Any] = {}
    nodes = in_order(expr)
    bound = bound_values(nodes)
    with np.errstate(all="ignore"):
        for node in nodes:
            name, parts = name_of(node), [found[address_of(part)] for part in parts_of(node)]
            dtype, key = np.dtype(dtype_of(node)), address_of(node)
            if name == "var":
                value = found[address_of(bound[key])] if key in bound else variables[key]
            elif name == "const":
                value = node.value
            elif name == "load":
                value = value_at(read_of(node), parts, given)
            elif name == "cast":
                value = parts[0]
            else:
                value = FUNCTIONS[name](*parts)
            if dtype.kind in "iu":
                limits = np.iinfo(dtype)
                fits = (limits.min <= value) & (value <= limits.max)
                assert np.all(fits), str(node)
                value = np.asarray(value, np.int64)
            found[key] = value if dtype.kind in "iu" else np.asarray(value).astype(dtype)
    return found[address_of(expr)]
