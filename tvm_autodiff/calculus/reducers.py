"""The derivative of a reduction with respect to its source, reducer by reducer.

In: a reduction stage. Out: for each component of the output, what arrives at each component of the source at
every reduce position, given a seed. A table tells the reducers that have a rule of their own (sum; max, min
and selections such as argmax by the winner; product without dividing by zero); every other reducer, single or
tuple, takes the general rule through prefix and suffix, which is right for any associative combiner and costs
the square of the number of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.build import (
    add,
    all_of,
    any_of,
    cast,
    compare,
    const,
    div,
    if_then_else,
    like,
    mul,
    select,
    sub,
    variable,
    zero_like,
)
from ..ir.nodes import (
    Expr,
    Tensor,
    Var,
    binary,
    const_value,
    dtype_of,
    is_const,
    is_float,
    load,
    node_id,
    op_name,
    operands,
)
from ..ir.rewrite import expand_lets, substituter, variables_of
from ..ir.lets import merge_equal
from ..ir.stage import (
    Axis,
    Combiner,
    Operation,
    Reduction,
    always,
    axis_range,
    axis_vars,
    data_axis,
    make_stage,
    reduction_stage,
    renew_axis,
)
from .terms import Condition, Contribution, pull_back

#: attribute of a stage: another tensor of equal value, to be differentiated in its place
DIFFERENTIATE_AS = "tvm_autodiff.differentiate_as"

#: (component of the source, what arrives there)
SourceSeed = tuple[int, Contribution]


@dataclass(frozen=True)
class Reducing:
    """A reduction stage taken apart for the rules: stage, reduction, and one seed a component."""

    op: Operation
    reduction: Reduction
    component: int
    seed: Expr

    @property
    def source(self) -> Expr:
        """The source of the component at hand."""
        return self.reduction.sources[self.component]


def classify(combiner: Combiner, component: int) -> str:
    """The kind of a reducer's component: ``sum max min product selection`` or ``general``.

    Examples
    --------
    A running pair (max, sum of exp) is general in its second component, argmax a selection in both.
    """
    lhs, rhs = combiner.lhs[component], combiner.rhs[component]
    result, identity = combiner.result[component], combiner.identity[component]
    name = op_name(result)
    if name in _SIMPLE_KINDS:
        kind, neutral = _SIMPLE_KINDS[name]
        if {node_id(part) for part in operands(result)} == {node_id(lhs), node_id(rhs)} and (
            neutral is None or is_const(identity, neutral)
        ):
            return kind
    if name == "select":
        _, then, otherwise = operands(result)
        if node_id(then) == node_id(lhs) and node_id(otherwise) == node_id(rhs):
            return "selection"
    return "general"


#: node that combines two values → (kind, identity that the rule relies on)
_SIMPLE_KINDS: dict[str, tuple[str, int | None]] = {
    "add": ("sum", 0),
    "max": ("max", None),
    "min": ("min", None),
    "mul": ("product", 1),
}


def source_seeds(op: Operation, reduction: Reduction, component: int, seed: Expr) -> list[SourceSeed]:
    """What arrives at the source of a reduction (without init) when `seed` arrives at its output.

    The contributions are expressions in the stage's axes and the reduction's own axes; the caller sums them
    over both.
    """
    kind = classify(reduction.combiner, component)
    return _RULES[kind](Reducing(op, reduction, component, seed))


def _sum(stage: Reducing) -> list[SourceSeed]:
    return [(stage.component, Contribution(stage.seed, _own_condition(stage)))]


def _own_condition(stage: Reducing) -> tuple[Condition, ...]:
    condition = stage.reduction.condition
    return () if always(condition) else (Condition(condition, True),)


def _flat_position(axes: Sequence[Axis]) -> Expr:
    """The place of the current element in iteration order, counted from zero."""
    position: Expr | None = None
    for axis in axes:
        low, extent = axis_range(axis)
        step = axis.var if isinstance(low, int) and low == 0 else axis.var - low
        position = step if position is None else position * extent + step
    assert position is not None
    return position


def _extreme(stage: Reducing) -> list[SourceSeed]:
    """max, min → the seed goes to the first element that equals the result."""
    better = "gt" if classify(stage.reduction.combiner, stage.component) == "max" else "lt"
    dtype = dtype_of(stage.source)
    place = dtype_of(stage.reduction.axes[0].var)
    left = (variable("value_lhs", dtype), variable("place_lhs", place))
    right = (variable("value_rhs", dtype), variable("place_rhs", place))
    wins = any_of(
        [
            compare(better, left[0], right[0]),
            all_of([compare("eq", left[0], right[0]), compare("le", left[1], right[1])]),
        ]
    )
    worst = const(float("-inf") if better == "gt" else float("inf"), dtype)
    last = const(2**31 - 1 if place == "int32" else 2**63 - 1, place)
    combiner = Combiner(
        left,
        right,
        (select(wins, left[0], right[0]), select(wins, left[1], right[1])),
        (worst, last),
    )
    return _by_winner(stage, combiner, [stage.source], "winner")


def _selection(stage: Reducing) -> list[SourceSeed]:
    """select(better, lhs, rhs) → the seed goes to the element that the reducer itself selects."""
    combiner = stage.reduction.combiner
    better = operands(combiner.result[stage.component])[0]
    place = dtype_of(stage.reduction.axes[0].var)
    lhs, rhs = variable("place_lhs", place), variable("place_rhs", place)
    extended = Combiner(
        (*combiner.lhs, lhs),
        (*combiner.rhs, rhs),
        (*combiner.result, select(better, lhs, rhs)),
        (*combiner.identity, const(-1, place)),
    )
    return _by_winner(stage, extended, stage.reduction.sources, "selected")


def _by_winner(
    stage: Reducing, combiner: Combiner, sources: Sequence[Expr], suffix: str
) -> list[SourceSeed]:
    """Compute the winner's place once in the forward shape; the source there gets the whole seed."""
    reduction = stage.reduction
    tracked = _copy_of_stage(stage.op, reduction, combiner, sources, suffix)
    winner = load(tracked[-1], axis_vars(stage.op))
    here = compare("eq", winner, _flat_position(reduction.axes))
    conditions = (*_own_condition(stage), Condition(here, False))
    return [(stage.component, Contribution(stage.seed, conditions))]


def _copy_of_stage(
    op: Operation,
    reduction: Reduction,
    combiner: Combiner,
    sources: Sequence[Expr],
    suffix: str,
) -> list[Tensor]:
    """A stage of the forward shape that reduces `sources`, and the place where asked, over the same axes."""
    if len(sources) < len(combiner.lhs):
        sources = [*sources, _flat_position(reduction.axes)]
    axes = [renew_axis(axis) for axis in op.axis]
    inner = [renew_axis(axis) for axis in reduction.axes]
    rename = substituter(
        {
            old.var: new.var
            for old, new in zip((*op.axis, *reduction.axes), (*axes, *inner), strict=True)
        }
    )
    inner = [_rename_bounds(axis, rename) for axis in inner]
    copy = Reduction(
        combiner,
        tuple(rename(source) for source in sources),
        tuple(inner),
        rename(reduction.condition),
        (),
    )
    return reduction_stage(f"{op.name}_{suffix}", axes, copy)


def _rename_bounds(axis: Axis, rename: Callable[[Expr], Expr]) -> Axis:
    """The axis with its own variable and its bounds renamed: adaptive windows have bounds on output axes."""
    low, extent = axis.dom.min, axis.dom.extent
    new_low, new_extent = rename(low), rename(extent)
    if node_id(low) == node_id(new_low) and node_id(extent) == node_id(new_extent):
        return axis
    return type(axis)(type(axis.dom).from_min_extent(new_low, new_extent), axis.var, axis.iter_type)


def _product(stage: Reducing) -> list[SourceSeed]:
    """Π F → seed times the product of the other factors, in linear time and without a division by zero.

    One pass computes P, the product of the factors that are not zero, and Z, the number of zeros. The product
    of the others is P/F where Z is 0, P at the only zero where Z is 1, and 0 elsewhere.
    """
    reduction, op = stage.reduction, stage.op
    source = stage.source
    dtype = dtype_of(source)
    left = (variable("product_lhs", dtype), variable("zeros_lhs"))
    right = (variable("product_rhs", dtype), variable("zeros_rhs"))
    combiner = Combiner(
        left,
        right,
        (mul(left[0], right[0]), add(left[1], right[1])),
        (const(1, dtype), const(0, "int32")),
    )
    is_zero = compare("eq", source, zero_like(source))
    counted = _copy_of_stage(
        op,
        reduction,
        combiner,
        [select(is_zero, like(source, 1), source), cast("int32", is_zero)],
        "factors",
    )
    others = _product_of_others(stage, counted)
    here = (*axis_vars(op), *_zero_based(reduction.axes))
    value = mul(stage.seed, load(others, here))
    return [(stage.component, Contribution(value, _own_condition(stage)))]


def _zero_based(axes: Sequence[Axis]) -> list[Expr]:
    result = []
    for axis in axes:
        low, _ = axis_range(axis)
        result.append(axis.var if isinstance(low, int) and low == 0 else axis.var - low)
    return result


def _product_of_others(stage: Reducing, counted: Sequence[Tensor]) -> Tensor:
    """others[a, k] = Π_{k' != k} F(a, k'): computed from P and Z, differentiated as the plain product."""
    op, reduction = stage.op, stage.reduction
    axes, places, rename = _stage_over_elements(op, reduction)
    outer = [axis.var for axis in axes[: len(op.axis)]]
    factor = rename(stage.source)
    product, zeros = (load(tensor, outer) for tensor in counted)
    the_zero = all_of(
        [compare("eq", zeros, like(zeros, 1)), compare("eq", factor, zero_like(factor))]
    )
    body = select(
        compare("eq", zeros, zero_like(zeros)),
        div(product, factor),
        select(the_zero, product, zero_like(product)),
    )
    if not always(reduction.condition):
        body = if_then_else(rename(reduction.condition), body, zero_like(body))
    [plain] = _reduce_others(stage, axes, places, "ne", "others_plain")
    return make_stage(f"{op.name}_others", axes, [body], attrs={DIFFERENTIATE_AS: plain})[0]


def _stage_over_elements(
    op: Operation, reduction: Reduction
) -> tuple[list[Axis], list[Expr], Callable[[Expr], Expr]]:
    """Axes (a, k) of a stage with one element for each reduced element.

    Returns the axes (0-based), the reduce variables as expressions in them, and the renaming from the
    stage's own axes.
    """
    outer = [renew_axis(axis) for axis in op.axis]
    inner = [
        data_axis(axis.var.name, _constant_extent(axis), dtype_of(axis.var))
        for axis in reduction.axes
    ]
    places: list[Expr] = []
    for old, new in zip(reduction.axes, inner, strict=True):
        low, _ = axis_range(old)
        places.append(new.var if isinstance(low, int) and low == 0 else new.var + low)
    mapping = {old.var: new.var for old, new in zip(op.axis, outer, strict=True)}
    mapping.update(
        {old.var: place for old, place in zip(reduction.axes, places, strict=True)}
    )
    return [*outer, *inner], places, substituter(mapping)


def _constant_extent(axis: Axis) -> Expr:
    return axis_range(axis)[1]


def _reduce_others(
    stage: Reducing, axes: Sequence[Axis], places: Sequence[Expr], order: str, suffix: str
) -> list[Tensor]:
    """The reducer over the elements k' that stand before, after or apart from each element k.

    out[a, k] = ⊕_{k' order k} F(a, k'), compared by place in iteration order; order is ``lt``, ``gt``, ``ne``.
    """
    op, reduction = stage.op, stage.reduction
    inner = [renew_axis(axis, f"{axis.var.name}_other") for axis in reduction.axes]
    outer = [axis.var for axis in axes[: len(op.axis)]]
    rename = substituter(
        {
            **{old.var: new for old, new in zip(op.axis, outer, strict=True)},
            **{old.var: new.var for old, new in zip(reduction.axes, inner, strict=True)},
        }
    )
    here = substituter(
        {axis.var: place for axis, place in zip(inner, places, strict=True)}
    )(_flat_position(inner))
    keep = [compare(order, _flat_position(inner), here)]
    if not always(reduction.condition):
        keep.append(rename(reduction.condition))
    inner = [_rename_bounds(axis, rename) for axis in inner]
    copy = Reduction(
        reduction.combiner,
        tuple(rename(source) for source in reduction.sources),
        tuple(inner),
        all_of(keep),
        (),
    )
    fresh = [renew_axis(axis) for axis in axes]
    renew = substituter({old.var: new.var for old, new in zip(axes, fresh, strict=True)})
    copy = Reduction(
        copy.combiner,
        tuple(renew(source) for source in copy.sources),
        tuple(_rename_bounds(axis, renew) for axis in copy.axes),
        renew(copy.condition),
        (),
    )
    return reduction_stage(f"{op.name}_{suffix}", fresh, copy)


def _general(stage: Reducing) -> list[SourceSeed]:
    """out = (before ⊕ F) ⊕ after → the combiner's own derivative at (before, F) and at (before ⊕ F, after)."""
    op, reduction = stage.op, stage.reduction
    combiner = reduction.combiner
    axes, places, _ = _stage_over_elements(op, reduction)
    before = _reduce_others(stage, axes, places, "lt", "before")
    after = _reduce_others(stage, axes, places, "gt", "after")
    here = (*axis_vars(op), *_zero_based(reduction.axes))
    element = [variable("element", dtype_of(var)) for var in combiner.lhs]
    inner = combiner.apply([load(tensor, here) for tensor in before], element)
    outer = combiner.apply(inner, [load(tensor, here) for tensor in after])[stage.component]
    [root] = merge_equal([outer])
    arriving = pull_back(
        [(root, [Contribution(stage.seed)], None)],
        _one_of(element),
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
                        at_source(contribution.value), (*_own_condition(stage), *conditions)
                    ),
                )
            )
    return seeds


def _one_of(variables: Sequence[Var]) -> Callable[[Expr], bool]:
    ids = {node_id(var) for var in variables}
    return lambda node: node_id(node) in ids


_RULES: dict[str, Callable[[Reducing], list[SourceSeed]]] = {
    "sum": _sum,
    "max": _extreme,
    "min": _extreme,
    "product": _product,
    "selection": _selection,
    "general": _general,
}
