"""Splits loops over updates whose places are data at a quotient, so that the updates of one place
can be summed first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...expr.build import add, const, mul
from ...expr.integers.exact_quotient import exact_quotient
from ...expr.nodes import Axis, Expr, const_value, dtype_of, node_id, op_name, operands
from ...expr.rewrite import contains_load, depends_on, postorder, replace_outermost
from ...graph.stage import axis_range, bounds_of, reduce_axis
from .sum import Updates


def with_split_axes(updates: Updates) -> Updates:
    """``out[g[o//4]] += v[o] for o < 4*n  →  out[g[p]] += v[p*4 + q] for p < n, q < 4``.

    A loop is split where the places depend on its quotients by one number, which divides its
    extent, and on nothing else of it.
    """
    if not contains_load(updates.place):
        return updates
    for axis in updates.axes:
        size = _group(axis, updates)
        if size is not None:
            updates = _split(updates, axis, size)
    return updates


def _group(axis: Axis, updates: Updates) -> int | None:
    """The number by which the places divide a loop variable."""
    low, extent = axis_range(axis)
    divisors = [operands(node)[1] for node in _of(updates.place, axis, "floordiv")]
    size = const_value(divisors[0]) if divisors else None
    if low != 0 or not isinstance(size, int) or size < 2 or exact_quotient(extent, size) is None:
        return None
    if depends_on([bound for one in updates.axes for bound in bounds_of(one)], [axis.var]):
        return None
    zero = const(0, dtype_of(axis.var))
    quotients = {
        node_id(node): zero
        for node in _of(updates.place, axis, "floordiv")
        if const_value(operands(node)[1]) == size
    }
    others = [replace_outermost(index, quotients) for index in updates.place]
    return None if depends_on(others, [axis.var]) else size


def _split(updates: Updates, axis: Axis, size: int) -> Updates:
    """The updates with a loop over groups of `size`, and one within a group."""
    name, dtype = axis.var.name, dtype_of(axis.var)
    count = exact_quotient(axis_range(axis)[1], size)
    assert count is not None
    outer = reduce_axis(f"{name}_group", count, 0, dtype)
    inside = reduce_axis(f"{name}_inside", size, 0, dtype)
    parts = {"floordiv": outer.var, "floormod": inside.var}
    whole = add(mul(outer.var, const(size, dtype)), inside.var)

    def moved(expr: Expr) -> Expr:
        table: dict[int, Expr] = {node_id(axis.var): whole}
        for name, part in parts.items():
            for node in _of([expr], axis, name):
                if const_value(operands(node)[1]) == size:
                    table[node_id(node)] = part
        return replace_outermost(expr, table)

    axes = [
        one
        for old in updates.axes
        for one in ((outer, inside) if node_id(old.var) == node_id(axis.var) else (old,))
    ]
    return replace(
        updates,
        value=moved(updates.value),
        conditions=tuple(replace(c, expr=moved(c.expr)) for c in updates.conditions),
        axes=tuple(axes),
        place=tuple(map(moved, updates.place)),
    )


def _of(roots: Sequence[Expr], axis: Axis, name: str) -> Iterator[Expr]:
    """The quotients or the remainders of a loop variable."""
    for node in postorder(list(roots)):
        if op_name(node) == name and node_id(operands(node)[0]) == node_id(axis.var):
            yield node
