"""What a loop reads away from its borders, where clamps, reflections and wraps of indices change
nothing.

Rules that split a loop where conditions change judge it by its longest piece.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.nodes import Axis, Expr, Var, is_integer, is_load, node_id, op_name, operands
from ...expr.rewrite import depends_on, postorder
from ...graph.stage import Operation, axis_range, loop_axes, sources_of
from .access import Interval, depends_on_any, stride_of
from .index_set_splitting import decided, pieces

_BORDERS = frozenset(("min", "max", "if_then_else", "select", "floordiv", "floormod"))


def has_borders(roots: Sequence[Expr], var: Var) -> bool:
    """Whether an index is clamped or reflected along a variable, or may wrap around."""
    reads = [node for node in postorder(list(roots)) if is_load(node)]
    indices = [index for read in reads for index in operands(read)]
    return any(
        op_name(node) in _BORDERS and is_integer(node) and depends_on(node, [var])
        for node in postorder(indices)
    )


def inside(roots: Sequence[Expr], axes: Sequence[Axis], var: Var) -> list[Expr]:
    """Expressions on the longest piece of an axis.

    ``x[min(max(i - 1, 0), 9)] → x[i - 1]``, ``x[(i + 1)%10] → x[i + 1]``
    """
    if not has_borders(roots, var):
        return list(roots)
    variables = [axis.var for axis in axes]
    ranges: dict[int, Interval] = {}
    for axis in axes:
        low, extent = axis_range(axis)
        if isinstance(low, int) and isinstance(extent, int):
            ranges[node_id(axis.var)] = (low, low + extent - 1)
    own = ranges.get(node_id(var))
    if own is None or own[0] != 0:
        return list(roots)
    cut = pieces(roots, var, own[1] + 1, variables, ranges)
    longest = max(cut, key=lambda piece: piece[1] - piece[0])
    known = {**ranges, node_id(var): longest}
    return [decided(root, variables, known) for root in roots]


def inside_stage(op: Operation, var: Var) -> tuple[list[Expr], list[Var]]:
    """What a stage computes or reduces, on the longest piece of an axis, and its variables."""
    axes = loop_axes(op)
    return inside(sources_of(op), axes, var), [axis.var for axis in axes]


def unit_strides_inside(op: Operation, var: Var) -> bool:
    """Whether every read away from the borders is contiguous along a variable, or constant."""
    roots, variables = inside_stage(op, var)
    return all(
        stride_of(node, node_id(var), variables) in (0, 1)
        for node in postorder(roots)
        if is_load(node) and depends_on_any(node, var)
    )
