"""Reductions whose ranges are never empty, as TVM's loops need them where bounds vary."""

from __future__ import annotations

from dataclasses import replace

from ..ir.build import all_of, compare, const, if_then_else, sub
from ..ir.nodes import Expr, Var, binary, dtype_of
from ..ir.rewrite import contains_load, depends_on
from ..ir.simplify import prove
from ..ir.stage import (
    Axis,
    Extent,
    Operation,
    Reduction,
    axis_range,
    axis_vars,
    reduce_axis_within,
)


def never_empty(reduction: Reduction, op: Operation) -> Reduction:
    """``⊕_{k < n(i)} f  →  ⊕_{k < max(n(i), 1)} if k < n(i) then f else identity``.

    In loops whose bounds vary, TVM writes the identity in the first iteration of all, and an empty
    range has none: its result would be what lay in memory.
    """
    moving = [*axis_vars(op), *(axis.var for axis in reduction.axes)]
    ranges: dict[Var, tuple[Extent, Extent]] = {axis.var: axis_range(axis) for axis in op.axis}
    axes: list[Axis] = []
    inside: list[Expr] = []
    for axis in reduction.axes:
        low, extent = axis.dom.min, axis.dom.extent
        read, one = contains_load(extent), const(1, dtype_of(extent))
        varies = read or depends_on(extent, moving)
        if varies and (read or not prove(compare("ge", extent, one), ranges)):
            inside.append(compare("lt", sub(axis.var, low), extent))
            least = binary("max", extent, one)
            axes.append(reduce_axis_within(axis.var, low, least))
        else:
            axes.append(axis)
        ranges[axis.var] = axis_range(axis)
    if not inside:
        return reduction
    condition = all_of(inside)
    sources = tuple(
        if_then_else(condition, source, identity)
        for source, identity in zip(reduction.sources, reduction.combiner.identity, strict=True)
    )
    return replace(reduction, sources=sources, axes=tuple(axes))
