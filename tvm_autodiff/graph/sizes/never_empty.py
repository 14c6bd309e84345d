"""Makes the ranges of reductions non-empty, as TVM's loops require when bounds vary."""

from __future__ import annotations

from dataclasses import replace

from ...expr.build import all_of, compare, const, if_then_else, sub, zero_like
from ...expr.nodes import Axis, Expr, Tensor, Var, binary, dtype_of
from ...expr.rewrite import contains_load, depends_on
from ...expr.simplify import prove
from ..stage import (
    Extent,
    axis_range,
    axis_vars,
    is_compute,
    reduce_axis_within,
    reduction_of,
    reduction_stage,
)


def never_empty(tensors: list[Tensor]) -> list[Tensor]:
    """``⊕_{k < n(i)} f  →  ⊕_{k < max(n(i), 1)} if k < n(i) then f else identity``.

    If the bounds of one axis vary, TVM writes the identity in the first iteration of all axes. An
    empty range has no iteration, so its result would be uninitialised memory. That holds for axes
    of symbolic extent beside it, too.

    Parameters
    ----------
    tensors : list of Tensor
        The outputs of a stage.
    """
    op = tensors[0].op
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None:
        return tensors
    moving = [*axis_vars(op), *(axis.var for axis in reduction.axes)]
    ranges: dict[Var, tuple[Extent, Extent]] = {axis.var: axis_range(axis) for axis in op.axis}
    axes: list[Axis] = []
    inside: list[Expr] = []
    guarded: list[Var] = []
    extents = [axis.dom.extent for axis in reduction.axes]
    if not any(contains_load(extent) or depends_on(extent, moving) for extent in extents):
        return tensors
    for axis, extent in zip(reduction.axes, extents, strict=True):
        low, one = axis.dom.min, const(1, dtype_of(extent))
        if contains_load(extent) and depends_on(extent, guarded):
            # where a range is empty, nothing says that its iteration may read
            extent = if_then_else(all_of(inside), extent, zero_like(extent))
        if contains_load(extent) or not prove(compare("ge", extent, one), ranges):
            inside.append(compare("lt", sub(axis.var, low), extent))
            least = binary("max", extent, one)
            axes.append(reduce_axis_within(axis.var, low, least))
            guarded.append(axis.var)
        else:
            axes.append(axis)
        ranges[axis.var] = axis_range(axis)
    if not inside:
        return tensors
    condition = all_of(inside)
    sources = tuple(
        if_then_else(condition, source, identity)
        for source, identity in zip(reduction.sources, reduction.combiner.identity, strict=True)
    )
    filled = replace(reduction, sources=sources, axes=tuple(axes))
    return reduction_stage(op.name, list(op.axis), filled)
