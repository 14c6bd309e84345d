"""What a loop reads away from its borders, where clamps, reflections and wraps of indices change
nothing, and where the borders of a symbolic loop are.

Rules that split a loop where conditions change judge it by its longest piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...expr.build import const, sub, variable
from ...expr.dtypes import integer_range
from ...expr.nodes import (
    COMPARISONS,
    Axis,
    Expr,
    Var,
    dtype_of,
    is_integer,
    is_load,
    node_id,
    op_name,
    operands,
)
from ...expr.remembered import remembered
from ...expr.rewrite import depends_on, postorder, substituter, variables_of
from ...graph.stage import Operation, axis_range, loop_axes, sources_of
from ..cost import MAX_PIECES
from .access import AffineForms, Interval, depends_on_any, stride_of
from .axis_bounds import decided_piece
from .decided import DecidedForms, decided, parts_decided
from .index_set_splitting import pieces, turning_points, with_borders
from .quotient_names import QuotientNames

_UNBOUNDED = integer_range("int64")[1]  #: no size is larger
_BORDERS = frozenset(("min", "max", "if_then_else", "select", "floordiv", "floormod"))


def decided_between(
    exprs: Sequence[Expr],
    var: Var,
    low: int,
    end: Expr,
    others: Sequence[Var],
    ranges: Mapping[int, Interval],
) -> list[Expr]:
    """Expressions for ``low <= var < end`` and other variables in `ranges`, which may be sizes.

    Examples
    --------
    >>> from tvm import te
    >>> i, n = te.var("i"), te.var("n")
    >>> decided_between([te.if_then_else(te.all(i >= 3, i < n), i - 3, 7)], i, 3, n, [n], {})
    [i + -3]
    """
    if not with_borders(exprs, var):
        return list(exprs)
    from_end = variable(var.name, dtype_of(var))
    names = QuotientNames(var)
    [last, *given] = names.of([sub(end, const(1, dtype_of(end))), *exprs])
    known = [*others, *names.variables]
    if AffineForms(known).of(last) is None:  # what is taken away from it, and added again, cancels
        last = names.name(last)
        known = [*others, *names.variables]
    begun = {**ranges, node_id(var): (low, _UNBOUNDED)}
    ended = {**ranges, node_id(from_end): (0, _UNBOUNDED)}
    found = decided(given, [var, *known], begun)
    found = list(map(substituter({var: sub(last, from_end)}), found))
    found = decided(found, [from_end, *known], ended)
    found = list(map(substituter({from_end: sub(last, var)}), found))
    return names.whole(decided(found, [var, *known], begun))


def borders(exprs: Sequence[Expr], var: Var, extent: Expr, others: Sequence[Var]) -> Interval:
    """How many of the first and of the last values of a symbolic loop conditions tell apart.

    Clamps of clamps are decided from the inside.

    Examples
    --------
    >>> from tvm import te
    >>> i, n = te.var("i"), te.var("n")
    >>> borders([te.all(i >= 3, i < n + 2)], i, n + 8, [n])
    (3, 6)
    >>> borders([te.max(te.min(i - 1, n - 1), 0)], i, n, [n])
    (1, 0)
    """
    found, current = (0, 0), list(exprs)
    if not with_borders(exprs, var):
        return found
    for _ in range(MAX_PIECES):
        end = sub(extent, const(found[1], dtype_of(extent)))
        current = decided_between(current, var, found[0], end, others, {})
        first, last = _changing_ends(current, var, extent, others)
        if first <= found[0] and last <= found[1]:
            break
        found = max(found[0], first), max(found[1], last)
    return found


def _changing_ends(
    exprs: Sequence[Expr], var: Var, extent: Expr, others: Sequence[Var]
) -> Interval:
    """Where the last change after the beginning and the first before the end are."""
    from_end = variable(var.name, dtype_of(var))
    names = QuotientNames(var)
    [end, *given] = names.of([extent, *exprs])
    mirrored = sub(sub(end, const(1, dtype_of(end))), from_end)
    turned = list(map(substituter({var: mirrored}), given))
    found = []
    for parts, one in ((given, var), (turned, from_end)):
        forms = AffineForms([one, *others, *names.variables])
        places = [p for node in postorder(parts) for p in turning_points(node, forms, node_id(one))]
        found.append(max(0, *places) if places else 0)
    return found[0], found[1]


def has_borders(roots: Sequence[Expr], var: Var) -> bool:
    """Whether an index is clamped or reflected along a variable, or may wrap around."""
    reads = [node for node in postorder(list(roots)) if is_load(node)]
    indices = [index for read in reads for index in operands(read)]
    return any(
        op_name(node) in _BORDERS and is_integer(node) and depends_on(node, [var])
        for node in postorder(indices)
    )


def _turns_at_borders(
    roots: Sequence[Expr], reads: Sequence[Expr], var: Var, variables: Sequence[Var]
) -> bool:
    """Whether reads run along a variable in another way where a comparison with it may hold."""
    if all(stride_of(read, node_id(var), variables) in (0, 1) for read in reads):
        return False
    return any(
        op_name(node) in COMPARISONS and is_integer(operands(node)[0]) and depends_on(node, [var])
        for node in postorder(list(roots))
    )


def reads_within(roots: Sequence[Expr], axes: Sequence[Axis], var: Var) -> list[Expr]:
    """The reads of expressions on the longest piece of an axis, and what is read in their indices.

    ``x[min(max(i - 1, 0), 9)] → x[i - 1]``, ``x[(i + 1)%10] → x[i + 1]``, ``x[i] + (if i == 0 then
    x[-i] else 0) → x[i]``
    """
    reads = [node for node in postorder(list(roots)) if is_load(node)]
    variables = [axis.var for axis in axes]
    if not has_borders(roots, var) and not _turns_at_borders(roots, reads, var, variables):
        return reads
    ranges = _literal_ranges(axes)
    own = ranges.get(node_id(var))
    if own is None:
        found = _within(roots, axes, var, ranges)
    elif own[0] != 0:
        return reads
    else:
        cut = pieces(roots, var, own[1] + 1, variables, ranges)
        crossed = decided_piece(reads, var, variables, ranges) if len(cut) == 1 else None
        if crossed is not None:
            return [node for node in postorder(crossed[1]) if is_load(node)]
        longest = max(cut, key=lambda piece: piece[1] - piece[0])
        known = {**ranges, node_id(var): longest}
        found = parts_decided(roots, is_load, DecidedForms(variables), known)
    return [node for node in postorder(found) if is_load(node)]


def within_symbolic(roots: Sequence[Expr], axes: Sequence[Axis]) -> list[Expr]:
    """Expressions away from the borders of all symbolic loops.

    ``if i + 1 < n then x[i + 1] else x[0] → x[i + 1]`` for i < n
    """
    ranges = _literal_ranges(axes)
    found = list(roots)
    for axis in axes:
        found = _within(found, axes, axis.var, ranges)
    return found


def _literal_ranges(axes: Sequence[Axis]) -> dict[int, Interval]:
    ranges: dict[int, Interval] = {}
    for axis in axes:
        low, extent = axis_range(axis)
        if isinstance(low, int) and isinstance(extent, int):
            ranges[node_id(axis.var)] = (low, low + extent - 1)
    return ranges


def _within(
    roots: Sequence[Expr], axes: Sequence[Axis], var: Var, ranges: dict[int, Interval]
) -> list[Expr]:
    low, extent = next(axis_range(axis) for axis in axes if node_id(axis.var) == node_id(var))
    if low != 0 or isinstance(extent, int):
        return list(roots)
    others = [axis.var for axis in axes if node_id(axis.var) != node_id(var)]
    others += variables_of(extent)
    first, last = borders(roots, var, extent, others)
    end = sub(extent, const(last, dtype_of(extent)))
    return decided_between(roots, var, first, end, others, ranges)


@remembered(1 << 8)
def stage_reads_within(op: Operation, var: Var) -> tuple[list[Expr], list[Var]]:
    """What a stage reads on the longest piece of an axis, and its variables."""
    axes = loop_axes(op)
    return reads_within(sources_of(op), axes, var), [axis.var for axis in axes]


def unit_strides_inside(op: Operation, var: Var) -> bool:
    """Whether every read away from the borders is contiguous along a variable, or constant."""
    reads, variables = stage_reads_within(op, var)
    return all(
        stride_of(node, node_id(var), variables) in (0, 1)
        for node in reads
        if depends_on_any(node, var)
    )
