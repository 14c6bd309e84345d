"""The derivative of any associative reducer, single or tuple, by prefix and suffix.

In: a reduction with a user-made combiner ⊕. Out: what arrives at each component of the source, from
``out = (before ⊕ F) ⊕ after``, where before and after combine the elements on either side of F.
Two scans make them, a step an element; they are common to all components. Right for combiners that
do not commute, too. The derivative of the scans themselves is `scans`'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.build import all_of, if_then_else, variable
from ..ir.lets import merge_equal
from ..ir.nodes import Expr, Tensor, Var, dtype_of, is_const, is_float, load, node_id
from ..ir.rewrite import expand_lets, substituter
from ..ir.scan_kernel import Recurrence, Scan, scan_stage
from ..ir.stage import (
    Axis,
    Operation,
    Reduction,
    always,
    axis_range,
    axis_vars,
    make_stage,
    renew_axis,
    whole_tensor,
)
from .reducing import (
    Around,
    Elements,
    Reducing,
    SourceSeed,
    elements_of,
    own_condition,
    zero_based,
)
from .terms import Condition, Contribution, pull_back


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
    """Tells the nodes that are one of some variables."""
    ids = {node_id(var) for var in variables}
    return lambda node: node_id(node) in ids


def around_elements(op: Operation, reduction: Reduction) -> Around:
    """``before[a, k] = ⊕_{k' < k} F(a, k'), after[a, k] = ⊕_{k' > k} F(a, k')``, by two scans.

    Places are compared in iteration order.
    """
    combiner = reduction.combiner
    places = elements_of(op, reduction)
    rows = len(op.axis)
    literals: dict[int, Expr] = {}
    tensors: dict[int, Tensor] = {}
    sources = merge_equal([expand_lets(source) for source in reduction.sources])
    made: dict[tuple[int, str], Tensor] = {}
    for number, (source, identity) in enumerate(zip(sources, combiner.identity, strict=True)):
        if is_const(source) and always(reduction.condition) and always(places.inside):
            literals[number] = source
            continue
        key = (node_id(source), repr(identity))  # equal components share their elements
        if key not in made:
            made[key] = _elements(op, reduction, places, source, identity)
        tensors[number] = made[key]
    shape = [axis_range(axis)[1] for axis in places.axes]

    def scan(name: str, state: Sequence[Var], element: Sequence[Var], backward: bool) -> list[Expr]:
        fixed = substituter({element[number]: value for number, value in literals.items()})
        recurrence = Recurrence(
            tuple(state),
            tuple(element[number] for number in tensors),
            tuple(fixed(result) for result in combiner.result),
            combiner.identity,
        )
        elements = tuple(tensors.values())
        whole = Scan(recurrence, elements, tuple(shape[:rows]), tuple(shape[rows:]), backward)
        return [load(tensor, here) for tensor in scan_stage(f"{op.name}_{name}", whole)]

    here = (*axis_vars(op), *zero_based(reduction.axes))
    before = scan("before", combiner.lhs, combiner.rhs, False)
    after = scan("after", combiner.rhs, combiner.lhs, True)
    element = [
        literals[number]
        if number in literals
        else load(tensors[number], here[len(here) - len(tensors[number].shape) :])
        for number in range(len(sources))
    ]
    return Around(tuple(before), tuple(element), tuple(after))


def _elements(
    op: Operation, reduction: Reduction, places: Elements, source: Expr, identity: Expr
) -> Tensor:
    """One component of all elements as a tensor: one that the source reads as it is, or a stage."""
    exists = all_of([places.inside, places.rename(reduction.condition)])
    body = if_then_else(exists, places.rename(source), identity)
    for first in range(len(op.axis) + 1):
        same = whole_tensor(body, places.axes[first:])
        if same is not None:
            return same
    axes: list[Axis] = [renew_axis(axis) for axis in places.axes]
    rename = substituter({old.var: new.var for old, new in zip(places.axes, axes, strict=True)})
    return make_stage(f"{op.name}_elements", axes, [rename(body)])[0]
