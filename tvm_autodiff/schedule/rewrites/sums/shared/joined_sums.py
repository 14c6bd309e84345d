"""Joins sums over the same indices that share work, as several results of one pass.

The gradients with respect to several parameters of one expression are sums of different values over
the same indices, as are a weighted sum and the sum of its weights. Separately, each would compute
the same exponentials again.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....expr.nodes import Expr, Tensor, dtype_of, is_float
from .....expr.rewrite import expand_lets
from .....expr.sharing.lets import bind_shared
from .....graph.graph import Graph, replace_tensors
from .....graph.stage import (
    Combiner,
    Operation,
    Reduction,
    is_compute,
    reduction_of,
    reduction_stage,
    sum_combiner,
)
from ....cost import CALL, LATENCY, LAUNCH_CYCLES
from ....kernel import iterations
from ....nest.reductions.products import is_sum
from .common_functions import aligned, expensive_everywhere, runs_in_rows


def with_joined_sums(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``s[i] = Σ_k f(i, k), t[i] = Σ_k g(i, k) → (s, t)[i] = Σ_k (f(i, k), g(i, k))`` where f and g
    have an expensive function of all axes in common. Sums along rows are left to chains of rows.
    """
    current = list(outputs)
    while pairs := _join(current):
        current = replace_tensors(current, pairs)
    return current


def _join(outputs: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Some sums, and the results of one pass that replace them; empty if no two are joined."""
    graph = Graph(outputs)
    found = [(op, reduction) for op in graph.ops if (reduction := _candidate(op)) is not None]
    for number, (first, reduction) in enumerate(found):
        group, sources = [first], [reduction.sources[0]]
        for other, _ in found[number + 1 :]:
            late = graph.depends_on([op.output(0) for op in group])
            # so many sums hide the latency of an addition, more take only registers
            if len(group) == LATENCY or hash(other) in late:
                continue
            moved = aligned(other, first)
            if moved is not None and dtype_of(moved[0]) == dtype_of(sources[0]):
                group.append(other)
                sources += moved
        if len(group) > 1:
            results = _together(first, reduction, sources)
            return list(zip([op.output(0) for op in group], results, strict=True))
    return []


def _candidate(op: Operation) -> Reduction | None:
    """The reduction of a stage that sums an expensive function, but not along rows."""
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or not is_sum(reduction) or reduction.init:
        return None
    if not len(op.axis) or iterations(op) * CALL < LAUNCH_CYCLES:
        return None
    source = expand_lets(reduction.sources[0])
    if not is_float(source) or not expensive_everywhere(op, [source]):
        return None
    return None if runs_in_rows(op, reduction) else reduction


def _together(first: Operation, reduction: Reduction, sources: Sequence[Expr]) -> list[Tensor]:
    """One stage that computes all sums over the loops of the first."""
    plain = [sum_combiner(dtype_of(source)) for source in sources]
    combiner = Combiner(
        tuple(one.lhs[0] for one in plain),
        tuple(one.rhs[0] for one in plain),
        tuple(one.result[0] for one in plain),
        tuple(one.identity[0] for one in plain),
    )
    bound = tuple(map(bind_shared, sources))
    joined = Reduction(combiner, bound, reduction.axes, reduction.condition, ())
    return reduction_stage(f"{first.name}_joined", list(first.axis), joined)
