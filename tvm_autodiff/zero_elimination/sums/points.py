"""The points of some axes as a box that starts at zero."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain import Domain, simplify_domain
from ...expr.build import conjuncts
from ...expr.nodes import Axis
from ...expr.rewrite import depends_on
from ...graph.stage import axis_range
from ...rules.terms import Condition
from .data_equations import Points
from .windows import constant_box


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
