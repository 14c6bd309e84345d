"""The derivative of any associative reducer, single or tuple, by prefix and suffix.

In: a reduction with a user-made combiner ⊕. Out: what arrives at each component of the source, from
``out = (before ⊕ F) ⊕ after``, where before and after combine the elements on either side of F.
Right for combiners that do not commute, too; the two extra stages cost the square of the number of
reduced elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.build import variable
from ..ir.lets import merge_equal
from ..ir.nodes import Expr, Var, dtype_of, is_float, load, node_id
from ..ir.rewrite import substituter
from ..ir.stage import axis_vars
from .reducing import (
    Reducing,
    SourceSeed,
    own_condition,
    reduce_others,
    stage_over_elements,
    zero_based,
)
from .terms import Condition, Contribution, pull_back


def general(stage: Reducing) -> list[SourceSeed]:
    """out = (before ⊕ F) ⊕ after → the combiner's own derivative at (before, F) and at (before ⊕ F,
    after).
    """
    op, reduction = stage.op, stage.reduction
    combiner = reduction.combiner
    axes, places, _ = stage_over_elements(op, reduction)
    before = reduce_others(stage, axes, places, "lt", "before")
    after = reduce_others(stage, axes, places, "gt", "after")
    here = (*axis_vars(op), *zero_based(reduction.axes))
    element = [variable("element", dtype_of(var)) for var in combiner.lhs]
    inner = combiner.apply([load(tensor, here) for tensor in before], element)
    outer = combiner.apply(inner, [load(tensor, here) for tensor in after])[stage.component]
    [root] = merge_equal([outer])
    arriving = pull_back(
        [(root, [Contribution(stage.seed)], None)],
        one_of(element),
        f"stage {op.name} (its reducer)",
    )
    at_source = substituter(dict(zip(element, reduction.sources, strict=True)))
    seeds: list[SourceSeed] = []
    for place, var in enumerate(element):
        if not is_float(var) or node_id(var) not in arriving:
            continue
        for contribution in arriving[node_id(var)][1]:
            conditions = tuple(
                Condition(at_source(condition.expr), condition.guards)
                for condition in contribution.conditions
            )
            seeds.append(
                (
                    place,
                    Contribution(
                        at_source(contribution.value), (*own_condition(stage), *conditions)
                    ),
                )
            )
    return seeds


def one_of(variables: Sequence[Var]) -> Callable[[Expr], bool]:
    ids = {node_id(var) for var in variables}
    return lambda node: node_id(node) in ids
