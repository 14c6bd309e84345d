"""Cuts the loops of a nest of rows into pieces within which conditions, clamps and quotients are
decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import variable
from ...expr.nodes import BRANCHES, Expr, Var, dtype_of, op_name, operands
from ...expr.rewrite import depends_on, postorder, substituter
from ...graph.stage import Extent, axis_range
from ..cost import MAX_COPIES
from ..nest.access import Interval
from ..nest.index_set_splitting import split
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
) -> list[tuple[int, Extent, Sequence[Item]]]:
    """The last loop of a nest in pieces without changing conditions, if possible: the begin and
    the end of each.
    """
    if not isinstance(extent, int) or low != 0 or not any(item.guarded for item in items):
        return [(0, extent, items)]
    found = _cut(items, len(items[0].loops) - 1, extent, MAX_COPIES)
    return [(first, last + 1, parts) for first, last, parts in found]


def _cut(
    items: Sequence[Item], number: int, extent: int, most: int
) -> list[tuple[int, int, Sequence[Item]]]:
    """A loop of a nest in pieces without changing conditions, from their first to their last."""
    var = variable("place", dtype_of(items[0].loops[number].var))
    roots = [substituter({i.loops[number].var: var})(source) for i in items for source in i.sources]
    found: list[tuple[int, int, Sequence[Item]]] = []
    for first, last, resolved in split(roots, var, extent, most):
        rest = iter(resolved)
        here = []
        for item in items:
            back = substituter({var: item.loops[number].var})
            sources = tuple(back(next(rest)) for _ in item.sources)
            guarded = not item.straight or is_cut(sources, item.loops[-1].var)
            here.append(replace(item, sources=sources, guarded=guarded))
        found.append((first, last, here))
    return found
