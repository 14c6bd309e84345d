"""Parts of a stage that some of its axes do not change, as stages of their own, which are
differentiated instead.

The adjoint of such a part is summed over these axes once, for all elements that the part reads.
Without it, the derivative by each of them goes through the whole part, for every element.
"""

from __future__ import annotations

from collections import Counter

from ...expr.nodes import BRANCHES, Expr, Tensor, is_float, is_load, node_id, op_name, operands
from ...expr.rewrite import outermost, preorder
from ...graph.stage import Operation
from .stored import parts_of

#: what may be undefined where another operand is taken: its adjoint is no product with zero
_CHOICES = frozenset((*BRANCHES, "min", "max"))


def repeated_parts(op: Operation) -> list[Tensor] | None:
    """The results of an equal stage that reads its repeated parts; None if it has none.

    ``y[b, c] = c*exp(x[b, 0]*x[b, 1])  →  p[b] = exp(x[b, 0]*x[b, 1]), y[b, c] = c*p[b]``

    A part calls a function of many operations, reads several elements, and is no side of a choice
    that stays, for which it may be undefined. What several parts have in common is a part, too.
    """
    found = parts_of(op)
    if found is None:
        return None
    facts, wide, symbolic = found.facts, found.wide, found.symbolic

    def is_part(node: Expr) -> bool:
        part = facts[node_id(node)]
        repeated = symbolic <= part.axes and not wide <= part.axes
        return repeated and part.slow and len(part.reads) > 1

    outer = outermost(found.sources, is_part, _smooth)
    if not outer:
        return None
    uses = Counter(
        node_id(below) for part in outer for below in preorder(_smooth(part), _smooth)
    )

    def is_common(node: Expr) -> bool:
        return is_part(node) and uses[node_id(node)] > 1

    common = [one for part in outer for one in outermost(_smooth(part), is_common, _smooth)]
    return found.stored([*outer, *common], "repeated")


def _smooth(node: Expr) -> tuple[Expr, ...]:
    """The operands that are computed for every element, and differentiated there."""
    chooses = is_load(node) or op_name(node) in _CHOICES
    return () if chooses else tuple(filter(is_float, operands(node)))
