"""What a stage reads, with axes of their own in the place of indices that loops move.

``x[i + a, j + b] → x[i + a, q]`` where q runs over the places ``j + b`` of its dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....expr.build import add, cast, like, mul, sub
from ....expr.integers.intervals import Intervals, range_intervals
from ....expr.linear_terms import linear_terms
from ....expr.nodes import (
    Axis,
    Expr,
    Var,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import contains_load, depends_on, postorder, replace_outermost
from ....expr.simplify import simplify
from ....expr.structural import StructuralKeys
from ....graph.sizes.nonnegative import nonnegative
from ....graph.stage import Extent, data_axis, shape_of


class MovedPlaces:
    """What is reduced over some variables, with new axes in the place of indices that others move.

    `places` are the new axes with the indices that they stand for, which begin at the least one.
    """

    def __init__(
        self,
        own: Sequence[Var],
        others: Sequence[Var],
        together: Sequence[Var],
        ranges: Mapping[Var, tuple[Extent, Extent]],
    ) -> None:
        self._own, self._others, self._together = own, others, together
        self._intervals = Intervals(range_intervals(ranges))
        self._ranges = {node_id(var): pair for var, pair in ranges.items()}
        self._keys = StructuralKeys()
        self._found: dict[int, Expr] = {}
        self.places: list[tuple[Axis, Expr]] = []

    def over_places(self, factor: Expr) -> Expr | None:
        """``x[i + a, j + b] → x[i + a, q]``; None if the others move anything but whole indices."""
        nodes = postorder(factor)
        if any(op_name(node) == "if_then_else" for node in nodes):
            return None  # which may keep reads in bounds
        reads = [node for node in nodes if is_load(node)]
        table: dict[int, Expr] = {}
        for read in reads:
            indices = []
            for index, extent in zip(operands(read), shape_of(load_tensor(read)), strict=True):
                place = index
                several = sum(depends_on(index, [var]) for var in self._together) > 1
                if depends_on(index, self._others) or several:
                    if depends_on(index, self._own) or contains_load(index):
                        return None
                    place = self._place(index, extent)
                    if place is None:
                        return None
                indices.append(place)
            table[node_id(read)] = load(load_tensor(read), indices)
        moved = replace_outermost(factor, table)
        return None if depends_on(moved, self._others) else moved

    def _place(self, index: Expr, extent: Extent) -> Expr | None:
        """A new axis over the values of an index that are places of a dimension."""
        key = self._keys.expr(index)
        if key not in self._found:
            bounds = self._inside(index, extent)
            if bounds is None:
                return None
            low, count = bounds
            axis, begin = data_axis(f"q{len(self.places)}", count), like(index, low)
            self.places.append((axis, sub(index, begin)))
            self._found[key] = add(cast(dtype_of(index), axis.var), begin)
        return self._found[key]

    def _inside(self, index: Expr, extent: Extent) -> tuple[int, Extent] | None:
        """The least place of a dimension that an index has, and how many places there are from it
        to the greatest one; None for none, or where sizes decide which they are.
        """
        if isinstance(extent, int):
            least, most = self._intervals.of(index)
            low, high = max(least, 0), min(most, extent - 1)
            return None if low > high else (low, high - low + 1)
        ends = self._ends(index)
        if ends is None:
            return None
        least, most = ends
        beyond, longer = linear_terms(sub(most, extent))
        symbolic, first = linear_terms(least)
        if beyond or symbolic:
            return None
        low = max(first, 0)
        high = most if longer < 0 else sub(extent, like(extent, 1))
        return low, nonnegative(simplify(add(high, like(high, 1 - low))))

    def _ends(self, index: Expr) -> tuple[Expr, Expr] | None:
        """The least and the greatest value of a sum of loop variables and sizes."""
        terms, constant = linear_terms(index)
        least = most = like(index, constant)
        for node, factor in terms:
            if op_name(node) != "var":
                return None
            low, extent = self._ranges.get(node_id(node), (node, 1))
            first = cast(dtype_of(index), low) if not isinstance(low, int) else like(index, low)
            count = like(index, extent) if isinstance(extent, int) else extent
            last = sub(add(first, cast(dtype_of(index), count)), like(index, 1))
            ends = [mul(end, like(index, factor)) for end in (first, last)]
            least = add(least, ends[factor < 0])
            most = add(most, ends[factor > 0])
        return least, most
