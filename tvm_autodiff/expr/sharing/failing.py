"""Tells which nodes that can fail are evaluated in any case, and so need no guard of their own.

``x[i] > 0`` before branches evaluates ``x[i]``, so what else is computed from it is safe in front
of all of them. A branch certainly evaluates what both of its sides do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..nodes import INTEGER_DIVISIONS, Expr, const_value, is_load, node_id, op_name, operands

#: whether a node can fail where its operands do not
Fails = Callable[[Expr], bool]
#: the branches around a node, outermost first: (node, operand)
Path = tuple[tuple[int, int], ...]


def can_fail(node: Expr) -> bool:
    """Whether a node reads, or divides by a possible zero."""
    divides = op_name(node) in INTEGER_DIVISIONS and not const_value(operands(node)[1])
    return divides or is_load(node)


class Failing:
    """Which nodes that can fail are evaluated where, as sets of bits.

    Parameters
    ----------
    roots, order : sequence of Expr
        Expressions that are evaluated, and all of their nodes in postorder.
    branches : mapping of str to tuple of int
        The operands that a node may leave without evaluating them.
    keys : mapping of int to int, optional
        The structural keys of the nodes, by id. Without them equal parts must be one node.
    fails : callable
        Whether a node can fail: a read that is proved to be inside needs no guard.
    """

    def __init__(
        self,
        roots: Sequence[Expr],
        order: Sequence[Expr],
        branches: Mapping[str, tuple[int, ...]],
        keys: Mapping[int, int] | None = None,
        fails: Fails = can_fail,
    ) -> None:
        self._own: dict[int, int] = {}  #: the bit of a node that can fail
        self._within: dict[int, int] = {}  #: what a node holds
        self._certain: dict[int, int] = {}  #: what is evaluated whenever a node is
        self._nodes = {node_id(node): node for node in order}
        bits: dict[int, int] = {}
        for node in order:
            key, parts, places = node_id(node), operands(node), branches.get(op_name(node), ())
            own = 0
            if fails(node):
                own = bits.setdefault(key if keys is None else keys[key], 1 << len(bits))
                self._own[key] = own
            self._within[key] = self._certain[key] = own
            for place, part in enumerate(parts):
                self._within[key] |= self._within[node_id(part)]
                if place not in places:
                    self._certain[key] |= self._certain[node_id(part)]
            if len(places) == 2:
                left, right = (self._certain[node_id(parts[place])] for place in places)
                self._certain[key] |= left & right
        self._everywhere = 0
        for root in roots:
            self._everywhere |= self._certain[node_id(root)]

    def is_safe(self, node: Expr, path: Path) -> bool:
        """Whether all in a node that can fail is evaluated in a branch, or before it, anyway."""
        missing = self._within[node_id(node)] & ~self._everywhere
        for key, place in path:
            if not missing:
                break
            if place > 0:
                missing &= ~self._certain[node_id(operands(self._nodes[key])[place])]
        return not missing

    def evaluated_with(self, node: Expr) -> set[int]:
        """The ids of all that can fail and is evaluated wherever a node is, or everywhere."""
        known = self._everywhere | self._certain[node_id(node)]
        return {key for key, own in self._own.items() if own & known}
