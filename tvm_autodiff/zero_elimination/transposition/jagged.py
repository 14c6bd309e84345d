"""Shifts loops that start at data, ``rows[i] <= k < rows[i + 1]``, to start at zero."""

from __future__ import annotations

from dataclasses import replace

from ...expr.build import add, variable, zero_like
from ...expr.nodes import Axis, Expr, Var, dtype_of
from ...expr.rewrite import contains_load, substituter
from ...graph.stage import bounds_of, reduce_axis_within, rename_bounds
from ...rules.terms import Condition, Term


def from_zero(term: Term) -> Term:
    """``low[i] <= k < low[i] + n  →  k = low[i] + k', 0 <= k' < n``."""
    axes: list[Axis] = []
    table: dict[Var, Expr] = {}
    for axis in term.reduce_axes:
        moved = rename_bounds(axis, substituter(table))
        low, extent = bounds_of(moved)
        if contains_load(low):
            fresh = variable(axis.var.name, dtype_of(axis.var))
            table[axis.var] = add(low, fresh)
            moved = reduce_axis_within(fresh, zero_like(low), extent)
        axes.append(moved)
    if not table:
        return term
    move = substituter(table)
    return replace(
        term,
        indices=tuple(move(index) for index in term.indices),
        value=move(term.value),
        conditions=tuple(Condition(move(c.expr), c.guards) for c in term.conditions),
        reduce_axes=tuple(axes),
    )
