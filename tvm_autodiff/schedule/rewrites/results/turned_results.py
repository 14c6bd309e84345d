"""Reductions over another output axis last, along which vectors lie.

Sums over pairs of points have three components for each of so many points that only a call tells:
vectors lie along the points. And the last output axis may not be one along which memory is read in
order, while another is.

    ``out[i, c] = Σ_j f(i, j, c), i < n, c < 3  →  turned[c, i] = Σ_j f(i, j, c); out[i, c] =
    turned[c, i]``
"""

from __future__ import annotations

from dataclasses import replace

from ....expr.nodes import load
from ....graph.stage import (
    axis_range,
    loop_axes,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed,
    renewed_reduction,
    sources_of,
)
from ...cost import MIN_LANES, STORE
from ...kernel import Kernel, iterations, results_of, size_of
from ...nest.access import strides_along


def turned_results(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """A kernel with its last symbolic output axis at the end, and one that reads its results; None
    if vectors may lie along another axis.
    """
    extents = [axis_range(axis)[1] for axis in kernel.root.axis]
    symbolic = [n for n, extent in enumerate(extents) if not isinstance(extent, int)]
    short = all(isinstance(extent, int) and extent < MIN_LANES for extent in extents[-1:])
    return _turned(kernel, symbolic[-1]) if symbolic and short else None


def turned_columns(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """``out[i, j] = Σ_k x[k, j, i]  →  turned[j, i] = Σ_k x[k, j, i]; out[i, j] = turned[j, i]``

    None if vectors of memory lie along the last output axis, or along no other, or if the results
    are too many to be copied.
    """
    op, sources = kernel.root, sources_of(kernel.root)
    variables = [axis.var for axis in loop_axes(op)]
    extents = [axis_range(axis)[1] for axis in op.axis]
    if not all(isinstance(n, int) for n in extents) or STORE * size_of(extents) > iterations(op):
        return None
    lies = [
        size_of([extent]) >= 2 * MIN_LANES
        and max(strides_along(sources, axis.var, variables) or [0]) == 1
        for extent, axis in zip(extents, op.axis, strict=True)
    ]
    if not any(lies) or lies[-1]:
        return None
    return _turned(kernel, max(n for n, found in enumerate(lies) if found))


def _turned(kernel: Kernel, moved: int) -> tuple[Kernel, Kernel] | None:
    """A kernel with an output axis at the end, and one that reads its results."""
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or len(kernel.outputs) > 1:
        return None
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
