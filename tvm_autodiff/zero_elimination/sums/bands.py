"""Sums of which two bounds on indices leave a narrow band, as a filter that is written over all
places: ``Σ_s if 0 <= t - s < 5 then x[s]*h[t - s]``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.build import affirmed
from ...expr.nodes import COMPARISONS, Axis, Expr, is_integer, op_name, operands
from ...expr.rewrite import contains_load, depends_on, postorder
from ...expr.structural import StructuralKeys
from ...graph.stage import axis_range
from .data.bounds import Bound, bound_of


def is_banded(sources: Sequence[Expr], axes: Sequence[Axis]) -> bool:
    """Whether conditions bound a summed axis beside another index from both sides, to at most half
    of its extent.

    Examples
    --------
    >>> from tvm import te
    >>> t, s, k = te.var("t"), te.reduce_axis((0, 100), "s"), te.reduce_axis((0, 5), "k")
    >>> is_banded([te.all(t - s >= 0, t - s < 5)], [s]), is_banded([s <= t], [s])
    (True, False)
    >>> is_banded([te.all(t + k >= 2, t + k < 102)], [k]), is_banded([te.abs(t - s) < 5], [s])
    (False, True)
    """
    summed = [axis.var for axis in axes]
    keys = StructuralKeys()
    bounds: list[Bound] = []
    for node in postorder(list(sources)):
        if op_name(node) not in COMPARISONS or contains_load(node):
            continue
        if is_integer(operands(node)[0]) and depends_on(node, summed):
            found = [bound_of(part, keys) for part in affirmed(node)]
            bounds += [bound for bound in found if bound is not None]
    return any(
        one.terms == other.opposite and _is_narrow(one, one.constant + other.constant, axes, keys)
        for number, one in enumerate(bounds)
        for other in bounds[:number]
    )


def _is_narrow(bound: Bound, width: int, axes: Sequence[Axis], keys: StructuralKeys) -> bool:
    """Whether an axis of a sum, beside something else, has at most half of its values between two
    bounds, one more than `width` apart.
    """
    factors = dict(bound.terms)
    for axis in axes:
        factor = abs(factors.get(keys.expr(axis.var), 0))
        extent = axis_range(axis)[1]
        if factor and len(factors) > 1:
            return not isinstance(extent, int) or 2 * (width // factor + 1) <= extent
    return False
