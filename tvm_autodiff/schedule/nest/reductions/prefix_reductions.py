"""Recognises prefix reductions, such as cumulative sums and their gradients, as te expresses them.

Such a stage reduces all elements under a condition that compares the reduce axis with an output
axis. Each of its elements is the previous one combined with one more element.

    ``out[i] = ⊕_{k<n} if k <= i then f(k)  →  out[i] = out[i - 1] ⊕ f(i)``
    ``out[i] = argmax_{k<n} (if k <= i then f(k) else c, k)
        →  s[i] = argmax(s[i - 1], (f(i), i)), out[i] = argmax(s[i], (c, i + 1))``
"""

from __future__ import annotations

from dataclasses import dataclass

from ....expr.build import all_of, conjuncts, if_then_else
from ....expr.integers.prefix_order import PrefixOrder, prefix_order
from ....expr.nodes import (
    BRANCHES,
    Expr,
    const_value,
    node_id,
    op_name,
    operands,
)
from ....expr.printing.reducer_signs import sign_of
from ....expr.rewrite import depends_on, expand_lets
from ....expr.sharing.lets import merge_equal
from ....graph.sizes.equal_sizes import equal_extents
from ....graph.stage import Extent, Operation, Reduction, axis_range, is_compute, reduction_of
from ...cost import MAX_COPIES
from .commuting import commutes


@dataclass(frozen=True)
class PrefixReduction:
    """``out[.., i, ..] = out[.., i - 1, ..] ⊕ value(i)``.

    Attributes
    ----------
    axis : int
        The output axis that results accumulate along.
    values : tuple of Expr
        The reduced values, over the reduce axis and the other output axes.
    backward : bool
        Whether accumulation starts at the last result: ``k >= i``.
    inclusive : bool
        Whether a result includes its own element: ``k <= i`` instead of ``k < i``.
    other : Expr or None
        What a maximum takes for each of the elements that do not count; None if these are
        identities.
    """

    axis: int
    values: tuple[Expr, ...]
    backward: bool
    inclusive: bool
    other: Expr | None = None


def prefix_reduction_of(op: Operation) -> PrefixReduction | None:
    """How a stage accumulates, or None if it does not."""
    found = reduction_of(op) if is_compute(op) else None
    if found is None or len(found.axes) != 1 or found.init:
        return None
    choices = _choices(found)
    if choices is None:
        return None
    sources = [operands(choice) for choice in choices]
    condition, _, other = sources[0]
    alike = [(value, otherwise) for _, value, otherwise in sources]
    parts = conjuncts(condition)
    for number, part in enumerate(parts):
        order = _order(part, op, found)
        if order is None:
            continue
        axis, (backward, inclusive) = order
        rest = [*parts[:number], *parts[number + 1 :]]
        values = [if_then_else(all_of(rest), *pair) if rest else pair[0] for pair in alike]
        if depends_on(values, [op.axis[axis].var]):
            return None
        if len(values) < len(found.sources):
            values.append(found.sources[1])
            return PrefixReduction(axis, tuple(values), backward, inclusive, other)
        if len(values) == 1 or not backward or commutes(found.combiner):
            return PrefixReduction(axis, tuple(values), backward, inclusive)
    return None


def _choices(found: Reduction) -> list[Expr] | None:
    """The sources, which are identities where one condition fails; of a maximum with its index the
    value, which is a number there.
    """
    choices = merge_equal([expand_lets(source) for source in found.sources])
    if is_first_extreme(found):
        first = choices[:1]
        return first if _is_choice(first[0]) and _number(first[0]) is not None else None
    if not all(map(_is_choice, choices)):
        return None
    if len({node_id(operands(choice)[0]) for choice in choices}) > 1:
        return None
    numbers = list(map(_number, choices))
    known = None not in numbers and numbers == list(map(const_value, found.combiner.identity))
    return choices if known else None


def _is_choice(node: Expr) -> bool:
    return op_name(node) in BRANCHES


def _number(choice: Expr) -> float | None:
    """The number that a choice takes where its condition fails."""
    return const_value(operands(choice)[2])


def is_short(extent: Extent) -> bool:
    """Whether so few elements are reduced that their sums are written out instead."""
    return isinstance(extent, int) and extent < MAX_COPIES


def is_number(extent: Extent, value: int) -> bool:
    """Whether an extent or lower bound is literally a number."""
    return isinstance(extent, int) and extent == value


def is_first_extreme(found: Reduction) -> bool:
    """Whether the first of the largest or smallest elements is kept, with its place as the index.

    Elements that do not count are all equal then, and the first one stands for them.
    """
    if len(found.sources) != 2 or sign_of(found.combiner) not in ("argmax", "argmin"):
        return False
    return node_id(found.sources[1]) == node_id(found.axes[0].var)


def _order(condition: Expr, op: Operation, found: Reduction) -> tuple[int, PrefixOrder] | None:
    """The output axis that a condition compares the reduce axis with, and the elements it selects.
    """
    [summed] = found.axes
    low, extent = axis_range(summed)
    if not is_number(low, 0) or is_short(extent):
        return None
    for number, axis in enumerate(op.axis):
        start, results = axis_range(axis)
        if not is_number(start, 0) or not equal_extents(results, extent):
            continue
        order = prefix_order(condition, summed.var, axis.var)
        if order is not None:
            return number, order
    return None
