"""The derivative of max, min and selecting reducers: the seed goes to the selected element.

The index of that element is computed once, in the forward shape. The first of equal elements is
selected, in iteration order, so the weights of tied elements sum to one. The identity precedes all
elements; if it is selected, no element has a derivative.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.build import all_of, any_of, compare, const, lowest, select, variable
from ...expr.nodes import Expr, const_value, dtype_of, load, operands
from ...expr.structural import StructuralKeys
from ...graph.choices import choices, prefers
from ...graph.stage import Combiner, axis_vars
from ..terms import Condition, Contribution
from .reducing import Reducing, SourceSeed, copy_of_stage, flat_position, own_condition


def extreme(stage: Reducing, better: str) -> list[SourceSeed]:
    """max (`better` is ``gt``), min (``lt``) → the seed goes to the first best element, or to the
    one that another component of the reducer shows.
    """
    shown = _shown(stage.reduction.combiner, stage.component, better)
    if shown is not None:
        return _selected(stage, shown)
    dtype = dtype_of(stage.source)
    place = dtype_of(flat_position(stage.reduction.axes, stage.op))
    left = (variable("value_lhs", dtype), variable("place_lhs", place))
    right = (variable("value_rhs", dtype), variable("place_rhs", place))
    wins = _precedes(better, left, right)
    identity = stage.reduction.combiner.identity[stage.component]
    combiner = Combiner(
        left,
        right,
        (select(wins, left[0], right[0]), select(wins, left[1], right[1])),
        (identity, const(-1, place)),
    )
    return _by_index(stage, combiner, [stage.source], "winner")


def _precedes(better: str, left: Sequence[Expr], right: Sequence[Expr]) -> Expr:
    """Whether the left value is better, or the values are equal and the left place is first."""
    same = all_of([compare("eq", left[0], right[0]), compare("le", left[1], right[1])])
    return any_of([compare(better, left[0], right[0]), same])


def takes_first_best(combiner: Combiner) -> bool:
    """Whether a reducer takes the first of the best values, with its place: in any order of the
    elements it takes the same one.
    """
    if len(combiner.lhs) != 2:
        return False
    keys = StructuralKeys()
    kept = [keys.expr(_precedes(one, combiner.lhs, combiner.rhs)) for one in ("gt", "lt")]
    found = choices(combiner)
    return len(found) == 1 and len(found[0].components) == 2 and (
        keys.expr(found[0].keeps_left) in kept
    )


def is_neutral(identity: Expr, better: str) -> bool:
    """Whether no finite number is worse than the identity of a maximum (``gt``) or minimum."""
    value = const_value(identity)
    if value is None:
        return False
    return (value if better == "gt" else -value) <= lowest(dtype_of(identity))


def selection(stage: Reducing) -> list[SourceSeed]:
    """select(better, lhs, rhs) → the seed goes to the element that the reducer itself selects."""
    combiner = stage.reduction.combiner
    own = operands(combiner.result[stage.component])[0]
    preferred = prefers(own, combiner)
    shown = None
    if preferred is not None and preferred[0] == stage.component:
        shown = _shown(combiner, *preferred)
    return _selected(stage, own if shown is None else shown)


def _shown(combiner: Combiner, component: int, better: str) -> Expr | None:
    """The condition by which other components, such as an index, follow the extreme of this one.

    Of equal values they may keep another than the extreme alone would.
    """
    for choice in choices(combiner):
        others = set(choice.components) != {component}
        if others and prefers(choice.keeps_left, combiner) == (component, better):
            return choice.keeps_left
    return None


def _selected(stage: Reducing, better: Expr) -> list[SourceSeed]:
    """The seed goes to the element that is kept on the left if `better` holds."""
    combiner = stage.reduction.combiner
    place = dtype_of(flat_position(stage.reduction.axes, stage.op))
    lhs, rhs = variable("place_lhs", place), variable("place_rhs", place)
    extended = Combiner(
        (*combiner.lhs, lhs),
        (*combiner.rhs, rhs),
        (*combiner.result, select(better, lhs, rhs)),
        (*combiner.identity, const(-1, place)),
    )
    return _by_index(stage, extended, stage.reduction.sources, "winner")


def _by_index(
    stage: Reducing, combiner: Combiner, sources: Sequence[Expr], suffix: str
) -> list[SourceSeed]:
    """Compute the selected index once in the forward shape; the source at it gets the whole seed.
    """
    reduction = stage.reduction
    tracked = copy_of_stage(stage.op, reduction, combiner, sources, suffix)
    selected = load(tracked[-1], axis_vars(stage.op))
    here = compare("eq", selected, flat_position(reduction.axes, stage.op))
    conditions = (*own_condition(stage), Condition(here, False))
    return [(stage.component, Contribution(stage.seed, conditions))]
