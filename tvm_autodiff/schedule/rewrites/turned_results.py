"""Reductions whose last output axis is shorter than a vector, over another axis last.

Sums over pairs of points have three components for each of so many points that only a call tells:
vectors lie along the points.

    ``out[i, c] = Σ_j f(i, j, c), i < n, c < 3  →  turned[c, i] = Σ_j f(i, j, c); out[i, c] =
    turned[c, i]``
"""

from __future__ import annotations

from dataclasses import replace

from ...expr.nodes import load
from ...graph.stage import (
    axis_range,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed,
    renewed_reduction,
)
from ..cost import MIN_LANES
from ..kernel import Kernel, results_of


def turned_results(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """A kernel with its last symbolic output axis at the end, and one that reads its results; None
    if vectors may lie along another axis.
    """
    op = kernel.root
    reduction = reduction_of(op)
    extents = [axis_range(axis)[1] for axis in op.axis]
    symbolic = [n for n, extent in enumerate(extents) if not isinstance(extent, int)]
    short = all(isinstance(extent, int) and extent < MIN_LANES for extent in extents[-1:])
    if reduction is None or len(kernel.outputs) > 1 or not symbolic or not short:
        return None
    moved = symbolic[-1]
    spatial, table = renewed(op.axis)
    order = [*spatial[:moved], *spatial[moved + 1 :], spatial[moved]]
    [turned] = reduction_stage(f"{op.name}_turned", order, renewed_reduction(reduction, table))
    last = kernel.ops[-1]
    here, _ = renewed(last.axis)
    places = [axis.var for axis in here]
    read = load(turned, [*places[:moved], *places[moved + 1 :], places[moved]])
    reader = make_stage(str(last.name), here, results_of(kernel, [read], places))[0].op
    whole = replace(kernel, root=turned.op, epilogue=None)
    return whole, replace(kernel, root=reader, epilogue=None)
