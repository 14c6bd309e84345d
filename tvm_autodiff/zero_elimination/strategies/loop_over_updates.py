"""Computes sums whose points do not form a box, in one loop over the points.

Loops with data as extents (``Σ_{k < length[i]}``, rows between pointers) and windows that sizes do
not bound have such points. If the position of an update determines a loop, or leaves it a loop, the
solver's sum is equally good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...errors import UnsolvableError
from ...expr.build import zero_like
from ...expr.nodes import Axis, Expr, is_const, load, node_id
from ...expr.rewrite import depends_on
from ...graph.kinds.update_loops import UpdateLoops, update_stage
from ...graph.stage import axis_range, bounds_of, reduce_axis_over, rename_bounds
from ...rules.terms import Condition
from ..sums.data.equations import Points, solve_data_equations
from ..sums.iterations import box_iterations
from ..sums.points import box_of
from ..sums.sum import Sum, Updates
from ..sums.windows import is_jagged


def update_loops(whole: Sum) -> Sum | None:
    """``Σ_{a,k} if g(a, k) == b then v  →  out[b], for all (a, k): out[g(a, k)] += v``.

    None if no equation is left, or if the points form a box.
    """
    target = whole.target
    if not whole.by_data:
        return None
    found = whole.definition.updates(target)
    if _have_box(found):
        return None
    solved = _without_data_equations(found.axes, found.conditions)
    if solved is None:  # no point counts
        nothing = zero_like(whole.source)
        return replace(whole, axes=(), source=nothing, unsolved=(), masks=(), windows=())
    loops, points = solved
    prefix = [axis.var for axis in found.prefix]
    place = [*prefix, *(points.move(index) for index in found.place)]
    loops = [*found.prefix, *loops]
    shape = [axis_range(axis)[1] for axis in target.every_axis]
    tests = tuple(condition.expr for condition in points.conditions)
    value = points.move(found.value)
    nest = UpdateLoops(tuple(_rows_inside(loops, place)), tests, tuple(place), value)
    updated = update_stage(whole.definition.stage_name("updates"), nest, shape)
    return replace(
        whole,
        axes=(),
        source=load(updated, [axis.var for axis in target.every_axis]),
        guards=(),
        unsolved=(),
        windows=(),
        masks=(),
        made=(partial(box_iterations, loops),),
    )


def _have_box(updates: Updates) -> bool:
    """Whether the solver finds a box for the points of updates."""
    if any(map(is_jagged, updates.axes)):
        return False
    try:
        box_of(updates.axes)
    except UnsolvableError:
        return False
    return True


def _without_data_equations(
    axes: Sequence[Axis], conditions: Sequence[Condition]
) -> tuple[list[Axis], Points] | None:
    """The remaining loops after equations with reads have determined what they can."""
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
    others = [axis for axis in axes if axis not in boxed]
    solved = solve_data_equations(points, others)
    if solved is None:
        return None
    others = [rename_bounds(axis, solved.move) for axis in others]
    return [*(reduce_axis_over(v, solved.ranges[v][1]) for v in solved.variables), *others], solved


def _rows_inside(loops: Sequence[Axis], place: Sequence[Expr]) -> list[Axis]:
    """The loops with those of trailing dimensions of the result innermost, so that whole rows are
    added.
    """
    rows: list[Axis] = []
    for index in reversed(place):
        row = next((axis for axis in loops if node_id(axis.var) == node_id(index)), None)
        bounds = [bound for axis in loops for bound in bounds_of(axis)]
        if row is None or row in rows or depends_on(bounds, [row.var]):
            break
        rows.insert(0, row)
    return [*(axis for axis in loops if axis not in rows), *rows]
