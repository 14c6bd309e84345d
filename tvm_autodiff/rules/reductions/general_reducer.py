"""The derivative of any associative reducer, single or tuple, by prefixes and suffixes.

For a combiner ⊕, ``out = (before ⊕ F) ⊕ after``, where before and after combine the elements on
either side of F (`around`). This gives the derivative with respect to each component of F, also for
combiners that do not commute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...expr.build import variable
from ...expr.nodes import Expr, Var, dtype_of, is_float, node_id
from ...expr.rewrite import substituter
from ...expr.sharing.lets import merge_equal
from ..terms import Condition, Contribution, pull_back
from .reducing import Reducing, SourceSeed, own_condition


def general(stage: Reducing) -> list[SourceSeed]:
    """out = (before ⊕ F) ⊕ after → the combiner's own derivative at (before, F) and at (before ⊕ F,
    after).
    """
    combiner, around = stage.reduction.combiner, stage.around()
    element = [variable("element", dtype_of(var)) for var in combiner.lhs]
    inner = combiner.apply(around.before, element)
    outer = combiner.apply(inner, around.after)[stage.component]
    [root] = merge_equal([outer])
    arriving = pull_back(
        [(root, [Contribution(stage.seed)], None)],
        one_of(element),
        f"stage {stage.op.name} (its reducer)",
    )
    at_element = substituter(dict(zip(element, around.element, strict=True)))
    seeds: list[SourceSeed] = []
    for place, var in enumerate(element):
        if not is_float(var) or node_id(var) not in arriving:
            continue
        for contribution in arriving[node_id(var)][1]:
            conditions = tuple(
                Condition(at_element(condition.expr), condition.guards)
                for condition in contribution.conditions
            )
            value = at_element(contribution.value)
            seeds.append((place, Contribution(value, (*own_condition(stage), *conditions))))
    return seeds


def one_of(variables: Sequence[Var]) -> Callable[[Expr], bool]:
    """A predicate for nodes that are one of some variables."""
    ids = {node_id(var) for var in variables}
    return lambda node: node_id(node) in ids
