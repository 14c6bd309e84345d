"""The part of a function's operands through which alone it depends on several elements."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ...expr.nodes import BRANCHES, Axis, Expr, is_float, is_load, node_id, op_name, operands
from ...expr.rewrite import contains_load, depends_on

Place: TypeAlias = tuple[int, ...]  #: what tells an element that is read from others
Places = frozenset[Place]  #: the elements that an expression reads


def places_below(
    order: Sequence[Expr], place_of: Callable[[Expr], Place | None]
) -> dict[int, Places]:
    """Which elements each node depends on, by the places of the reads of floats that have one."""
    found: dict[int, Places] = {}
    for node in order:
        inside = (found[node_id(part)] for part in operands(node))
        place = place_of(node) if is_load(node) and is_float(node) else None
        if is_load(node):
            found[node_id(node)] = frozenset() if place is None else frozenset((place,))
        else:
            found[node_id(node)] = frozenset[Place]().union(*inside)
    return found


def place_of(read: Expr, axes: Sequence[Axis]) -> Place | None:
    """The indices of a read, if each axis moves one of them, and none moves by several or data."""
    moved = []
    for index in operands(read):
        own = [number for number, axis in enumerate(axes) if depends_on(index, [axis.var])]
        if len(own) > 1 or contains_load(index):
            return None
        moved += own
    every = sorted(moved) == list(range(len(axes)))
    return tuple(map(node_id, operands(read))) if every else None


def common_part(
    function: Expr, places: Mapping[int, Places], numbers: Mapping[int, int]
) -> Expr | None:
    """The smallest part of a function's operands through which alone it depends on elements at
    several places.
    """
    found = None
    pending, nodes = [-numbers[node_id(function)]], {numbers[node_id(function)]: function}
    while pending:
        node = nodes.pop(-heapq.heappop(pending))
        if not pending and node_id(node) != node_id(function):
            found = node if len(places[node_id(node)]) > 1 else found
        # what is left is not above a read, and a side of a branch may guard what it reads
        if is_load(node) or op_name(node) in BRANCHES:
            break
        for part in operands(node):
            number = numbers[node_id(part)]
            if is_float(part) and places[node_id(part)] and number not in nodes:
                nodes[number] = part
                heapq.heappush(pending, -number)
    return found
