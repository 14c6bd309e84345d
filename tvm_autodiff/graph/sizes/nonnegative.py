"""Makes the extents of axes that become dimensions non-negative: a loop may have a negative extent,
a tensor may not.
"""

from __future__ import annotations

from ...expr.build import compare, zero_like
from ...expr.nodes import Expr, binary
from ...expr.rewrite import variables_of
from ...expr.simplify import prove
from ..stage import Extent


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
    sizes: dict[Expr, tuple[int, None]] = dict.fromkeys(variables_of(extent), (0, None))
    if prove(compare("ge", extent, zero_like(extent)), sizes):
        return extent
    return binary("max", extent, zero_like(extent))
