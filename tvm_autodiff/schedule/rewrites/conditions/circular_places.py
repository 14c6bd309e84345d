"""Places modulo a symbolic size as choices: loops are cut at the borders beyond which places wrap,
and vectors run in between.

    ``x[(i + 1)%n], i < n  →  x[if i + 1 < n then i + 1 else (i + 1)%n]``
"""

from __future__ import annotations

from collections.abc import Sequence

from ....expr.build import all_of, compare, const, if_then_else, mul, sub
from ....expr.integers.intervals import Interval, Intervals, range_intervals
from ....expr.linear_terms import linear_sum, linear_terms
from ....expr.nodes import (
    Expr,
    Tensor,
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
    same_node,
)
from ....expr.rewrite import contains_load, expand_lets, rewrite, variables_of
from ....graph.graph import each_stage
from ....graph.stage import (
    Extent,
    Operation,
    axis_range,
    bodies,
    is_compute,
    loop_axes,
    with_bodies,
)


def with_circular_places(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors, whose stages divide by symbolic sizes beyond borders only."""
    return each_stage(outputs, _changed)


def _changed(op: Operation) -> list[Tensor] | None:
    if not is_compute(op):
        return None
    loops = _Loops(op)

    def visit(node: Expr) -> Expr | None:
        return _chosen(node, loops) if op_name(node) == "floormod" else None

    old = [expand_lets(body) for body in bodies(op)]
    new = [rewrite(body, visit) for body in old]
    changed = any(not same_node(a, b) for a, b in zip(old, new, strict=True))
    return with_bodies(op, new) if changed else None


class _Loops:
    """The ranges of a stage's loops."""

    def __init__(self, op: Operation) -> None:
        ranges = {axis.var: axis_range(axis) for axis in loop_axes(op)}
        self._ranges = {node_id(var): pair for var, pair in ranges.items()}
        self._intervals = Intervals(range_intervals(ranges))

    def symbolic_extent(self, term: Expr) -> Expr | None:
        """The extent of a loop that begins at 0, if it is symbolic."""
        low, extent = self._ranges.get(node_id(term), (0, 0))
        return None if low != 0 or isinstance(extent, int) else extent

    def literal_interval(self, expr: Expr) -> Interval | None:
        """The bounds of an expression of loops with literal ranges alone."""
        if contains_load(expr):
            return None
        for var in variables_of(expr):
            pair: tuple[Extent | None, ...] = self._ranges.get(node_id(var), (None,))
            if not all(isinstance(bound, int) for bound in pair):
                return None
        return self._intervals.of(expr)


def _chosen(node: Expr, loops: _Loops) -> Expr | None:
    """The remainder of a variable of a loop over the whole divisor, plus what is literally bounded.
    """
    place, divisor = operands(node)
    dtype = dtype_of(place)
    if const_value(divisor) is not None or dtype_of(divisor) != dtype:
        return None
    terms, _ = linear_terms(place)
    symbolic = [pair for pair in terms if loops.symbolic_extent(pair[0]) is not None]
    if len(symbolic) != 1:
        return None
    [(along, factor)] = symbolic
    extent = loops.symbolic_extent(along)
    assert extent is not None
    times = const(abs(factor), dtype)
    left, longer = linear_terms(sub(mul(extent, times), divisor))  # than the divisor
    turns = _turns(terms, divisor) - (factor < 0)
    nearest = sub(place, mul(divisor, const(turns, dtype)))  # ``-i - 1 → n - i - 1``
    rest, constant = linear_terms(nearest if factor > 0 else sub(nearest, divisor))
    shift = linear_sum([t for t in rest if not same_node(t[0], along)], constant, dtype)
    bounds = loops.literal_interval(shift)
    if left or bounds is None or dtype_of(extent) != dtype:
        return None
    least = bounds[0] if factor > 0 else abs(factor) - longer + bounds[0]
    beyond = (longer - factor if factor > 0 else 0) + bounds[1]  # the most, less the divisor
    inside = []
    if least < 0:
        inside.append(compare("ge", nearest, const(0, dtype)))
    if beyond >= 0:
        inside.append(compare("lt", nearest, divisor))
    return if_then_else(all_of(inside), nearest, node) if inside else nearest


def _turns(terms: Sequence[tuple[Expr, int]], divisor: Expr) -> int:
    """How often the first term of a divisor is in a sum: 1 for ``i - 1 + n`` and n."""
    parts, _ = linear_terms(divisor)
    counts = [c // parts[0][1] for node, c in terms if parts and same_node(node, parts[0][0])]
    return counts[0] if counts else 0
