"""Recognises reductions over masks, such as the maxima of segments, as te expresses them.

Such a stage reduces all elements for each result, but data tell which result an element belongs to.
The others have an identity there, or a number that a maximum takes but once.

    ``out[n] = ⊕_e if idx[e] == n then f(e) else identity  →  for e: out[idx[e]] ⊕= f(e)``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....codegen.passes.short_circuit import condition_of
from ....expr.build import conjuncts
from ....expr.integers.prefix_order import unconverted
from ....expr.nodes import (
    BRANCHES,
    Expr,
    const_value,
    is_integer,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import contains_load, depends_on, expand_lets
from ....expr.sharing.lets import merge_equal
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    axis_vars,
    is_compute,
    reduction_bounds,
    reduction_of,
)
from ....rules.reductions.reducers import classify
from ...cost import LATENCY
from .prefix_reductions import is_first_extreme


@dataclass(frozen=True)
class MaskedReduction:
    """``for e: if before: p = place; if 0 <= p < N and after: out[p] ⊕= members(e)``.

    Attributes
    ----------
    axis : int
        The output axis that data determine.
    place : Expr
        Its value for an element.
    before, after : tuple of Expr
        Conditions of the elements: those that protect the reads of `place`, and the others.
    members : tuple of Expr
        What is reduced, over the reduce axes and the output axes.
    others : tuple of Expr or None
        What all other elements are for a result, over the reduce axes; None for identities.
    """

    axis: int
    place: Expr
    before: tuple[Expr, ...]
    after: tuple[Expr, ...]
    members: tuple[Expr, ...]
    others: tuple[Expr, ...] | None


def masked_reduction_of(op: Operation) -> MaskedReduction | None:
    """How data divide the elements of a stage among its results, or None if they do not, or if it
    has few results.
    """
    found = reduction_of(op) if is_compute(op) else None
    if found is None or found.init or not len(op.axis) or _varies(op, found):
        return None
    sources = merge_equal([expand_lets(source) for source in found.sources])
    mask, *_ = _chosen(sources[0])
    sides = [_sides(source, mask) for source in sources]
    others = _others(found, [other for _, other in sides])
    if others is None:
        return None
    marked = [part for condition in mask for part in conjuncts(condition)]
    parts = list(map(_unmarked, marked))
    for number, part in enumerate(parts):
        solved = _equation(part, op)
        if solved is None:
            continue
        axis, place = solved
        extent = axis_range(op.axis[axis])[1]
        before, after = tuple(parts[:number]), tuple(parts[number + 1 :])
        if depends_on([*before, *others], [op.axis[axis].var]):
            continue
        if isinstance(extent, int) and extent <= LATENCY:
            continue  # to compare an element with all takes less time than to wait for an update
        members = tuple(member for member, _ in sides)
        return MaskedReduction(axis, place, before, after, members, others or None)
    return None


def _varies(op: Operation, found: Reduction) -> bool:
    """Whether an axis does not begin at zero, or a reduce axis ends at another one or at once."""
    axes = [*axis_vars(op), *(axis.var for axis in found.axes)]
    bounds = reduction_bounds(op)
    if contains_load(bounds) or depends_on(bounds, axes):
        return True
    empty = any(axis_range(axis)[1] == 0 for axis in found.axes)
    return empty or any(axis_range(axis)[0] != 0 for axis in (*op.axis, *found.axes))


def _chosen(source: Expr) -> tuple[list[Expr], Expr, Expr]:
    """``if a then (if b then x else 0) else 0 → [a, b], x, 0``"""
    conditions: list[Expr] = []
    member = other = source
    while op_name(member) in BRANCHES:
        condition, value, otherwise = operands(member)
        number = const_value(otherwise)
        if conditions and (number is None or number != const_value(other)):
            break
        conditions.append(condition)
        member, other = value, otherwise
    return conditions, member, other


def _sides(source: Expr, mask: Sequence[Expr]) -> tuple[Expr, Expr]:
    """What a source is where a mask holds, and elsewhere."""
    conditions, member, other = _chosen(source)
    same = list(map(node_id, conditions)) == list(map(node_id, mask))
    return (member, other) if same else (source, source)


def _others(found: Reduction, others: Sequence[Expr]) -> tuple[Expr, ...] | None:
    """What elements outside of a mask are, nothing for identities; None if each of them counts."""
    values = [const_value(other) for other in others]
    if values == [const_value(one) for one in found.combiner.identity] and None not in values:
        return ()
    if values[0] is None:
        return None
    alike = len(others) == 1 and classify(found.combiner, 0) in ("max", "min")
    first = len(others) == 2 and is_first_extreme(found) and len(found.axes) == 1
    return tuple(others) if alike or first else None


def _equation(part: Expr, op: Operation) -> tuple[int, Expr] | None:
    """The output axis that a condition determines by data, and its value."""
    if op_name(part) != "eq" or not is_integer(operands(part)[0]):
        return None
    numbers = {node_id(var): number for number, var in enumerate(axis_vars(op))}
    left, right = operands(part)
    for result, place in ((left, right), (right, left)):
        number = numbers.get(node_id(unconverted(result)))
        if number is None or not contains_load(place):
            continue
        if not depends_on(place, [op.axis[number].var]):
            return number, place
    return None


def _unmarked(condition: Expr) -> Expr:
    """A condition without the mark that it is evaluated in order."""
    found = condition_of(condition)
    return condition if found is None else found
