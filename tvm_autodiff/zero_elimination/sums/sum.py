"""The type of a guarded sum, of the elements that it is for, and of what it was solved from.

A `Definition` is a sum as it was written or derived: points, conditions, and the places that the
points go to. A `Sum` is an expression for it at the elements of a `Target`. Strategies turn one sum
into another of equal value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...expr.nodes import Axis, Expr
from ...graph.stage import axis_range
from ...rules.terms import Condition
from .windows import Ranges


@dataclass(frozen=True)
class Target:
    """The elements that a sum is for: the axes of the prefix and of the tensor that results.

    `places` are the tensor's indices in terms of `axes`, where those are not the axes themselves.
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
        """Those of the prefix and of the tensor."""
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
        What is added.
    conditions : tuple of Condition
        In the order in which they are evaluated: each may protect the reads of those after it.
    axes : tuple of Axis
        The loops; bounds may depend on other axes, or be data.
    place : tuple of Expr
        Where it is added: an index for each dimension of the result behind `prefix`.
    prefix : tuple of Axis
        Loops that are leading dimensions of the result as they stand.
    """

    value: Expr
    conditions: tuple[Condition, ...]
    axes: tuple[Axis, ...]
    place: tuple[Expr, ...]
    prefix: tuple[Axis, ...] = ()


class Definition(Protocol):
    """What a sum is of: it can be solved for any elements, and added up point by point."""

    @property
    def name(self) -> str:
        """Prefix of the names of stages for parts of it."""

    def stage_name(self, what: str) -> str:
        """The name of a stage that is the whole sum."""

    def at(self, target: Target) -> Sum | None:
        """The sum at the elements of a target, over as small a box as the solver finds; None where
        no point reaches them.
        """

    def updates(self, target: Target) -> Updates:
        """The same as updates of the elements, one for each point."""

    def cases(self) -> Sequence[Definition] | None:
        """Sums that add up to this one, each with simpler places; None where there is no cut."""


@dataclass(frozen=True)
class Sum:
    """``Σ_axes source`` at the elements of a target.

    Attributes
    ----------
    axes : tuple of Axis
        Reduce axes, 0-based; none where each element is one value.
    source : Expr
        What is summed, guards included.
    guards : tuple of Expr
        The conditions on indices among them.
    unsolved : tuple of Expr
        Equations between indices that stay guards: the sum is dense in their variables.
    masks : tuple of Expr
        Equations with data that stay guards, over an axis that nothing else bounds: the sum is
        dense in it, too. (A maximum's place within a few windows is no such equation.)
    definition : Definition
        What it was solved from.
    target : Target
        The elements that it is for.
    strategy : str
        The name of the strategy that gave it.
    made : int
        Iterations of the stages that were made for it, which its source reads.
    """

    axes: tuple[Axis, ...]
    source: Expr
    guards: tuple[Expr, ...]
    unsolved: tuple[Expr, ...]
    masks: tuple[Expr, ...]
    definition: Definition = field(repr=False)
    target: Target = field(repr=False)
    strategy: str = ""
    made: int = 0

    @property
    def dense(self) -> tuple[Expr, ...]:
        """All equations that the sum is dense in."""
        return (*self.unsolved, *self.masks)
