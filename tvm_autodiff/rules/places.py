"""By which places of what they read axes change the parts of an expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..expr.nodes import BRANCHES, Axis, Expr, is_float, is_load, node_id, op_name, operands

#: what may be undefined where another operand is taken
_CHOICES = frozenset((*BRANCHES, "min", "max"))

#: operators that are linear, by which operands hold what is read
_LINEAR: dict[str, Callable[[Sequence[bool]], bool]] = {
    "add": any,
    "sub": any,
    "cast": all,
    "mul": lambda reading: not all(reading),
    "div": lambda reading: not reading[1],
    "select": lambda reading: not reading[0],
    "if_then_else": lambda reading: not reading[0],
}

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
    linear : bool
        Whether it is a sum of what it reads by factors that do not depend on it.
    """

    axes: frozenset[int] = frozenset()
    places: Mapping[int, int] = field(default_factory=dict)
    reads: frozenset[int] = frozenset()
    linear: bool = True


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
        facts[key] = PlaceFacts(moved, places, reads, _is_linear(node, inside))
    return facts


def _is_linear(node: Expr, inside: Sequence[PlaceFacts]) -> bool:
    reading = [bool(fact.reads) for fact in inside]
    if is_load(node) or not any(reading):
        return True
    fixed = _LINEAR.get(op_name(node))
    return fixed is not None and fixed(reading) and all(fact.linear for fact in inside)


def smooth(node: Expr) -> tuple[Expr, ...]:
    """The operands that are computed for every element."""
    chooses = is_load(node) or op_name(node) in _CHOICES
    return () if chooses else tuple(filter(is_float, operands(node)))
