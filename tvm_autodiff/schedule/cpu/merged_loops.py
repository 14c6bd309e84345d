"""Inner loops that run through memory as one: the height and width of an image, say.

In: a nest. Out: the same nest with trailing loops merged, ``for y < 7, x < 9 → for x < 63`` with y
at zero, where every tensor lies in one piece along both; short rows then fill whole vectors.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.nodes import is_load, node_id, operands
from ...ir.rewrite import depends_on, postorder
from ...ir.stage import Axis, axis_range, widened_axis
from ..access import stride_of
from .row_items import BLOCK, FOLD, Item, Nest


def merged(nest: Nest) -> Nest:
    """The nest with as many of its last loops merged as all items allow."""
    items = list(nest.items)
    while len(items[0].loops) > 1 and all(_mergeable(item) for item in items):
        items = [_with_one_less(item) for item in items]
    return Nest(items)


def _mergeable(item: Item) -> bool:
    outer, inner = item.loops[-2:]
    axes = _last_axes(item)
    if item.kind == BLOCK or len(axes) < 2 or node_id(axes[-2].var) != node_id(outer.var):
        return False
    (low, _), (start, extent) = axis_range(outer), axis_range(inner)
    if low != 0 or start != 0 or not isinstance(extent, int):
        return False
    if not isinstance(axis_range(outer)[1], int):
        return False
    if item.spatial:
        # the result, too, must lie in one piece
        last = [node_id(axis.var) for axis in item.op.axis[-2:]]
        if last != [node_id(outer.var), node_id(inner.var)]:
            return False
    variables = [axis.var for axis in (*item.op.axis, *item.reduced)]
    variables += [var for var in item.rows if node_id(var) not in set(map(node_id, variables))]
    nodes = postorder(list(item.sources))
    inside: set[int] = set()
    for node in nodes:
        if is_load(node):
            near = stride_of(node, node_id(inner.var), variables)
            far = stride_of(node, node_id(outer.var), variables)
            if near is None or far != near * extent:
                return False
            inside |= {node_id(part) for part in postorder(list(operands(node)))}
    return not any(
        depends_on(node, [outer.var, inner.var])
        for node in nodes
        if not is_load(node) and node_id(node) not in inside and _touches(node, inside)
    )


def _touches(node: object, inside: set[int]) -> bool:
    """Whether an operand is an index, or part of one: then the node uses an axis as a value."""
    return any(node_id(part) in inside for part in operands(node))


def _last_axes(item: Item) -> tuple[Axis, ...]:
    return item.spatial if item.kind != FOLD and item.spatial else item.reduced


def _with_one_less(item: Item) -> Item:
    axes = _last_axes(item)
    outer, inner = axes[-2:]
    extent = int(axis_range(outer)[1]) * int(axis_range(inner)[1])
    rest = (*axes[:-2], widened_axis(inner, extent))
    still = (*item.still, outer.var)
    if axes is item.spatial:
        return replace(item, spatial=rest, still=still)
    return replace(item, reduced=rest, still=still)
