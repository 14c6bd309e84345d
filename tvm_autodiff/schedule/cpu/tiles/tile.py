"""The factors of a register tile, and where one lies: its first places, their ends, and the part of
the reduction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from ....codegen.loop_nest import Local
from ....expr.nodes import Expr, Var
from ....graph.stage import Extent
from ...cost import MAX_COPIES


@dataclass(frozen=True)
class Tile:
    """Factors of a register tile; axes are numbers of output axes.

    Attributes
    ----------
    vector : int
        The vectorised axis, with `width` elements per register and `vectors` registers.
    unrolled : tuple of (axis, factor)
        The other axes of the tile.
    """

    vector: int
    width: int = 1
    vectors: int = 1
    unrolled: tuple[tuple[int, int], ...] = ()

    @property
    def unrolled_elements(self) -> int:
        """The number of elements of the tile for each lane of its vectors."""
        return prod(factor for _, factor in self.unrolled)

    @property
    def factors(self) -> dict[int, int]:
        """``axis → extent of the tile along it``."""
        return {**dict(self.unrolled), self.vector: self.width * self.vectors}

    def has_vectors_of(self, other: Tile) -> bool:
        """Whether the vectors of both lie alike."""
        mine, theirs = ((one.vector, one.width, one.vectors) for one in (self, other))
        return mine == theirs


def factors_of(extent: int) -> list[int]:
    """Tile factors of an axis: those that divide it, else ones that waste little."""
    exact = [factor for factor in range(2, MAX_COPIES + 1) if extent % factor == 0]
    if any(factor >= 4 for factor in exact) or extent <= 3:
        return exact
    return exact + [factor for factor in (4, 6, 8) if factor < extent]


@dataclass(frozen=True)
class Part:
    """A part of a reduction, which begins where the part before it has ended.

    Attributes
    ----------
    var : Var
        The variable of the reduced axis that the parts divide.
    low, count : Expr
        Its first place, and how many there are.
    first, last : Expr
        Whether no part is before it, or after it.
    kept : tuple of Local
        The accumulators of all tiles between two parts: ``[tile, place of the accumulator]``.
    tile : Expr
        The number of the tile.
    """

    var: Var
    low: Expr
    count: Expr
    first: Expr
    last: Expr
    kept: tuple[Local, ...]
    tile: Expr


@dataclass(frozen=True)
class Spot:
    """Where a tile lies.

    Attributes
    ----------
    starts : mapping from axis number to Expr
        Its first place along each output axis.
    ends : mapping from axis number to Extent
        What places have to be below, along axes of which it may go beyond the end.
    counts : mapping from axis number to int
        How many places it has along an axis, where these are fewer than in the tile.
    values : mapping from Var to Expr
        Other variables in what it reads.
    part : Part or None
        The part of the reduction, if it is not the whole.
    """

    starts: Mapping[int, Expr]
    ends: Mapping[int, Extent] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)
    values: Mapping[Var, Expr] = field(default_factory=dict)
    part: Part | None = None
