"""Converts stages of literal sizes from int64 to int32 axes, so that stages of front ends schedule
well.

``x[i, j*2] over int64 i < 4, j < 8 → the same over int32 axes``. An axis becomes int32 if its range
fits, and arithmetic if its bounds fit; the rest stays int64. Stages with symbolic sizes are
unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tvm import ir, sym, te, tirx

from ...expr.build import cast, const, if_then_else, select
from ...expr.integers.wrapping import hide_wrapping
from ...expr.nodes import (
    BINARY_CLASSES,
    COMPARISONS,
    Axis,
    Expr,
    Tensor,
    Var,
    binary,
    const_value,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ...expr.rewrite import postorder, substituter
from ...expr.sharing.weights import MAX_PROVED, weights
from ..stage import (
    Operation,
    axis_range,
    bodies,
    is_compute,
    loop_axes,
    outputs_of,
    reduction_of,
    reduction_stage,
    shape_of,
    with_bodies,
)

_LIMIT = 1 << 31
_ARITHMETIC = frozenset(("add", "sub", "mul", "floordiv", "floormod", "min", "max"))


def narrowed(op: Operation) -> Operation:
    """The stage over int32 axes, or the stage itself if nothing is int64 or sizes are large."""
    if not is_compute(op):
        return op
    reduction = reduction_of(op)
    axes = loop_axes(op)
    nodes = postorder(bodies(op))
    wide = any(dtype_of(node) == "int64" for node in (*(axis.var for axis in axes), *nodes))
    if not wide or not all(map(_fits, axes)):
        return op
    reads = [load_tensor(node) for node in nodes if is_load(node)]
    if not all(map(is_small, [*outputs_of(op), *reads])):
        return op
    fresh = [_narrow_axis(axis) for axis in axes]
    table: dict[Var, Expr] = {
        old.var: cast(dtype_of(old.var), new.var) for old, new in zip(axes, fresh, strict=True)
    }
    rename, narrow = substituter(table), _Narrowing(fresh)
    spatial = fresh[: len(op.axis)]
    if reduction is None:
        values = [narrow(rename(body)) for body in bodies(op)]
        return with_bodies(op, values, spatial)[0].op
    moved = replace(
        reduction,
        sources=tuple(narrow(rename(source)) for source in reduction.sources),
        axes=tuple(fresh[len(op.axis) :]),
        condition=narrow(rename(reduction.condition)),
        init=tuple(narrow(rename(part)) for part in reduction.init),
    )
    return reduction_stage(op.name, spatial, moved)[0].op


def is_small(tensor: Tensor) -> bool:
    """Whether the positions of a tensor's elements are literals that fit int32."""
    shape = shape_of(tensor)
    return all(isinstance(dim, int) for dim in shape) and prod(shape) < _LIMIT


def plain_shape(tensor: Tensor) -> list[Any]:
    """The shape of a tensor, in int32 if that holds all positions."""
    return list(shape_of(tensor)) if is_small(tensor) else list(tensor.shape)


def _fits(axis: Axis) -> bool:
    low, extent = axis_range(axis)
    literal = isinstance(low, int) and isinstance(extent, int)
    return literal and low >= -_LIMIT and low + extent <= _LIMIT - 1


def _narrow_axis(axis: Axis) -> Axis:
    low, extent = (const(int(bound), "int32") for bound in axis_range(axis))
    var = tirx.Var(axis.var.name, "int32")
    return tirx.IterVar(ir.Range.from_min_extent(low, extent), var, axis.iter_type)


class _Narrowing:
    """Rewrites expressions over int32 axes; dtypes of results do not change."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self._analyzer = sym.Analyzer()
        for axis in axes:
            self._analyzer.bind(axis.var, axis.dom)

    def __call__(self, root: Expr) -> Expr:
        wide: dict[int, Expr] = {}  # of the dtype of the node
        narrow: dict[int, Expr] = {}  # of nodes of int64: the same value in int32
        self._weights = weights(root, limit=MAX_PROVED)
        for node in postorder(root):
            key = node_id(node)
            parts = operands(node)
            if dtype_of(node) == "int64":
                small = self._small(node, narrow, wide)
                if small is not None:
                    narrow[key], wide[key] = small, cast("int64", small)
                    continue
            keys = [node_id(part) for part in parts]
            name = op_name(node)
            either = name in COMPARISONS and all(k in narrow for k in keys)
            if either or name in ("load", "cast"):
                new = [narrow.get(k, wide[k]) for k in keys]
            else:
                new = [wide[k] for k in keys]
            same = all(node_id(a) == node_id(b) for a, b in zip(parts, new, strict=True))
            if same:
                wide[key] = node
            elif name == "cast":
                wide[key] = cast(dtype_of(node), *new)
            elif name in BINARY_CLASSES:
                wide[key] = binary(name, *new)
            else:
                wide[key] = with_operands(node, new)
        return wide[node_id(root)]

    def _small(self, node: Expr, narrow: dict[int, Expr], wide: dict[int, Expr]) -> Expr | None:
        """An int64 node in int32, or None if it is not known to fit."""
        name, parts = op_name(node), operands(node)
        value = const_value(node)
        if value is not None:
            return const(value, "int32") if -_LIMIT <= value < _LIMIT else None
        if name == "cast":
            return wide[node_id(parts[0])] if dtype_of(parts[0]) == "int32" else None
        chosen = parts[1:] if name in ("select", "if_then_else") else parts
        if not all(node_id(part) in narrow for part in chosen):
            return None
        small = [narrow[node_id(part)] for part in chosen]
        if name in _ARITHMETIC:
            result = binary(name, *small)
        elif name in ("select", "if_then_else"):
            choose = select if name == "select" else if_then_else
            result = choose(wide[node_id(parts[0])], *small)
        else:
            return None
        if self._weights[node_id(node)] > MAX_PROVED:
            return None
        whole = with_operands(node, _widened(chosen, small, parts))
        [exact], _ = hide_wrapping([whole], self._analyzer)
        bounds = self._analyzer.const_int_bound(exact)
        return result if bounds.min_value >= -_LIMIT and bounds.max_value < _LIMIT else None


def _widened(chosen: Sequence[Expr], small: Sequence[Expr], parts: Sequence[Expr]) -> list[Expr]:
    """The operands of a node in int64, for nodes whose bounds exceed int32."""
    return [*parts[: len(parts) - len(chosen)], *(cast("int64", part) for part in small)]


def small_placeholder(tensor: Tensor, name: str) -> Tensor:
    """A new input with the dtype and the shape of a tensor, the shape in int32 if it fits."""
    return te.placeholder(plain_shape(tensor), dtype_of(tensor), name)
