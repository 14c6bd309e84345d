"""What a stage computes from neighbours before it takes slow functions of it, as stages of its own,
which are differentiated instead.

Each neighbour gets a term of the adjoint, at another distance. Without such a stage, each of the
terms computes the functions again for the element at its distance, and the derivative of each term
has as many terms again.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from ...expr.costly import is_slow
from ...expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import contains_load, depends_on, postorder, preorder
from ...graph.stage import Operation, reduction_of
from ..reductions.reducers import classify
from .stored import needed_operands, parts_of

#: the elements that an expression reads, by their indices
_Places = frozenset[tuple[int, ...]]


def stencil_parts(op: Operation) -> list[Tensor] | None:
    """The results of an equal stage that reads what it computes from neighbours; None if it has no
    slow function of that.

    ``y[i] = 2*sqrt((x[i + 1] - x[i])**2 + 1)  →  p[i] = x[i + 1] - x[i], y[i] = 2*sqrt(p[i]**2 +
    1)``

    All that a slow function has of several elements, each at a distance along the axes, is in such
    a part, which every element of the result, or every term of a sum, needs. A function that is the
    whole result is read where it is differentiated, and is none.
    """
    reduction = reduction_of(op)
    if reduction is not None and classify(reduction.combiner, 0) != "sum":
        return None
    found = parts_of(op, sums=True)
    if found is None:
        return None
    order = postorder(found.sources)
    numbers = {node_id(node): number for number, node in enumerate(order)}
    places = _places_of(order, found.axes)
    results = set() if reduction is not None else set(map(node_id, found.sources))
    parts: dict[int, Expr] = {}
    for node in preorder(found.sources, needed_operands):
        if is_slow(node) and node_id(node) not in results:
            part = _common_part(node, places, numbers)
            if part is not None:
                parts[node_id(part)] = part
    return found.stored(list(parts.values()), "stencil") if parts else None


def _places_of(order: Sequence[Expr], axes: Sequence[Axis]) -> dict[int, _Places]:
    """By which indices floats are read whose elements are as many as the points of the loops."""
    found: dict[int, _Places] = {}
    for node in order:
        inside = (found[node_id(part)] for part in operands(node))
        place = _place(node, axes) if is_load(node) and is_float(node) else None
        if is_load(node):
            found[node_id(node)] = frozenset() if place is None else frozenset((place,))
        else:
            found[node_id(node)] = frozenset[tuple[int, ...]]().union(*inside)
    return found


def _place(read: Expr, axes: Sequence[Axis]) -> tuple[int, ...] | None:
    """The indices of a read, if each axis moves one of them, and none moves by several or data."""
    moved = []
    for index in operands(read):
        own = [number for number, axis in enumerate(axes) if depends_on(index, [axis.var])]
        if len(own) > 1 or contains_load(index):
            return None
        moved += own
    every = sorted(moved) == list(range(len(axes)))
    return tuple(map(node_id, operands(read))) if every else None


def _common_part(
    function: Expr, places: Mapping[int, _Places], numbers: Mapping[int, int]
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
