"""Makes selections such as argmax independent of the order in which elements are combined.

Lanes, parts and threads combine partial results out of order, and of tied elements a user's ``>=``
or ``>`` would keep a different one each time. The index of each element therefore takes part.
"""

from __future__ import annotations

from dataclasses import replace

from ...expr.build import compare, const, negate, select, variable
from ...expr.dtypes import keeps_values
from ...expr.nodes import Var, const_value, dtype_of, is_integer, node_id, op_name, operands
from ...expr.rewrite import depends_on, replace_outermost
from ...expr.sharing.lets import merge_equal
from ...graph.choices import Choice, choices, is_open
from ...graph.stage import Combiner, Reduction, axis_range
from ...rules.reductions.reducing import flat_position


def selected_in_order(reduction: Reduction) -> Reduction:
    """``l if C(l, r) else r → l if (C(l, r) if place(l) <= place(r) else not C(r, l)) else r``.

    The operand that is first in iteration order is the left one of the user's condition, whichever
    side it comes from; identities precede all elements. Other components that choose by the
    condition do so, too. A condition for which ties mean equal operands is unchanged.
    """
    if not _places_in_order(reduction):
        return reduction
    combiner = reduction.combiner
    for choice in choices(combiner):
        if is_open(choice, combiner):
            reduction = _ordered(reduction, choice)
    return reduction


def _ordered(reduction: Reduction, choice: Choice) -> Reduction:
    place = next((n for n in choice.components if _is_place(reduction, n)), None)
    combiner, sources = reduction.combiner, reduction.sources
    lhs, rhs, identity = combiner.lhs, combiner.rhs, combiner.identity
    init = reduction.init
    components = choice.components
    if place is None:
        place, components = len(sources), (*components, len(sources))
        position = flat_position(reduction.axes)
        dtype = dtype_of(position)
        lhs, rhs = (*lhs, variable("place_lhs", dtype)), (*rhs, variable("place_rhs", dtype))
        sources, identity = (*sources, position), (*identity, const(-1, dtype))
        init = (*init, const(-1, dtype)) if init else ()
    here = Combiner(combiner.lhs, combiner.rhs, (choice.keeps_left,), combiner.identity)
    [swapped] = here.apply(combiner.rhs, combiner.lhs)
    keeps_left = select(compare("le", lhs[place], rhs[place]), choice.keeps_left, negate(swapped))
    # others may choose by the same condition: the tangent of a sum that is rescaled by a maximum
    condition, *others = merge_equal([choice.keeps_left, *combiner.expanded()])
    chosen = [replace_outermost(other, {node_id(condition): keeps_left}) for other in others]
    result = [*chosen, *lhs[len(combiner.result) :]]
    for n in components:
        result[n] = select(keeps_left, lhs[n], rhs[n])
    ordered = Combiner(lhs, rhs, tuple(result), identity)
    return replace(reduction, combiner=ordered, sources=sources, init=init)


def _places_in_order(reduction: Reduction) -> bool:
    """Whether `flat_position` grows in iteration order: no inner extent follows an outer axis."""
    variables: list[Var] = [axis.var for axis in reduction.axes]
    extents = [axis_range(axis)[1] for axis in reduction.axes[1:]]
    return not any(
        depends_on(extent, variables) for extent in extents if not isinstance(extent, int)
    )


def _is_place(reduction: Reduction, component: int) -> bool:
    """Whether a component is already the index in iteration order, with a start before all."""
    starts = [reduction.combiner.identity, *([reduction.init] if reduction.init else [])]
    values = [const_value(start[component]) for start in starts]
    if len(reduction.axes) != 1 or any(value is None for value in values):
        return False
    [axis] = reduction.axes
    identity = values[0]
    source = reduction.sources[component]
    if op_name(source) == "if_then_else" and const_value(operands(source)[2]) == identity:
        source = operands(source)[1]
    if op_name(source) == "cast" and is_integer(source) and is_integer(operands(source)[0]):
        [inner] = operands(source)
        source = inner if keeps_values(dtype_of(inner), dtype_of(source)) else source
    low, _ = axis_range(axis)
    if node_id(source) != node_id(axis.var) or not isinstance(low, int):
        return False
    return all(value < low for value in values if value is not None)
