"""Computes sums that only some of the elements have, for these elements only.

Guards such as ``b == 4``, ``b <= 3`` or ``i == j`` do not depend on the summed axes: the border to
which a clamp sends its reads, a diagonal. The solver finds a box for the remaining elements, and a
stage over this box replaces a sum of zeros everywhere else.
"""

from __future__ import annotations

from dataclasses import replace

from ...domain import Domain, simplify_domain
from ...expr.build import all_of, if_then_else, zero_like
from ...expr.nodes import Expr, dtype_of, load
from ...expr.rewrite import depends_on, substituter
from ...graph.sizes.nonnegative import nonnegative
from ...graph.stage import data_axis
from ..sums.assemble import assemble
from ..sums.iterations import sum_iterations
from ..sums.sum import Sum, Target
from ..sums.windows import is_jagged


def part_of_box(whole: Sum) -> Sum | None:
    """``Σ_k if b == 4 and c then f  →  if b == 4 then part[], part[] = Σ_k if c then f[b := 4]``.

    None if every guard depends on the summed axes, or if the part cannot be solved.
    """
    summed = [axis.var for axis in whole.axes]
    guards = [guard for guard in whole.guards if not depends_on(guard, summed)]
    if whole.unsolved or not summed or not guards or any(map(is_jagged, whole.axes)):
        return None
    part, places = _part(whole.target, guards)
    solved = whole.definition.at(part)
    if solved is None or solved.unsolved:
        return None
    name = f"{whole.definition.name}_part"
    stage = assemble(name, part, [[solved]], dtype=dtype_of(whole.source))
    read = load(stage, [*(axis.var for axis in part.prefix), *places])
    source = if_then_else(all_of(guards), read, zero_like(whole.source))
    made = sum_iterations(solved)
    return replace(whole, axes=(), guards=(), source=source, made=made)


def _part(target: Target, guards: list[Expr]) -> tuple[Target, list[Expr]]:
    """The elements where guards hold, and the index of an element among them."""
    variables = tuple(axis.var for axis in target.axes)
    solution = simplify_domain(Domain(variables, target.ranges, tuple(guards)))
    new = solution.new_domain
    extents = {var: nonnegative(new.ranges[var][1]) for var in new.variables}
    axes = [data_axis(var.name, extent, dtype_of(var)) for var, extent in extents.items()]
    move = substituter({old: axis.var for old, axis in zip(new.variables, axes, strict=True)})
    places = tuple(move(solution.old_to_new[var]) for var in variables)
    part = Target(target.prefix, tuple(axes), places)
    return part, [solution.new_to_old[var] for var in new.variables]
