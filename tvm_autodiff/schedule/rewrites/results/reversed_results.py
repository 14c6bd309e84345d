"""Reductions whose results are computed from the last to the first along an axis against which
memory is read: vectors lie along memory then, as in gradients of convolutions by their weights.

    ``out[i] = Σ_k y[k] * x[k - i], i < n  →  reversed[m] = Σ_k y[k] * x[k + m - n + 1]; out[i] =
    reversed[n - 1 - i]``
"""

from __future__ import annotations

from dataclasses import replace

from ....expr.build import const, sub
from ....expr.linear_terms import linear_terms
from ....expr.nodes import Expr, Var, dtype_of, is_load, load, node_id, operands
from ....expr.rewrite import depends_on, expand_lets, postorder, rewrite, substituter
from ....expr.simplify import collect_terms, normalize_node
from ....graph.stage import (
    make_stage,
    reduction_bounds,
    reduction_of,
    reduction_stage,
    renewed,
    renewed_reduction,
)
from ...cost import MIN_LANES
from ...kernel import Kernel, constant_extent, results_of


def reversed_results(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """A kernel with output axes reversed, and one that reads its results; None without an axis of
    two vectors or more against which memory is read, and nothing along it.
    """
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or len(kernel.outputs) > 1 or len(reduction.sources) > 1:
        return None
    source = expand_lets(reduction.sources[0])
    places = [
        number
        for number, axis in enumerate(op.axis)
        if constant_extent(axis) >= 2 * MIN_LANES and _is_against(source, axis.var)
    ]
    if not places or depends_on(reduction_bounds(op), [op.axis[n].var for n in places]):
        return None
    spatial, table = renewed(op.axis)
    turned: dict[Var, Expr] = {
        spatial[n].var: sub(
            const(constant_extent(op.axis[n]) - 1, dtype_of(spatial[n].var)), spatial[n].var
        )
        for n in places
    }
    fresh = renewed_reduction(replace(reduction, sources=(source,)), table)
    move = substituter(turned)
    moved = [collect_terms(rewrite(move(one), normalize_node)) for one in fresh.sources]
    whole = replace(fresh, sources=tuple(moved), condition=move(fresh.condition))
    [result] = reduction_stage(f"{op.name}_reversed", spatial, whole)
    last = kernel.ops[-1]
    here, _ = renewed(last.axis)
    indices: list[Expr] = [axis.var for axis in here]
    at = [
        sub(const(constant_extent(op.axis[n]) - 1, dtype_of(index)), index)
        if n in places
        else index
        for n, index in enumerate(indices)
    ]
    reader = make_stage(str(last.name), here, results_of(kernel, [load(result, at)], indices))[0].op
    return replace(kernel, root=result.op, epilogue=None), replace(
        kernel, root=reader, epilogue=None
    )


def _is_against(source: Expr, var: Var) -> bool:
    """Whether reads go down along a variable, and none up."""
    factors = [
        factor
        for node in postorder(source)
        if is_load(node)
        for index in operands(node)
        for part, factor in linear_terms(index)[0]
        if node_id(part) == node_id(var)
    ]
    return bool(factors) and all(factor < 0 for factor in factors)
