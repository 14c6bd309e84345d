"""A reduction decomposed for the rules of reducers, and stages that run over it a second time.

It provides what every rule needs: the condition of the elements, their position in iteration order,
a stage of the forward shape that reduces something else over the same axes, and the axes of a stage
with one element per reduced element. The rules are in `reducers`, `arg_reduction`, `product` and
`general_reducer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ...errors import NotDifferentiableError, UnsolvableError
from ...expr.build import all_of, cast, compare, like, zero_like
from ...expr.linear_terms import linear_terms
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    always,
    binary,
    const_value,
    dtype_of,
    node_id,
)
from ...expr.printing.text import text
from ...expr.rewrite import contains_load, depends_on, substituter
from ...expr.simplify import constant_bounds, simplify
from ...graph.bounded_stage import bounded_reduction
from ...graph.plain_reduction import fold_condition
from ...graph.sizes.nonnegative import nonnegative
from ...graph.stage import (
    Combiner,
    Extent,
    Operation,
    Reduction,
    axis_range,
    data_axis,
    reduction_stage,
    renew_axis,
    renewed_reduction,
)
from ..terms import Condition, Contribution

#: (component of the source, its contribution)
SourceSeed = tuple[int, Contribution]


@dataclass(frozen=True)
class PrefixSuffix:
    """Prefix, element and suffix at each element of a reduction, in the axes of its stage.

    One expression for each component.
    """

    before: tuple[Expr, ...]
    element: tuple[Expr, ...]
    after: tuple[Expr, ...]


@dataclass(frozen=True)
class Reducing:
    """A reduction stage decomposed for the rules: stage, reduction, and one seed per component.

    `around` makes what the general rule needs, once for all components.
    """

    op: Operation
    reduction: Reduction
    component: int
    seed: Expr
    around: Callable[[], PrefixSuffix]

    @property
    def source(self) -> Expr:
        """The source of the current component."""
        return self.reduction.sources[self.component]


def own_condition(stage: Reducing) -> tuple[Condition, ...]:
    """The condition under which an element takes part in the reduction."""
    condition = stage.reduction.condition
    return () if always(condition) else (Condition(condition, True),)


def flat_position(axes: Sequence[Axis], op: Operation | None = None) -> Expr:
    """A number for the current element of a reduction that grows in iteration order, from zero.

    It is int32 if all of them are known to fit, whatever the dtype of the axes. Rows that differ in
    length, ``k < n, l < k``, count as the longest, so that no two elements have one number; `op` is
    their stage.
    """
    position: Expr | None = None
    ranges = [axis_range(axis) for axis in axes]
    literal = all(isinstance(bound, int) for pair in ranges for bound in pair)
    small = literal and all(abs(low) + extent < 2**31 for low, extent in ranges)
    small = small and prod(extent for _, extent in ranges) < 2**31
    for place, (axis, (low, extent)) in enumerate(zip(axes, ranges, strict=True)):
        var = cast("int32", axis.var) if small else axis.var
        step = var if isinstance(low, int) and low == 0 else var - low
        if position is None:
            position = step
        else:
            longest = extent if op is None else _longest(op, extent, axes[:place])
            position = position * longest + step
    assert position is not None
    return position


def _longest(op: Operation, extent: Extent, outer: Sequence[Axis]) -> Extent:
    """The largest extent of an axis, whatever the values of the reduce axes around it."""
    if isinstance(extent, int) or not depends_on(extent, [axis.var for axis in outer]):
        return extent
    known: dict[Var, Any] = {one.var: axis_range(one) for one in (*op.axis, *outer)}
    extent = simplify(extent, known)
    for axis in reversed(outer):
        if isinstance(extent, int) or not depends_on(extent, [axis.var]):
            continue
        low, length = axis_range(axis)
        terms, _ = linear_terms(extent)
        own = [factor for node, factor in terms if node_id(node) == node_id(axis.var)]
        others = [node for node, _ in terms if node_id(node) != node_id(axis.var)]
        if len(own) == 1 and not depends_on(others, [axis.var]):
            end = low + length - 1 if own[0] > 0 else low
            extent = simplify(substituter({axis.var: like(axis.var, 0) + end})(extent))
            continue
        return _bound_of(op, extent, known)
    return extent


def zero_based(axes: Sequence[Axis]) -> list[Expr]:
    """The value of each axis counted from zero: ``k - low``."""
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
    """A stage of the forward shape that reduces `sources` over the same axes.

    It also returns the position, if required.
    """
    if len(sources) < len(combiner.lhs):
        sources = [*sources, flat_position(reduction.axes, op)]
    axes = [renew_axis(axis) for axis in op.axis]
    copy = renewed_reduction(
        replace(reduction, combiner=combiner, sources=tuple(sources), init=()),
        {old.var: new.var for old, new in zip(op.axis, axes, strict=True)},
    )
    bounded = bounded_reduction(axes, fold_condition(copy))
    return reduction_stage(f"{op.name}_{suffix}", axes, bounded)


@dataclass(frozen=True)
class Elements:
    """One index for each reduced element: the axes (a, k) of a stage, with k from zero.

    Attributes
    ----------
    axes : list of Axis
        The axes of the reduction's stage, then one for each reduce axis, at its largest extent.
    rename : callable
        Maps expressions in the stage's own axes to expressions in these axes.
    inside : Expr
        Whether there is an element, because windows may differ in length.
    """

    axes: list[Axis]
    rename: Callable[[Expr], Expr]
    inside: Expr


def elements_of(op: Operation, reduction: Reduction) -> Elements:
    """The indices of a stage with one element for each reduced element.

    Raises
    ------
    NotDifferentiableError
        If the extent of a reduce axis depends on other axes and has no constant bound.
    """
    axes = [renew_axis(axis) for axis in op.axis]
    mapping: dict[Var, Expr] = {old.var: new.var for old, new in zip(op.axis, axes, strict=True)}
    ranges: dict[Var, Any] = {axis.var: axis_range(axis) for axis in axes}
    inside: list[Expr] = []
    for old in reduction.axes:
        low, extent = axis_range(old)
        length: Expr | None = None
        read = not isinstance(extent, int) and contains_load(extent)
        if read or (not isinstance(extent, int) and depends_on(extent, list(mapping))):
            length = substituter(mapping)(extent)
            length = length if read else simplify(length, ranges)
            extent = _bound_of(op, length, ranges)
        new = data_axis(old.var.name, nonnegative(extent), dtype_of(old.var))
        if length is not None and const_value(length) is None:
            inside.append(compare("lt", new.var, length))
        if isinstance(low, int):
            place = new.var if low == 0 else new.var + low
        else:
            place = new.var + substituter(mapping)(low)
        axes.append(new)
        ranges[new.var] = (0, extent)
        mapping[old.var] = place
    return Elements(axes, substituter(mapping), all_of(inside))


def _bound_of(op: Operation, extent: Expr, ranges: Mapping[Var, Any]) -> int:
    try:
        return constant_bounds(binary("max", extent, zero_like(extent)), ranges)[1]
    except UnsolvableError as error:
        raise NotDifferentiableError(
            f"stage {op.name} reduces over windows whose length {text(extent, limit=200)} has no "
            "constant bound: give it one, such as min(length, 64), or a custom derivative with "
            "override= or manual="
        ) from error
