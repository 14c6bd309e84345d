"""The table of strategies for guarded sums, and the choice of the cheapest.

A strategy is a function ``Sum → Sum | None`` that preserves the value. Applicable strategies are
compared by their iterations times the cost of an iteration. A sum with solved equations is
preferred to all others, and of equal costs the earlier row. Strategies that add up parts are no
choice for other reducers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...expr.nodes import is_load, op_name, operands
from ...expr.rewrite import postorder
from ..sums.iterations import (
    BY_DATA,
    box_iterations,
    extents_of,
    sample_size,
    sum_iterations,
)
from ..sums.sum import Sum
from .equal_elements import equal_elements
from .loop_over_updates import update_loops
from .part_of_box import part_of_box
from .ragged_loops import ragged_loops
from .residue_classes import residue_classes
from .scatter_add import OF_POINTS, scatter_add, scatter_points


@dataclass(frozen=True)
class Strategy:
    """A row of the table.

    Attributes
    ----------
    name : str
        The name that `explain` shows.
    rewrite : callable
        Maps a sum to an equal one for the same elements, or to None if it does not apply.
    weight : Fraction
        The cost of an iteration, relative to a sum over a box.
    adds : bool
        Whether it adds up parts of elements, and so is for sums only.
    """

    name: str
    rewrite: Callable[[Sum], Sum | None]
    weight: Fraction = Fraction(1)
    adds: bool = False


_DIVISIONS = ("floordiv", "floormod")
#: one more stage, or loops of varying extents, must save at least a tenth of the iterations
_LESS_REGULAR = Fraction(10, 9)
_BY_DATA = Fraction(BY_DATA)

STRATEGIES = (
    Strategy("residue classes", residue_classes, _LESS_REGULAR),
    Strategy("part of the box", part_of_box, _LESS_REGULAR),
    Strategy("equal elements", equal_elements, _LESS_REGULAR),
    Strategy("ragged loops", ragged_loops, _LESS_REGULAR),
    Strategy("gather", lambda whole: None if whole.dense else whole),
    Strategy("scatter-add", scatter_add, _BY_DATA, adds=True),
    Strategy("scatter of points", scatter_points, Fraction(OF_POINTS), adds=True),
    Strategy("loop over updates", update_loops, _BY_DATA, adds=True),
    Strategy("dense sum", lambda whole: whole if whole.dense else None, _BY_DATA),
)
_WEIGHTS = {strategy.name: strategy.weight for strategy in STRATEGIES}
#: strategies for sums that no equation makes small
LAST_RESORTS = ("scatter-add", "dense sum")


def cheapest(whole: Sum) -> tuple[Sum, ...]:
    """The sum by the cheapest strategy; for cases of clamps or conditions several sums, which add
    up.
    """
    found: list[tuple[Sum, ...]] = [
        (replace(result, strategy=strategy.name),)
        for strategy in STRATEGIES
        if not (strategy.adds and whole.combiner is not None)
        and (result := strategy.rewrite(whole)) is not None
    ]
    cases = _cases(whole) if whole.combiner is None else None
    if cases is not None:
        found.insert(0, _apart(cases))
    parts = _parts(whole) if whole.combiner is None else None
    apart = () if parts is None else _apart(parts)
    if len(found) == 1 and parts is None:
        return found[0]
    summed = [axis for sums in (*found, apart) for one in sums for axis in one.axes]
    size = sample_size(extents_of([*whole.target.every_axis, *summed]))
    best = min(found, key=lambda sums: _cost(sums, size))
    if parts is None:
        return best
    unsolved, cost = _cost(apart, size)
    cost += _of_quotients(apart, whole, size)
    return apart if (unsolved, cost) < _cost(best, size) else best


def _apart(sums: Sequence[Sum]) -> tuple[Sum, ...]:
    return tuple(best for one in sums for best in cheapest(one))


def _cost(parts: tuple[Sum, ...], size: int) -> tuple[bool, Fraction]:
    """The total cost of sums for the same elements, with `size` for unknown sizes; unsolved
    equations cost most.
    """
    total = Fraction(0)
    for part in parts:
        weight = max(_WEIGHTS[part.strategy], _BY_DATA if part.by_data else 1)
        made = sum(made(size) for made in part.made)
        total += weight * (sum_iterations(part, size) if part.axes else made)
    if len(parts) > 1 or not all(part.axes for part in parts):
        total += box_iterations(parts[0].target.every_axis, size)
    return any(part.unsolved for part in parts), total


def _cases(whole: Sum) -> list[Sum] | None:
    """``Σ_i if min(i, 3) == b then v → Σ_i if i <= 3 and i == b then v, Σ_i if i > 3 and 3 == b
    then v``.

    None if the sum is solved without cases, or if a case is not solved.
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


def _parts(whole: Sum) -> list[Sum] | None:
    """``Σ_k if k == b or k == b + 1 then v → v[k := b] + v[k := b + 1]``.

    None if there is no guard to split, or if a part has an equation that is not solved.
    """
    if not whole.axes or not (whole.unsolved or whole.guards):
        return None
    parts = whole.definition.parts()
    if parts is None:
        return None
    solved = [part for part in (one.at(whole.target) for one in parts) if part is not None]
    return None if any(part.unsolved for part in solved) else solved


def _of_quotients(apart: Sequence[Sum], whole: Sum, size: int) -> int:
    """What parts cost that read at quotients or remainders where the whole does not: loops over
    such places gather.
    """
    if _reads_at_quotients(whole):
        return 0
    elements = box_iterations(whole.target.every_axis, size)
    return BY_DATA * elements * sum(map(_reads_at_quotients, apart))


def _reads_at_quotients(found: Sum) -> bool:
    reads = [node for node in postorder(found.source) if is_load(node)]
    places = [place for node in reads for place in operands(node)]
    return any(op_name(node) in _DIVISIONS for node in postorder(places))
