"""The strategies that a guarded sum can be computed by, and the choice of the cheapest.

A strategy is a function ``Sum → Sum | None`` of equal value. Those that apply are compared by
iterations, times what an iteration of each costs; a sum whose equations are solved is preferred to
any other, and an earlier row to a later one of equal cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from ..sums.iterations import box_iterations
from ..sums.sum import Sum
from .loop_over_updates import update_loops
from .part_of_box import part_of_box
from .ragged_loops import ragged_loops
from .residue_classes import residue_classes
from .scatter_add import scatter_add


@dataclass(frozen=True)
class Strategy:
    """A row of the table.

    Attributes
    ----------
    name : str
        As `explain` shows it.
    rewrite : callable
        From a sum to one of equal value for the same elements; None where it does not apply.
    weight : Fraction
        What an iteration costs, in iterations of a sum over a box.
    """

    name: str
    rewrite: Callable[[Sum], Sum | None]
    weight: Fraction = Fraction(1)


#: one more stage, or loops of varying extents, must save a tenth of the iterations
_LESS_REGULAR = Fraction(10, 9)
#: an update has a place and a value that stages compute, and changes what is there; a dense sum
#: tests an equation with data at every point
_BY_DATA = Fraction(4)

STRATEGIES = (
    Strategy("residue classes", residue_classes, _LESS_REGULAR),
    Strategy("part of the box", part_of_box, _LESS_REGULAR),
    Strategy("ragged loops", ragged_loops, _LESS_REGULAR),
    Strategy("gather", lambda whole: None if whole.dense else whole),
    Strategy("scatter-add", scatter_add, _BY_DATA),
    Strategy("loop over updates", update_loops, _BY_DATA),
    Strategy("dense sum", lambda whole: whole if whole.dense else None, _BY_DATA),
)
_WEIGHTS = {strategy.name: strategy.weight for strategy in STRATEGIES}
#: those of sums that no equation could make small
LAST_RESORTS = ("scatter-add", "dense sum")


def cheapest(whole: Sum) -> tuple[Sum, ...]:
    """The sum by the strategy that costs least; several sums, which add up, for cases of clamps."""
    found: list[tuple[Sum, ...]] = [
        (replace(result, strategy=strategy.name),)
        for strategy in STRATEGIES
        if (result := strategy.rewrite(whole)) is not None
    ]
    cases = _cases(whole)
    if cases is not None:
        found.insert(0, tuple(best for case in cases for best in cheapest(case)))
    return found[0] if len(found) == 1 else min(found, key=_cost)


def _cost(parts: tuple[Sum, ...]) -> tuple[bool, Fraction]:
    """What sums for the same elements cost together, those with an unsolved equation most."""
    total = Fraction(0)
    for part in parts:
        weight = max(_WEIGHTS[part.strategy], _BY_DATA if part.dense else 1)
        own = box_iterations([*part.target.every_axis, *part.axes]) if part.axes else 0
        total += weight * (own + part.made)
    if len(parts) > 1 or not all(part.axes for part in parts):
        total += box_iterations(parts[0].target.every_axis)
    return any(part.unsolved for part in parts), total


def _cases(whole: Sum) -> list[Sum] | None:
    """``Σ_i if min(i, 3) == b then v  →  Σ_i if i <= 3 and i == b then v, Σ_i if i > 3 and 3 == b
    then v``; None where the sum is solved as it is, or a case is not.
    """
    cases = whole.definition.cases() if whole.unsolved else None
    if cases is None:
        return None
    found: list[Sum] = []
    for case in cases:
        solved = case.at(whole.target)
        if solved is None:
            continue
        if solved.unsolved:  # the others would be solved for nothing
            return None
        found.append(solved)
    return found
