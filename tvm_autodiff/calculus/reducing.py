"""A reduction taken apart for the rules of reducers, and stages that run over it a second time.

In: a reduction stage. Out: the pieces that every rule needs: the condition of its elements, their
place in iteration order, a stage of the forward shape that reduces something else over the same
axes, a stage with one element for each reduced element. The rules themselves live in `reducers`,
`winner`, `product` and `general_reducer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.build import all_of, compare
from ..ir.nodes import Expr, Tensor, dtype_of, node_id
from ..ir.plain_reduction import fold_condition
from ..ir.rewrite import substituter
from ..ir.stage import (
    Axis,
    Combiner,
    Operation,
    Reduction,
    always,
    axis_range,
    data_axis,
    reduction_stage,
    renew_axis,
)
from .terms import Condition, Contribution

#: (component of the source, what arrives there)
SourceSeed = tuple[int, Contribution]


@dataclass(frozen=True)
class Reducing:
    """A reduction stage taken apart for the rules: stage, reduction, and one seed a component."""

    op: Operation
    reduction: Reduction
    component: int
    seed: Expr

    @property
    def source(self) -> Expr:
        """The source of the component at hand."""
        return self.reduction.sources[self.component]


def own_condition(stage: Reducing) -> tuple[Condition, ...]:
    condition = stage.reduction.condition
    return () if always(condition) else (Condition(condition, True),)


def flat_position(axes: Sequence[Axis]) -> Expr:
    """The place of the current element in iteration order, counted from zero."""
    position: Expr | None = None
    for axis in axes:
        low, extent = axis_range(axis)
        step = axis.var if isinstance(low, int) and low == 0 else axis.var - low
        position = step if position is None else position * extent + step
    assert position is not None
    return position


def zero_based(axes: Sequence[Axis]) -> list[Expr]:
    result = []
    for axis in axes:
        low, _ = axis_range(axis)
        result.append(axis.var if isinstance(low, int) and low == 0 else axis.var - low)
    return result


def copy_of_stage(
    op: Operation,
    reduction: Reduction,
    combiner: Combiner,
    sources: Sequence[Expr],
    suffix: str,
) -> list[Tensor]:
    """A stage of the forward shape that reduces `sources`, and the place where asked, over the same
    axes.
    """
    if len(sources) < len(combiner.lhs):
        sources = [*sources, flat_position(reduction.axes)]
    axes = [renew_axis(axis) for axis in op.axis]
    inner = [renew_axis(axis) for axis in reduction.axes]
    rename = substituter(
        {
            old.var: new.var
            for old, new in zip((*op.axis, *reduction.axes), (*axes, *inner), strict=True)
        }
    )
    inner = [rename_bounds(axis, rename) for axis in inner]
    copy = Reduction(
        combiner,
        tuple(rename(source) for source in sources),
        tuple(inner),
        rename(reduction.condition),
        (),
    )
    return reduction_stage(f"{op.name}_{suffix}", axes, fold_condition(copy))


def rename_bounds(axis: Axis, rename: Callable[[Expr], Expr]) -> Axis:
    """The axis with its own variable and its bounds renamed: adaptive windows have bounds on output
    axes.
    """
    low, extent = axis.dom.min, axis.dom.extent
    new_low, new_extent = rename(low), rename(extent)
    if node_id(low) == node_id(new_low) and node_id(extent) == node_id(new_extent):
        return axis
    return type(axis)(type(axis.dom).from_min_extent(new_low, new_extent), axis.var, axis.iter_type)


def stage_over_elements(
    op: Operation, reduction: Reduction
) -> tuple[list[Axis], list[Expr], Callable[[Expr], Expr]]:
    """Axes (a, k) of a stage with one element for each reduced element.

    Returns the axes (0-based), the reduce variables as expressions in them, and the renaming from
    the stage's own axes.
    """
    outer = [renew_axis(axis) for axis in op.axis]
    inner = [
        data_axis(axis.var.name, axis_range(axis)[1], dtype_of(axis.var)) for axis in reduction.axes
    ]
    places: list[Expr] = []
    for old, new in zip(reduction.axes, inner, strict=True):
        low, _ = axis_range(old)
        places.append(new.var if isinstance(low, int) and low == 0 else new.var + low)
    mapping = {old.var: new.var for old, new in zip(op.axis, outer, strict=True)}
    mapping.update({old.var: place for old, place in zip(reduction.axes, places, strict=True)})
    return [*outer, *inner], places, substituter(mapping)


def reduce_others(
    stage: Reducing, axes: Sequence[Axis], places: Sequence[Expr], order: str, suffix: str
) -> list[Tensor]:
    """The reducer over the elements k' that stand before, after or apart from each element k.

    out[a, k] = ⊕_{k' order k} F(a, k'), compared by place in iteration order; order is ``lt``,
    ``gt``, ``ne``.
    """
    op, reduction = stage.op, stage.reduction
    inner = [renew_axis(axis, f"{axis.var.name}_other") for axis in reduction.axes]
    outer = [axis.var for axis in axes[: len(op.axis)]]
    rename = substituter(
        {
            **{old.var: new for old, new in zip(op.axis, outer, strict=True)},
            **{old.var: new.var for old, new in zip(reduction.axes, inner, strict=True)},
        }
    )
    here = substituter({axis.var: place for axis, place in zip(inner, places, strict=True)})(
        flat_position(inner)
    )
    keep = [compare(order, flat_position(inner), here)]
    if not always(reduction.condition):
        keep.append(rename(reduction.condition))
    inner = [rename_bounds(axis, rename) for axis in inner]
    copy = Reduction(
        reduction.combiner,
        tuple(rename(source) for source in reduction.sources),
        tuple(inner),
        all_of(keep),
        (),
    )
    fresh = [renew_axis(axis) for axis in axes]
    renew = substituter({old.var: new.var for old, new in zip(axes, fresh, strict=True)})
    copy = Reduction(
        copy.combiner,
        tuple(renew(source) for source in copy.sources),
        tuple(rename_bounds(axis, renew) for axis in copy.axes),
        renew(copy.condition),
        (),
    )
    return reduction_stage(f"{op.name}_{suffix}", fresh, fold_condition(copy))
