"""Counts the work of one read site's part of a gradient, and compares it with a lower bound.

It gives the iterations, the lower bound, and the iterations of the dense sum; None if they are
symbolic or too many to count.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ...cost import stage_cost
from ...expr.integers.loop_points import loop_points
from ...expr.nodes import is_load, load_tensor
from ...expr.rewrite import postorder
from ...graph.counting import loop_iterations
from ...graph.graph import topological
from ...graph.stage import axis_range, is_placeholder, outputs_of
from ...zero_elimination.sums.conditions import on_indices
from ...zero_elimination.transposition.transpose import Transposed


@dataclass(frozen=True)
class SiteWork:
    """The iterations of a read site.

    Attributes
    ----------
    own : int or None
        The iterations of the strategy: the sum itself, and stages that were made for it.
    floor : int or None
        The lower bound: reads that are not structurally zero, or elements of the gradient where
        there are more of these.
    dense : int or None
        The iterations of the sum over all outputs for every element.
    """

    own: int | None
    floor: int | None
    dense: int | None


def work_of(site: Transposed) -> SiteWork:
    """Count one site: point by point for reads and conditions on indices, by extents otherwise."""
    elements = [*site.target.prefix, *site.target.axes]
    points = [*site.op.axis, *site.term.reduce_axes]
    sum_size = _known(loop_iterations([*elements, *site.sum.axes]))
    parts = _parts(site)
    return SiteWork(
        None if sum_size is None or parts is None else sum_size + parts,
        _floor(site),
        _known(loop_iterations([*elements, *points])),
    )


def _floor(site: Transposed) -> int | None:
    conditions = [c.expr for c in site.term.conditions if on_indices(c.expr)]
    points = [*site.op.axis, *site.term.reduce_axes]
    reads = loop_points([(axis.var, *axis_range(axis)) for axis in points], conditions)
    prefix = [axis_range(axis)[1] for axis in site.target.prefix]
    elements = [axis_range(axis)[1] for axis in site.target.axes]
    if reads is None or not all(isinstance(extent, int) for extent in (*prefix, *elements)):
        return None
    # under an identity the prefix is the output's own index: every read belongs to one row
    repeated = 1 if site.cotangent.tensor is None else prod(prefix)
    return max(reads * repeated, prod(prefix) * prod(elements))


def _parts(site: Transposed) -> int | None:
    """The iterations of stages that neither the forward pass nor the cotangent has."""
    given = [*outputs_of(site.op), site.term.tensor]
    if site.cotangent.tensor is not None:
        given.append(site.cotangent.tensor)
    known = {hash(op) for op in topological(given)}
    read = [load_tensor(node) for node in postorder(site.sum.source) if is_load(node)]
    work: Any = 0
    for op in topological(read):
        if hash(op) not in known and not is_placeholder(op):
            cost = _known(stage_cost(op).iterations)
            if cost is None:
                return None
            work += cost
    return work


def _known(count: Any) -> int | None:
    return count if isinstance(count, int) else None
