"""Extents that may be zero or negative for some sizes.

A loop may have a negative extent, a tensor may not. What leaves a loop is evaluated without one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.build import compare, zero_like
from ...expr.nodes import Axis, Expr, binary
from ...expr.rewrite import variables_of
from ...expr.simplify import prove
from ..stage import Extent, axis_range


def nonnegative(extent: Extent) -> Extent:
    """``n//2 - 1 → max(n//2 - 1, 0)``, unless the extent is known to be positive for all sizes.

    Examples
    --------
    >>> from tvm import te
    >>> n = te.var("n")
    >>> nonnegative(n // 2 - 1), nonnegative(n // 2 + 1), nonnegative(-3)
    (T.max(n // 2 - 1, 0), n // 2 + 1, 0)
    """
    if isinstance(extent, int):
        return max(extent, 0)
    if _always("ge", extent):
        return extent
    return binary("max", extent, zero_like(extent))


def not_empty(axes: Sequence[Axis]) -> list[Expr]:
    """The conditions under which loops over some axes run, without those that hold for all sizes.

    Examples
    --------
    >>> from tvm import te
    >>> n = te.var("n")
    >>> not_empty([te.reduce_axis((0, 3)), te.reduce_axis((0, n)), te.reduce_axis((0, n + 1))])
    [n > 0]
    """
    extents = [axis_range(axis)[1] for axis in axes]
    return [
        compare("gt", extent, zero_like(extent))
        for extent in extents
        if not isinstance(extent, int) and not _always("gt", extent)
    ]


def _always(name: str, extent: Expr) -> bool:
    """Whether an extent compares so with zero for all sizes."""
    sizes: dict[Expr, tuple[int, None]] = dict.fromkeys(variables_of(extent), (0, None))
    return prove(compare(name, extent, zero_like(extent)), sizes)
