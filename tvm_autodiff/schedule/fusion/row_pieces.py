"""Cuts the loops of a nest of rows into pieces within which conditions, clamps and quotients are
decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import like, sub, variable
from ...expr.nodes import BRANCHES, Axis, Expr, Var, binary, dtype_of, node_id, op_name, operands
from ...expr.rewrite import depends_on, postorder, substituter, variables_of
from ...graph.stage import Extent, axis_range, loop_axes
from ..cost import MAX_COPIES
from ..nest.access import Interval
from ..nest.axis_bounds import decided_piece
from ..nest.in_range import loops_of
from ..nest.index_set_splitting import split
from ..nest.inside import borders, decided_between
from ..rewrites.conditions.guards import selected_within
from .row_items import Item, is_cut


def outer_pieces(items: Sequence[Item]) -> list[tuple[dict[int, Interval], Sequence[Item]]]:
    """The outer loops of a nest in pieces within which their conditions are decided."""
    found: list[tuple[dict[int, Interval], Sequence[Item]]] = [({}, items)]
    for number, axis in enumerate(items[0].loops[:-1]):
        low, extent = axis_range(axis)
        sources = [(source, item.loops[number].var) for item in items for source in item.sources]
        if low != 0 or not isinstance(extent, int):
            continue
        if any(_chooses(source, var) for source, var in sources):
            most = max(1, MAX_COPIES // len(found))
            found = [
                ({**places, number: (first, last)}, parts)
                for places, here in found
                for first, last, parts in _cut(here, number, extent, most)
            ]
    return found


def _chooses(source: Expr, var: Var) -> bool:
    """Whether a value is one of two, by a variable."""
    return any(
        op_name(node) in BRANCHES and depends_on(operands(node)[0], [var])
        for node in postorder([source])
    )


def last_pieces(
    items: Sequence[Item], low: Extent, extent: Extent
) -> list[tuple[Extent, Extent, Sequence[Item]]]:
    """The last loop of a nest in pieces without changing conditions, if possible: the begin and
    the end of each.
    """
    if low != 0 or not any(item.guarded for item in items):
        return [(0, extent, items)]
    if not isinstance(extent, int):
        return _between_borders(items, extent)
    number = len(items[0].loops) - 1
    found = _cut(items, number, extent, MAX_COPIES)
    if len(found) > 1:
        return [(first, last + 1, parts) for first, last, parts in found]
    axes = [axis for item in items for axis in item.loops[:-1]]
    return list(_between_crossed_borders(items, number, extent, axes))


def block_pieces(items: Sequence[Item], extent: int) -> list[tuple[int, int, Sequence[Item]]]:
    """The last loop over results of reductions, as a border, what lies between, and another border:
    the begin and the end of each.

    ``Σ_{k<3} if i + k >= 1 then x[i + k - 1] else 0 → x[i + k - 1] for i >= 1``
    """
    axes = [axis for item in items for axis in item.reduced]
    return _between_crossed_borders(items, len(items[0].spatial) - 1, extent, axes)


def _between_crossed_borders(
    items: Sequence[Item], number: int, extent: int, others: Sequence[Axis]
) -> list[tuple[int, int, Sequence[Item]]]:
    """A loop with a piece on which conditions are decided for all values of other loops; as a whole
    if that has no vectors.
    """
    var, roots = _over_one(items, number)
    ranges = {node_id(var): (0, extent - 1), **loops_of(others).ranges}
    variables = [var, *(axis.var for axis in others)]
    found = None
    if extent and any(item.guarded for item in items):
        found = decided_piece(roots, var, variables, ranges)
    if found is None:
        return [(0, extent, items)]
    (first, last), values = found
    middle = _resolved(items, number, var, values, (first, last))
    if any(item.guarded for item in middle):
        return [(0, extent, items)]
    pieces = [(0, first, items), (first, last + 1, middle), (last + 1, extent, items)]
    return [piece for piece in pieces if piece[0] < piece[1]]


def _between_borders(
    items: Sequence[Item], extent: Expr
) -> list[tuple[Extent, Extent, Sequence[Item]]]:
    """A symbolic loop as a border, what lies between, and another border, which may be all there
    is.
    """
    number, sizes = len(items[0].loops) - 1, variables_of(extent)
    var, roots = _over_one(items, number)
    first, last = borders(roots, var, extent, sizes)
    end = sub(extent, like(extent, last))
    middle = decided_between(roots, var, first, end, sizes, {})
    found: list[tuple[Extent, Extent, Sequence[Item]]] = []
    if first:
        found.append((0, binary("min", extent, like(extent, first)), items))
    found.append((first, end, _resolved(items, number, var, middle)))
    if last:
        found.append((binary("max", end, like(extent, first)), extent, items))
    return found


def _over_one(items: Sequence[Item], number: int) -> tuple[Var, list[Expr]]:
    """The values of all items over one variable of a loop."""
    var = variable("place", dtype_of(items[0].loops[number].var))
    return var, [substituter({i.loops[number].var: var})(s) for i in items for s in i.sources]


def _resolved(
    items: Sequence[Item],
    number: int,
    var: Var,
    values: Sequence[Expr],
    inside: Interval | None = None,
) -> Sequence[Item]:
    """The items with other values, over the one variable of a loop, which runs over an interval."""
    rest, found = iter(values), []
    for item in items:
        own = item.loops[number].var
        back = substituter({var: own})
        sources = tuple(back(next(rest)) for _ in item.sources)
        if inside is not None:  # where a read is in bounds, although it is not everywhere
            loops = loops_of(loop_axes(item.op))
            loops = replace(loops, ranges={**loops.ranges, node_id(own): inside})
            sources = selected_within(sources, loops)
        guarded = not item.straight or is_cut(sources, item.loops[-1].var)
        found.append(replace(item, sources=sources, guarded=guarded))
    return found


def _cut(
    items: Sequence[Item], number: int, extent: int, most: int
) -> list[tuple[int, int, Sequence[Item]]]:
    """A loop of a nest in pieces without changing conditions, from their first to their last."""
    var, roots = _over_one(items, number)
    return [
        (first, last, _resolved(items, number, var, resolved, (first, last)))
        for first, last, resolved in split(roots, var, extent, most)
    ]
