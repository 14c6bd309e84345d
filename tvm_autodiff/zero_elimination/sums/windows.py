"""Converts axes whose ranges depend on other axes to a box around them and conditions.

The ranges of the box contain no axis if their ends are constant. Comparisons hold for the points of
the windows.
"""

from __future__ import annotations

from ...errors import UnsolvableError
from ...expr.build import add, compare, const, zero_like
from ...expr.integers.ceil_division import fold_ceil_divisions
from ...expr.nodes import Axis, Expr, Var, dtype_of
from ...expr.rewrite import contains_load, depends_on
from ...expr.simplify import constant_bounds
from ...graph.stage import Extent, bounds_of

Ranges = dict[Var, tuple[Extent, Extent]]
#: ranges of axes, possibly without an upper bound
OpenRanges = dict[Var, tuple[Extent, Extent | None]]


def is_jagged(axis: Axis) -> bool:
    """Whether a bound of an axis is data: ``k < length[i]``."""
    return contains_load(list(bounds_of(axis)))


def constant_box(ranges: Ranges) -> tuple[OpenRanges, list[Expr]]:
    """Convert ranges that depend on other axes to a box around them and conditions.

    ``low(a) <= k < low(a) + extent(a)  →  0 <= k - L < E`` with constant L and E, and the two
    comparisons. Without a constant L the range starts at ``low(a)``. Without a constant end it is
    unbounded, and the solver bounds the axis by sizes, from the comparison.

    Examples
    --------
    >>> from tvm import te
    >>> i, k, n = te.var("i"), te.var("k"), te.var("n")
    >>> constant_box({i: (0, 5), k: (i, 3)})
    ({i: (0, 5), k: (0, 7)}, [k >= i, k < i + 3])
    >>> constant_box({i: (0, n), k: (0, i + 1)})[0][k]
    (0, None)
    """
    axes = list(ranges)
    box: OpenRanges = {}
    limits: list[Expr] = []
    for var, (low, extent) in ranges.items():
        bounded = [
            bound
            for bound in (low, extent)
            if not isinstance(bound, int) and depends_on(bound, axes)
        ]
        if not bounded:
            box[var] = (low, extent)
            continue
        end = fold_ceil_divisions(_plus(low, extent, var))
        start = const(low, dtype_of(var)) if isinstance(low, int) else fold_ceil_divisions(low)
        ends = _bounds(start, ranges), _bounds(end, ranges)
        if ends[0] is None:
            box[var] = (start, None)
        else:
            least = ends[0][0]
            box[var] = (least, None if ends[1] is None else ends[1][1] - least)
            limits.append(compare("ge", var, start))
        limits.append(compare("lt", var, end))
    return box, limits


def nonempty(ranges: Ranges) -> list[Expr]:
    """The conditions that each range contains a point: ``k = b - I[a]`` may read I only if some k
    exists.
    """
    return [
        compare("gt", extent, zero_like(extent))
        for _, extent in ranges.values()
        if not isinstance(extent, int)
    ]


def within(ranges: Ranges) -> list[Expr]:
    """The conditions that each variable lies in its range."""
    found: list[Expr] = []
    for var, (low, extent) in ranges.items():
        start = const(low, dtype_of(var)) if isinstance(low, int) else low
        found += [compare("ge", var, start), compare("lt", var, _plus(low, extent, var))]
    return found


def _bounds(expr: Expr, ranges: Ranges) -> tuple[int, int] | None:
    try:
        return constant_bounds(expr, ranges)
    except UnsolvableError:
        return None


def _plus(low: Extent, extent: Extent, like: Expr) -> Expr:
    dtype = dtype_of(like)
    left = const(low, dtype) if isinstance(low, int) else low
    right = const(extent, dtype) if isinstance(extent, int) else extent
    return add(left, right)
