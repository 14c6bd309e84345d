"""Makes stages whose index arithmetic cannot overflow, by applying `widths` to bodies and bounds.

All stages of a gradient are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tvm import ir, tirx

from ..expr.integers.decided_divisions import with_decided_divisions
from ..expr.integers.intervals import range_intervals
from ..expr.integers.widths import Widths
from ..expr.nodes import Axis, Expr, Tensor, Var, node_id
from ..expr.rewrite import variables_of
from .stage import (
    Extent,
    Reduction,
    axis_range,
    data_axis,
    make_stage,
    reduce_expr,
    reduction_of_body,
)


def widths_over(axes: Sequence[Axis]) -> Widths:
    """The widths of expressions over axes; variables that only extents depend on are sizes."""
    return widths_in({axis.var: axis_range(axis) for axis in axes})


def widths_in(ranges: Mapping[Var, tuple[Extent, Extent]]) -> Widths:
    """The widths of expressions over variables with ranges ``(minimum, extent)``."""
    bounds = [part for pair in ranges.values() for part in pair if not isinstance(part, int)]
    own = {node_id(var) for var in ranges}
    sizes = [var for var in variables_of(bounds) if node_id(var) not in own]
    constant = {
        node_id(var) for var, pair in ranges.items() if all(isinstance(b, int) for b in pair)
    }
    return Widths(range_intervals(ranges, sizes), is_open=lambda var: node_id(var) not in constant)


def bounded_stage(
    name: str,
    axes: Sequence[Axis],
    body: Sequence[Expr],
    tag: str = "",
) -> list[Tensor]:
    """`stage.make_stage` of bodies in which no index arithmetic leaves its type."""
    reduction = reduction_of_body(body[0])
    if reduction is None:
        widths = widths_over(axes)
        decided = _decided(axes, body)
        return make_stage(name, axes, [widths.value(part) for part in decided], tag)
    bounded = bounded_reduction(axes, reduction)
    if bounded is reduction:
        return make_stage(name, axes, body, tag)
    return make_stage(name, axes, [reduce_expr(bounded, n) for n in range(len(body))], tag)


def elementwise_stage(
    name: str, shape: Sequence[Extent], body: Callable[[list[Var]], Expr]
) -> Tensor:
    """``name[i] = body(i)`` over axes of a shape."""
    axes = [data_axis(f"i{n}", extent) for n, extent in enumerate(shape)]
    return bounded_stage(name, axes, [body([axis.var for axis in axes])])[0]


def bounded_reduction(axes: Sequence[Axis], reduction: Reduction) -> Reduction:
    """A reduction whose index arithmetic stays in its type; the same object if nothing changes."""
    widths = widths_over([*axes, *reduction.axes])
    old = [*reduction.sources, *reduction.init, reduction.condition]
    new = [widths.value(part) for part in _decided([*axes, *reduction.axes], old)]
    summed = tuple(_bounded_axis(axis, widths) for axis in reduction.axes)
    if all(node_id(a) == node_id(b) for a, b in zip(old, new, strict=True)) and all(
        a is b for a, b in zip(summed, reduction.axes, strict=True)
    ):
        return reduction
    count = len(reduction.sources)
    return replace(
        reduction,
        sources=tuple(new[:count]),
        init=tuple(new[count:-1]),
        condition=new[-1],
        axes=summed,
    )


def _decided(axes: Sequence[Axis], exprs: Sequence[Expr]) -> list[Expr]:
    """Expressions without the quotients that the ranges of axes decide."""
    ranges = range_intervals({axis.var: axis_range(axis) for axis in axes})
    return [with_decided_divisions(expr, ranges) for expr in exprs]


def _bounded_axis(axis: Axis, widths: Widths) -> Axis:
    low, extent = widths.value(axis.dom.min), widths.value(axis.dom.extent)
    if node_id(low) == node_id(axis.dom.min) and node_id(extent) == node_id(axis.dom.extent):
        return axis
    return tirx.IterVar(ir.Range.from_min_extent(low, extent), axis.var, axis.iter_type)
