"""The points of some axes as a box that starts at zero."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain import Domain, simplify_domain
from ...expr.build import conjuncts
from ...expr.nodes import Axis, Expr, Var, node_id, same_node
from ...expr.rewrite import depends_on, substituter, variables_of
from ...graph.stage import axis_range
from ...rules.terms import Condition
from .conditions import on_indices
from .data.equations import Points
from .windows import constant_box


def narrowed(points: Points, kept: Sequence[Var]) -> Points | None:
    """The points of a box without those that conditions on a single axis exclude.

    ``[k != 0, x > 0] k < 2  →  [x > 0] k = 1``. Conditions with data are not used.

    Parameters
    ----------
    points : Points
        The points of a box.
    kept : sequence of Var
        Axes that stay as they are.

    Returns
    -------
    Points or None
        None if there are no points.
    """
    fixed = {node_id(var) for var in kept}
    for var in points.variables:
        alone = [c for c in points.conditions if on_indices(c.expr) and _is_on(c.expr, var)]
        low, extent = points.ranges[var]
        if node_id(var) in fixed or not alone or not isinstance(extent, int):
            continue
        conditions = tuple(condition.expr for condition in alone)
        solution = simplify_domain(Domain((var,), {var: (low, extent)}, conditions))
        new = solution.new_domain
        if new.is_empty:
            return None
        if new.volume() >= extent:
            continue
        move = substituter(solution.old_to_new)
        others = [c for c in points.conditions if all(c is not one for one in alone)]
        ranges = {v: bounds for v, bounds in points.ranges.items() if not same_node(v, var)}
        points = Points(
            tuple(
                v
                for old in points.variables
                for v in (new.variables if same_node(old, var) else (old,))
            ),
            {**ranges, **{v: new.ranges[v] for v in new.variables}},
            (
                *(Condition(part, True) for c in new.conditions for part in conjuncts(c)),
                *(Condition(move(c.expr), c.guards) for c in others),
            ),
            {**{v: move(e) for v, e in points.values.items()}, **solution.old_to_new},
        )
    return points


def _is_on(condition: Expr, var: Var) -> bool:
    found = variables_of(condition)
    return len(found) == 1 and same_node(found[0], var)


def box_of(axes: Sequence[Axis]) -> Points | None:
    """Convert axes whose bounds depend on others to a box with conditions; keep other axes.

    Returns
    -------
    Points or None
        None if there are no points.

    Raises
    ------
    UnsolvableError
        If sizes do not bound an axis.
    """
    variables = tuple(axis.var for axis in axes)
    ranges = {axis.var: axis_range(axis) for axis in axes}
    if _is_box(axes):
        return Points(variables, ranges, (), {})
    box, limits = constant_box(ranges)
    solution = simplify_domain(Domain(variables, box, tuple(limits)))
    new = solution.new_domain
    if new.is_empty:
        return None
    inside = tuple(Condition(part, True) for c in new.conditions for part in conjuncts(c))
    return Points(new.variables, dict(new.ranges), inside, dict(solution.old_to_new))


def _is_box(axes: Sequence[Axis]) -> bool:
    variables = [axis.var for axis in axes]
    for axis in axes:
        low, extent = axis_range(axis)
        if not (isinstance(low, int) and low == 0):
            return False
        if not isinstance(extent, int) and depends_on(extent, variables):
            return False
    return True
