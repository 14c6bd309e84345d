"""Parts of a stage that some of its axes do not change, as stages of their own, which are
differentiated instead.

The adjoint of such a part is summed over these axes once, for all elements that the part reads.
Without it, the derivative by each of them goes through the whole part, for every element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..expr.costly import is_slow
from ..expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    is_float,
    is_load,
    load,
    node_id,
    op_name,
    operands,
)
from ..expr.rewrite import (
    expand_lets,
    outermost,
    postorder,
    preorder,
    replace_outermost,
    substituter,
)
from ..expr.sharing.lets import bind_shared, merge_equal
from ..graph.stage import (
    Operation,
    axis_range,
    bodies,
    is_compute,
    make_stage,
    reduction_of,
    renewed,
    with_bodies,
)

#: what may be undefined where another operand is taken: its adjoint is no product with zero
_CHOICES = frozenset((*BRANCHES, "min", "max"))


@dataclass(frozen=True)
class _Part:
    """What is known of an expression.

    Attributes
    ----------
    axes : frozenset of int
        The numbers of the axes that change it.
    reads : frozenset of int
        Two of the elements that it reads, by their nodes, or one; not those that say where.
    slow : bool
        Whether it holds a function of many operations.
    """

    axes: frozenset[int]
    reads: frozenset[int]
    slow: bool


def repeated_parts(op: Operation) -> list[Tensor] | None:
    """The results of an equal stage that reads its repeated parts; None if it has none.

    ``y[b, c] = c*exp(x[b, 0]*x[b, 1])  →  p[b] = exp(x[b, 0]*x[b, 1]), y[b, c] = c*p[b]``

    A part calls a function of many operations, reads several elements, and is no side of a choice
    that stays, for which it may be undefined. What several parts have in common is a part, too.
    """
    if not is_compute(op) or reduction_of(op) is not None:
        return None
    ranges = list(map(axis_range, op.axis))
    if any(low != 0 or extent == 0 for low, extent in ranges):
        return None
    sources = merge_equal([expand_lets(body) for body in bodies(op)])
    if not any(map(is_slow, postorder(sources))):
        return None
    facts = _facts(sources, op.axis)
    wide = {n for n, (_, extent) in enumerate(ranges) if isinstance(extent, int) and extent > 1}
    # of an axis that is empty at a call, no part may be read: its elements need not be there
    symbolic = {n for n, (_, extent) in enumerate(ranges) if not isinstance(extent, int)}

    def is_part(node: Expr) -> bool:
        part = facts[node_id(node)]
        repeated = symbolic <= part.axes and not wide <= part.axes
        return repeated and part.slow and len(part.reads) > 1

    outer = outermost(sources, is_part, _smooth)
    if not outer:
        return None
    uses = Counter(
        node_id(below) for part in outer for below in preorder(_smooth(part), _smooth)
    )

    def is_common(node: Expr) -> bool:
        return is_part(node) and uses[node_id(node)] > 1

    common = [one for part in outer for one in outermost(_smooth(part), is_common, _smooth)]
    return _stored(op, sources, [*outer, *common], facts)


def _facts(sources: Sequence[Expr], axes: Sequence[Axis]) -> dict[int, _Part]:
    numbers = {node_id(axis.var): number for number, axis in enumerate(axes)}
    facts: dict[int, _Part] = {}
    for node in postorder(list(sources)):
        key = node_id(node)
        inside = [facts[node_id(part)] for part in operands(node)]
        own = frozenset((numbers[key],)) if key in numbers else frozenset[int]()
        reads = frozenset[int]().union(*(part.reads for part in inside))
        facts[key] = _Part(
            own.union(*(part.axes for part in inside)),
            frozenset((key,)) if is_load(node) else frozenset(sorted(reads)[:2]),
            is_slow(node) or any(part.slow for part in inside),
        )
    return facts


def _smooth(node: Expr) -> tuple[Expr, ...]:
    """The operands that are computed for every element, and differentiated there."""
    chooses = is_load(node) or op_name(node) in _CHOICES
    return () if chooses else tuple(filter(is_float, operands(node)))


def _stored(
    op: Operation, sources: Sequence[Expr], parts: Sequence[Expr], facts: dict[int, _Part]
) -> list[Tensor]:
    """The stage that reads the stages of its parts."""
    reads: dict[int, Expr] = {}
    wanted = {node_id(part) for part in parts}
    for node in postorder(list(sources)):  # what others hold comes first
        key = node_id(node)
        if key not in wanted:
            continue
        own = [op.axis[number] for number in sorted(facts[key].axes)]
        axes, renames = renewed(own)
        body = bind_shared(substituter(renames)(replace_outermost(node, reads)))
        [stage] = make_stage(f"{op.name}_repeated{len(reads)}", axes, [body])
        reads[key] = load(stage, [axis.var for axis in own])
    return with_bodies(op, [bind_shared(replace_outermost(body, reads)) for body in sources])
