"""Extents that are known before the loops of a program run."""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.nodes import Axis
from ...expr.rewrite import contains_load, depends_on
from ..stage import Extent


def is_size(extent: Extent, axes: Sequence[Axis]) -> bool:
    """Whether neither data nor loops over some axes decide an extent.

    Examples
    --------
    >>> from tvm import te
    >>> n, rows = te.var("n"), te.reduce_axis((0, 4))
    >>> is_size(2 * n, [rows]), is_size(n - rows.var, [rows])
    (True, False)
    """
    own = [axis.var for axis in axes]
    return isinstance(extent, int) or not (contains_load(extent) or depends_on(extent, own))
