"""Terms whose loops have extents that are data: ``Σ_{k < length[i]}``, rows between pointers.

Where a read's index determines such a loop, its bound is a condition. Where nothing ties the loop,
it stays a loop of the gradient. An index that is data adds updates up in one loop over the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.build import add, const, variable, zero_like
from ...expr.fold import fold
from ...expr.nodes import Axis, Expr, Tensor, Var, dtype_of, is_const, load, node_id
from ...expr.rewrite import contains_load, depends_on, substituter
from ...graph.kinds.update_loops import UpdateLoops, update_stage
from ...graph.stage import (
    Operation,
    axis_range,
    bounds_of,
    reduce_axis_over,
    reduce_axis_within,
    rename_bounds,
    renew_axis,
)
from ...rules.terms import Condition, Term
from .data_equations import Points, solve_data_equations
from .gather import Cotangent, Target, is_jagged


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


def update_loops(
    op: Operation, term: Term, cotangent: Cotangent, target: Target, name: str
) -> Tensor | None:
    """``d out[a] += [c] p · dx[g(a, k)]  →  for all (a, k): if c then dx[g(a, k)] += head[a]·p``.

    With the identity for a cotangent the prefix is the index of the output:
    ``for all (a, k): if c then dx[a, g(a, k)] += p``. None where no point counts.
    """
    axes = [axis.var for axis in op.axis]
    prefix: list[Axis] = []
    outer: list[Expr] = []
    seed: Expr = const(1, dtype_of(term.seed))
    if cotangent.tensor is not None:
        prefix = [renew_axis(axis) for axis in target.prefix]
        outer = [axis.var for axis in prefix]
        seed = load(cotangent.tensor, [*outer, *axes])
    elif target.prefix:
        outer = list(axes)
    found = _without_data_equations([*op.axis, *term.reduce_axes], term.conditions)
    if found is None:
        return None
    loops, points = found
    value = substituter({term.seed: seed})(term.value)
    value = points.move(fold(value) if is_const(seed) else value)
    place = [points.move(index) for index in (*outer, *term.indices)]
    loops = [*prefix, *loops]
    shape = [axis_range(axis)[1] for axis in (*target.prefix, *target.axes)]
    tests = tuple(condition.expr for condition in points.conditions)
    nest = UpdateLoops(tuple(_rows_inside(loops, place)), tests, tuple(place), value)
    return update_stage(name, nest, shape)


def _without_data_equations(
    axes: Sequence[Axis], conditions: Sequence[Condition]
) -> tuple[list[Axis], Points] | None:
    """The loops that are left where equations with reads have determined what they can."""
    every = [axis.var for axis in axes]
    boxed = [
        axis
        for axis in axes
        if is_const(bounds_of(axis)[0], 0)
        and not is_jagged(axis)
        and not depends_on(bounds_of(axis)[1], every)
    ]
    ranges = {axis.var: axis_range(axis) for axis in boxed}
    points = Points(tuple(axis.var for axis in boxed), ranges, tuple(conditions), {})
    solved = solve_data_equations(points)
    if solved is None:
        return None
    others = [rename_bounds(axis, solved.move) for axis in axes if axis not in boxed]
    return [*(reduce_axis_over(v, solved.ranges[v][1]) for v in solved.variables), *others], solved


def _rows_inside(loops: Sequence[Axis], place: Sequence[Expr]) -> list[Axis]:
    """The loops with those of trailing dimensions of the result innermost: rows are added whole."""
    rows: list[Axis] = []
    for index in reversed(place):
        row = next((axis for axis in loops if node_id(axis.var) == node_id(index)), None)
        bounds = [bound for axis in loops for bound in bounds_of(axis)]
        if row is None or depends_on(bounds, [row.var]):
            break
        rows.insert(0, row)
    return [*(axis for axis in loops if axis not in rows), *rows]
