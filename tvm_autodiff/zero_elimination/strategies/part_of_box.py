"""Computes sums that only some of the elements have, for these elements only.

Guards such as ``b == 4``, ``b <= 3`` or ``i == j`` do not depend on the summed axes: the border to
which a clamp sends its reads, a diagonal. Others imply some that do not: ``60 + k <= b`` is false
below 60, where a reflection sends no reads. The solver finds a box for the remaining elements, and
a stage over this box replaces a sum of zeros everywhere else. An equation with data such as
``b == k[]`` is such a guard, too, if the data depend on no summed axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...domain import Domain, simplify_domain, solve_linear_inequalities
from ...expr.build import all_of, compare, const, if_then_else
from ...expr.nodes import Expr, dtype_of, is_expr, load, node_id
from ...expr.rewrite import contains_load, depends_on, substituter, variables_of
from ...expr.simplify import prove
from ...graph.sizes.nonnegative import nonnegative
from ...graph.stage import axis_range, data_axis
from ...rules.terms import Condition, guarded
from ..sums.assemble import assemble
from ..sums.data.equations import reads_inside
from ..sums.iterations import sum_iterations
from ..sums.sum import Sum, Target
from ..sums.windows import is_jagged


def part_of_box(whole: Sum) -> Sum | None:
    """``Σ_k if b == 4 and c then f  →  if b == 4 then part[], part[] = Σ_k if c then f[b := 4]``.

    None if the guards exclude no element for all summed points, or if the part cannot be solved.
    """
    summed = [axis.var for axis in whole.axes]
    if whole.unsolved or not summed or any(map(is_jagged, whole.axes)):
        return None
    guards = [guard for guard in whole.guards if not depends_on(guard, summed)]
    guards += _implied(whole, [guard for guard in whole.guards if depends_on(guard, summed)])
    guards += whole.placed
    if not guards:
        return None
    part, places, conditions = _part(whole.target, guards)
    inside = [one for one in conditions if contains_load(one)]
    solved = whole.definition.at(part)
    if solved is None or solved.unsolved:
        return None
    ranges = {axis.var: axis_range(axis) for axis in (*part.prefix, *part.axes, *solved.axes)}
    if not all(reads_inside(one, ranges) for one in (solved.source, *solved.guards)):
        inside = conditions  # a place of the box without an element may lie outside of a tensor
    if inside:
        value = guarded(solved.source, [Condition(all_of(inside), True)], whole.otherwise)
        solved = replace(solved, source=value)
    name = f"{whole.definition.name}_part"
    stage = assemble(name, part, [[solved]], dtype=dtype_of(whole.source))
    read = load(stage, [*(axis.var for axis in part.prefix), *places])
    source = if_then_else(all_of(guards), read, whole.otherwise)
    made = partial(sum_iterations, solved)
    return replace(whole, axes=(), guards=(), source=source, made=(made,))


def _implied(whole: Sum, guards: Sequence[Expr]) -> list[Expr]:
    """``60 + k <= b → 60 <= b``: what guards tell of elements for which a summed point has them."""
    named = {node_id(var) for var in variables_of(guards)}
    ranges = whole.target.ranges
    elements = [var for var in ranges if node_id(var) in named]
    summed = {axis.var: axis_range(axis) for axis in whole.axes if node_id(axis.var) in named}
    if not elements:
        return []
    every = {**ranges, **summed}
    bounds = solve_linear_inequalities(Domain((*elements, *summed), every, tuple(guards)))
    if bounds.is_empty:
        return []
    found = [
        compare(relation, var, bound if is_expr(bound) else const(bound, dtype_of(var)))
        for var in elements
        for relation, known in (("ge", bounds.lower[var]), ("le", bounds.upper[var]))
        for bound in known
    ]
    return [guard for guard in found if not prove(guard, ranges)]


def _part(target: Target, guards: list[Expr]) -> tuple[Target, list[Expr], list[Expr]]:
    """The elements where guards hold, as a box, the index of an element in it, and the conditions
    under which there is an element at a place of the box.
    """
    variables = tuple(axis.var for axis in target.axes)
    solution = simplify_domain(Domain(variables, target.ranges, tuple(guards)))
    new = solution.new_domain
    extents = {var: nonnegative(new.ranges[var][1]) for var in new.variables}
    axes = [data_axis(var.name, extent, dtype_of(var)) for var, extent in extents.items()]
    move = substituter({old: axis.var for old, axis in zip(new.variables, axes, strict=True)})
    places = tuple(move(solution.old_to_new[var]) for var in variables)
    part = Target(target.prefix, tuple(axes), places)
    conditions = [move(c) for c in new.conditions]
    return part, [solution.new_to_old[var] for var in new.variables], conditions
