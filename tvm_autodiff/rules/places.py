"""By which places of what they read axes change the parts of an expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..expr.nodes import BRANCHES, Axis, Expr, is_float, is_load, node_id, op_name, operands

#: what may be undefined where another operand is taken
_CHOICES = frozenset((*BRANCHES, "min", "max"))

OTHERWISE = -1  #: in the place of a place: an axis changes an expression in another way, too


@dataclass(frozen=True)
class PlaceFacts:
    """What is known of an expression.

    Attributes
    ----------
    axes : frozenset of int
        The numbers of the axes that change it.
    places : mapping from int to int
        For each of these, the index by which alone it changes the expression, by its node, or
        `OTHERWISE`.
    reads : frozenset of int
        Two of the elements that it reads, by their nodes, or one.
    """

    axes: frozenset[int] = frozenset()
    places: Mapping[int, int] = field(default_factory=dict)
    reads: frozenset[int] = frozenset()


def place_facts(nodes: Sequence[Expr], axes: Sequence[Axis]) -> dict[int, PlaceFacts]:
    """What is known of each node, by id; of an order where operands come first."""
    numbers = {node_id(axis.var): number for number, axis in enumerate(axes)}
    facts: dict[int, PlaceFacts] = {}
    for node in nodes:
        key = node_id(node)
        inside = [facts[node_id(part)] for part in operands(node)]
        moved = frozenset((numbers[key],)) if key in numbers else frozenset[int]()
        moved = moved.union(*(fact.axes for fact in inside))
        places: dict[int, int] = {}
        for part, fact in zip(operands(node), inside, strict=True):
            by_place = is_load(node) and not fact.reads
            for number in fact.axes:
                place = node_id(part) if by_place else fact.places[number]
                if is_load(node) and not by_place:
                    place = OTHERWISE  # at a place that data give
                same = places.setdefault(number, place) == place
                places[number] = place if same else OTHERWISE
        if key in numbers:
            places[numbers[key]] = OTHERWISE
        reads = frozenset((key,)) if is_load(node) else frozenset[int]()
        reads = frozenset(sorted(reads.union(*(fact.reads for fact in inside)))[:2])
        facts[key] = PlaceFacts(moved, places, reads)
    return facts


def smooth(node: Expr) -> tuple[Expr, ...]:
    """The operands that are computed for every element."""
    chooses = is_load(node) or op_name(node) in _CHOICES
    return () if chooses else tuple(filter(is_float, operands(node)))
