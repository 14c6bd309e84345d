"""Whether two reductions compute the same expensive function wherever their loops are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from .....expr.costly import is_expensive
from .....expr.nodes import Axis, Expr, is_float, node_id, op_name
from .....expr.remembered import remembered
from .....expr.rewrite import depends_on, expand_lets, postorder, substituter
from .....expr.structural import StructuralKeys
from .....graph.stage import Operation, Reduction, axis_range, reduction_of
from ....cost import LATENCY, MAX_NODES, MAX_SEARCHED
from ....nest.access import streamed
from ....nest.inside import unit_strides_inside


@remembered(1 << 8)
def aligned(op: Operation, like: Operation) -> list[Expr] | None:
    """What a reduction reduces, over the axes of another one whose work it shares.

    None where the loops differ, or where no expensive function of all loop variables is computed
    by both: others are computed before the loops, as operands of products are.
    """
    mine, other = reduction_of(op), reduction_of(like)
    if mine is None or other is None or len(mine.axes) != len(other.axes):
        return None
    if _ranges(op.axis) != _ranges(like.axis):
        return None
    f = [expand_lets(source) for source in other.sources]
    g = [expand_lets(source) for source in mine.sources]
    if len(list(postorder([*f, *g]))) > MAX_NODES // LATENCY or not _expensive(g):
        return None
    keys = StructuralKeys()
    have = {keys.expr(node) for node in expensive_everywhere(like, f)}
    outer = dict(zip((a.var for a in op.axis), (a.var for a in like.axis), strict=True))
    for axes in _orders(other.axes, mine.axes):
        inner = zip((a.var for a in mine.axes), (a.var for a in axes), strict=True)
        move = substituter({**outer, **dict(inner)})
        if any(keys.expr(node) in have for source in g for node in _expensive([move(source)])):
            return [move(source) for source in mine.sources]
    return None


def expensive_everywhere(op: Operation, sources: Sequence[Expr]) -> list[Expr]:
    """The expensive functions in the sources of a reduction that depend on all of its loops."""
    reduction = reduction_of(op)
    assert reduction is not None
    loops = [axis.var for axis in (*op.axis, *reduction.axes)]
    return [n for n in _expensive(sources) if all(depends_on(n, [var]) for var in loops)]


def runs_in_rows(op: Operation, reduction: Reduction) -> bool:
    """Whether a reduction reads another element for each point, in the order of memory: a chain of
    rows computes what such sums have in common once.
    """
    return bool(streamed(op, reduction)) and unit_strides_inside(op, reduction.axes[-1].var)


def _expensive(roots: Sequence[Expr]) -> list[Expr]:
    nodes = postorder(list(roots))
    return [node for node in nodes if is_expensive(node) or _divides(node)]


def _divides(node: Expr) -> bool:
    """Whether a node is a quotient or a root, which take as long as several operations."""
    return op_name(node) in ("div", "sqrt", "rsqrt") and is_float(node)


def _orders(axes: Sequence[Axis], others: Sequence[Axis]) -> Iterator[Sequence[Axis]]:
    """The permutations of the axes whose ranges equal those of others."""
    ranges = _ranges(others)
    for order in permutations(axes) if len(axes) <= MAX_SEARCHED else [axes]:
        if _ranges(order) == ranges:
            yield order


def _ranges(axes: Sequence[Axis]) -> list[object]:
    return [
        tuple(end if isinstance(end, int) else ("symbol", node_id(end)) for end in axis_range(axis))
        for axis in axes
    ]
