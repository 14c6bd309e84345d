"""Copies parts of small tensors to where vectors of a reduction read them, along its last output
axis or along what it reduces last.

``s[k] = Σ_p g[p, k]*exp(c[k, 0]*p)  →  c0[k] = c[k, 0], s[k] = Σ_p g[p, k]*exp(c0[k]*p)``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ....expr.nodes import Axis, Expr, Tensor, is_load, load, load_tensor, node_id
from ....expr.rewrite import depends_on, expand_lets, postorder, rewrite, substituter
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    data_axis,
    is_compute,
    loop_axes,
    make_stage,
    outputs_of,
    reduction_bounds,
    reduction_of,
    reduction_stage,
)
from ....graph.structural import EqualStages
from ...cost import LARGE_SIZE, LAUNCH_CYCLES, MIN_LANES, STORE
from ...kernel import iterations, size_of
from ...nest.access import depends_on_any, stride_of
from ...nest.in_range import is_safe, loops_of

#: from a read and the loops that it depends on, the last one in order in memory, to that of a copy
Copied: TypeAlias = Callable[[Expr, Sequence[Axis]], Expr]


def with_contiguous_operands(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Reductions whose vectors read another element of a tensor at each point, in order, read small
    tensors in order, too.

    Such a read depends on the columns alone, or on loops of the reduction, so that each element of
    the copy is read many times. Tiles of products copy what depends on more.
    """
    equal = EqualStages()

    def copied(read: Expr, axes: Sequence[Axis]) -> Expr:
        new = [data_axis(axis.var.name, axis_range(axis)[1]) for axis in axes]
        rename = {old.var: own.var for old, own in zip(axes, new, strict=True)}
        [made] = make_stage(f"{load_tensor(read).op.name}_part", new, [substituter(rename)(read)])
        [part] = outputs_of(equal.first(made.op))
        return load(part, [axis.var for axis in axes])

    return each_stage(outputs, lambda op: _changed(op, copied))


def _changed(op: Operation, copied: Copied) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) else None
    # a copy of few elements costs little where sizes turn out to be small
    if reduction is None or reduction.init or iterations(op, LARGE_SIZE) < LAUNCH_CYCLES:
        return None
    axes = loop_axes(op)
    if any(axis_range(axis)[0] != 0 for axis in axes):
        return None
    if any(depends_on(bound, [axis.var for axis in axes]) for bound in reduction_bounds(op)):
        return None  # a copy has no loop of another length for each result
    sources = [expand_lets(source) for source in reduction.sources]
    for axis in (*op.axis[-1:], *reduction.axes[-1:]):
        table = _copies(op, sources, axis, copied)
        if table:
            new = tuple(rewrite(s, lambda node: table.get(node_id(node))) for s in sources)  # noqa: B023
            return reduction_stage(op.name, list(op.axis), replace(reduction, sources=new))
    return None


def _copies(
    op: Operation,
    sources: Sequence[Expr],
    along: Axis,
    copied: Copied,
) -> dict[int, Expr]:
    """What vectors along an axis read of copies, by the ids of the reads; nothing where these are
    not all that keeps them from memory in order.
    """
    axes = loop_axes(op)
    variables = [axis.var for axis in axes]
    if size_of([axis_range(along)[1]], LARGE_SIZE) < MIN_LANES:
        return {}
    points = iterations(op, LARGE_SIZE)
    apart: dict[int, Expr] = {}
    is_streamed = False
    for read in (node for node in postorder(list(sources)) if is_load(node)):
        if not depends_on_any(read, along.var):
            continue
        used = [axis for axis in axes if depends_on_any(read, axis.var)]
        if stride_of(read, node_id(along.var), variables) == 1:
            is_streamed |= len(used) == len(axes)
            continue
        elements = size_of([axis_range(axis)[1] for axis in used], LARGE_SIZE)
        if elements * STORE > points or not is_safe([read], loops_of(axes)):
            return {}
        if len(used) > 1 and depends_on(read, axis_vars(op)):
            return {}
        others = [axis for axis in used if node_id(axis.var) != node_id(along.var)]
        apart[node_id(read)] = copied(read, [*others, along])
    return apart if is_streamed else {}
