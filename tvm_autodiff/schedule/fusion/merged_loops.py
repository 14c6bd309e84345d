"""Merges inner loops that are contiguous in memory, such as the height and width of an image.

``for y < 7, x < 9 → for x < 63`` with y at zero, if every tensor is contiguous along both. Short
rows then fill whole vectors.
"""

from __future__ import annotations

from dataclasses import replace

from ...expr.nodes import Axis, is_load, node_id
from ...expr.rewrite import postorder
from ...graph.stage import axis_range, widened_axis
from ..nest.access import is_value, stride_of
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
        # the result must be contiguous as well
        last = [node_id(axis.var) for axis in item.op.axis[-2:]]
        if last != [node_id(outer.var), node_id(inner.var)]:
            return False
    variables = [axis.var for axis in (*item.op.axis, *item.reduced)]
    variables += [var for var in item.rows if node_id(var) not in set(map(node_id, variables))]
    for node in postorder(list(item.sources)):
        if is_load(node):
            near = stride_of(node, node_id(inner.var), variables)
            far = stride_of(node, node_id(outer.var), variables)
            if near is None or far != near * extent:
                return False
    return not is_value(item.sources, [outer.var, inner.var])


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
