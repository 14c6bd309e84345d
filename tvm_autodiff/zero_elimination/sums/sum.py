"""The types of a guarded sum, of the elements it is for, and of its definition.

A `Definition` is a sum as it was written or derived: points, conditions, and the positions of the
points. A `Sum` is an expression for it at the elements of a `Target`. Strategies turn one sum into
an equal one. Another reducer may take the place of the sum, and its identity that of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...expr.build import zero_like
from ...expr.nodes import Axis, Expr
from ...graph.stage import Combiner, axis_range
from ...rules.terms import Condition
from .windows import Ranges


@dataclass(frozen=True)
class Target:
    """The elements that a sum is for: the axes of the prefix and of the resulting tensor.

    `places` are the tensor's indices in terms of `axes`, if they are not the axes themselves.
    """

    prefix: tuple[Axis, ...]
    axes: tuple[Axis, ...]
    places: tuple[Expr, ...] | None = None

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The element of the tensor that the sum is for."""
        return tuple(axis.var for axis in self.axes) if self.places is None else self.places

    @property
    def every_axis(self) -> tuple[Axis, ...]:
        """The axes of the prefix and of the tensor."""
        return (*self.prefix, *self.axes)

    @property
    def ranges(self) -> Ranges:
        """The range of every axis."""
        return {axis.var: axis_range(axis) for axis in self.every_axis}


@dataclass(frozen=True)
class Updates:
    """``out[prefix, place] += if conditions then value``, for all points of prefix and axes.

    Attributes
    ----------
    value : Expr
        The added value.
    conditions : tuple of Condition
        Conditions in order of evaluation. Each may protect the reads of later ones.
    axes : tuple of Axis
        The loops. Bounds may depend on other axes, or be data.
    place : tuple of Expr
        The position: an index for each dimension of the result after `prefix`.
    prefix : tuple of Axis
        Loops that are leading dimensions of the result.
    """

    value: Expr
    conditions: tuple[Condition, ...]
    axes: tuple[Axis, ...]
    place: tuple[Expr, ...]
    prefix: tuple[Axis, ...] = ()


class Definition(Protocol):
    """The definition of a sum, which can be solved for any elements, or added point by point."""

    @property
    def name(self) -> str:
        """The prefix of the names of stages for its parts."""

    def stage_name(self, what: str) -> str:
        """The name of a stage that is the whole sum."""

    def at(self, target: Target) -> Sum | None:
        """The sum at the elements of a target, over the smallest box found, or None if no point
        reaches them.
        """

    def updates(self, target: Target) -> Updates:
        """The sum as updates of the elements, one for each point."""

    def cases(self) -> Sequence[Definition] | None:
        """Sums with simpler positions that add up to this one, or None if it cannot be split."""

    def parts(self) -> Sequence[Definition] | None:
        """Sums with simpler conditions that add up to this one, or None if it cannot be split."""


@dataclass(frozen=True)
class Sum:
    """``Σ_axes source`` at the elements of a target.

    Attributes
    ----------
    axes : tuple of Axis
        Reduce axes that start at zero; empty if each element is a single value.
    source : Expr
        The summed expression, including guards.
    guards : tuple of Expr
        The guards on indices.
    unsolved : tuple of Expr
        Equations between indices that stay guards. The sum is dense in their variables.
    masks : tuple of Expr
        Equations with data that stay guards, over an axis that nothing else bounds. The sum is
        dense in it as well. The position of a maximum within a few windows is not such an equation.
    definition : Definition
        The definition that it was solved from.
    target : Target
        Its elements.
    strategy : str
        The name of the strategy that produced it.
    made : tuple of callable
        From a value for unknown sizes to the iterations of a stage that was made for it and that
        its source reads.
    windows : tuple of Expr
        Bounds with data on what an equation with data determines, such as ``0 <= i - start[b] < 8``
        for ``start[b] + k == i``: most windows do not contain the element.
    placed : tuple of Expr
        Equations with data that determine the elements of the sum and depend on no axis of it, such
        as ``b == k[]``: all other elements are zero.
    combiner : Combiner or None
        The reducer of one value that combines the points; None for a sum.
    """

    axes: tuple[Axis, ...]
    source: Expr
    guards: tuple[Expr, ...]
    unsolved: tuple[Expr, ...]
    masks: tuple[Expr, ...]
    definition: Definition = field(repr=False)
    target: Target = field(repr=False)
    strategy: str = ""
    made: tuple[Callable[[int], int], ...] = ()
    windows: tuple[Expr, ...] = ()
    placed: tuple[Expr, ...] = ()
    combiner: Combiner | None = None

    @property
    def otherwise(self) -> Expr:
        """The value of an element without points."""
        return zero_like(self.source) if self.combiner is None else self.combiner.identity[0]

    @property
    def dense(self) -> tuple[Expr, ...]:
        """All equations in whose variables the sum is dense."""
        return (*self.unsolved, *self.masks)

    @property
    def by_data(self) -> bool:
        """Whether it tests data at points that updates, one for each point, would go to at once."""
        return bool(self.dense or self.windows)


def of_one_point(combiner: Combiner | None, value: Expr) -> Expr:
    """What a reducer gives for a single value: ``max_{k<1} v → max(identity, v)``."""
    if combiner is None:
        return value
    [combined] = combiner.apply(combiner.identity, [value])
    return combined
