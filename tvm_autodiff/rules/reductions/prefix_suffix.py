"""Prefixes and suffixes around each element of a reduction, computed by two scans.

For each element these are the combination of the elements before it and of those after it, in
iteration order. A source that is not already a tensor is stored first. `scans` differentiates the
scans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...expr.build import if_then_else
from ...expr.nodes import Axis, Expr, Tensor, Var, always, is_const, load, node_id
from ...expr.rewrite import expand_lets, substituter
from ...expr.sharing.lets import merge_equal
from ...graph.bounded_stage import bounded_stage
from ...graph.kinds.prefix_scan import Recurrence, Scan, scan_stage
from ...graph.stage import (
    Combiner,
    Operation,
    Reduction,
    axis_range,
    axis_vars,
    renew_axis,
    whole_tensor,
)
from .reducing import PrefixSuffix, elements_of, zero_based


def prefix_suffix(op: Operation, reduction: Reduction) -> PrefixSuffix:
    """``before[a, k] = ⊕_{k' < k} F(a, k'), after[a, k] = ⊕_{k' > k} F(a, k')``."""
    places = elements_of(op, reduction)
    condition = places.rename(reduction.condition)
    everywhere = always(places.inside) and always(condition)
    literals: dict[int, Expr] = {}
    tensors: dict[int, Tensor] = {}
    made: dict[tuple[int, str], Tensor] = {}
    sources = merge_equal([expand_lets(source) for source in reduction.sources])
    pairs = zip(sources, reduction.combiner.identity, strict=True)
    for number, (source, identity) in enumerate(pairs):
        if is_const(source) and everywhere:
            literals[number] = source
            continue
        key = (node_id(source), repr(identity))  # equal components share their elements
        if key not in made:
            # a condition may read variables that exist only inside
            counted = if_then_else(condition, places.rename(source), identity)
            body = if_then_else(places.inside, counted, identity)
            made[key] = element_tensor(f"{op.name}_elements", places.axes, body, len(op.axis))
        tensors[number] = made[key]
    before, after = combined_prefix_suffix(
        op.name, reduction.combiner, tensors, literals, places.axes, len(op.axis)
    )
    here = (*axis_vars(op), *zero_based(reduction.axes))
    element = [
        literals[number]
        if number in literals
        else load(tensors[number], here[len(here) - len(tensors[number].shape) :])
        for number in range(len(sources))
    ]
    return PrefixSuffix(
        tuple(load(tensor, here) for tensor in before),
        tuple(element),
        tuple(load(tensor, here) for tensor in after),
    )


def element_tensor(name: str, axes: Sequence[Axis], body: Expr, rows: int) -> Tensor:
    """The value at each element as a tensor: one that the body reads directly, or a new stage.

    A tensor that is the same in all rows has only the last axes; `rows` is the number of axes that
    may be missing.
    """
    for first in range(rows + 1):
        same = whole_tensor(body, axes[first:])
        if same is not None:
            return same
    fresh = [renew_axis(axis) for axis in axes]
    rename = substituter({old.var: new.var for old, new in zip(axes, fresh, strict=True)})
    return bounded_stage(name, fresh, [rename(body)])[0]


def combined_prefix_suffix(
    name: str,
    combiner: Combiner,
    elements: Mapping[int, Tensor],
    literals: Mapping[int, Expr],
    axes: Sequence[Axis],
    rows: int,
) -> tuple[list[Tensor], list[Tensor]]:
    """The combinations of the elements before and of those after each one.

    Parameters
    ----------
    name : str
        The prefix of the stage names ``name_before`` and ``name_after``.
    combiner : Combiner
        The combiner.
    elements, literals : mapping from int to Tensor, mapping from int to Expr
        Each component of the elements: a tensor, or a constant.
    axes : sequence of Axis
        The axes, one element per point.
    rows : int
        The number of independent axes. Elements are combined along the others.

    Returns
    -------
    before, after : list of Tensor
        One tensor for each component.
    """
    extents = [axis_range(axis)[1] for axis in axes]

    def scan(state: Sequence[Var], element: Sequence[Var], suffix: str) -> list[Tensor]:
        fixed = substituter({element[number]: value for number, value in literals.items()})
        recurrence = Recurrence(
            tuple(state),
            tuple(element[number] for number in elements),
            tuple(fixed(expand_lets(result)) for result in combiner.result),
            combiner.identity,
        )
        whole = Scan(
            recurrence,
            tuple(elements.values()),
            tuple(extents[:rows]),
            tuple(extents[rows:]),
            backward=suffix == "after",
        )
        return scan_stage(f"{name}_{suffix}", whole)

    # the state is the left operand of later elements, and the right operand of earlier ones
    before = scan(combiner.lhs, combiner.rhs, "before")
    return before, scan(combiner.rhs, combiner.lhs, "after")
