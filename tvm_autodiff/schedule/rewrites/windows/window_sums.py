"""Computes sums over a long domain and a window at each of its positions in two steps.

With clamped borders, no axis of such a sum is contiguous in memory, and vectors along the window
are short. The sum over a window alone, for each position, is a separate kernel, which treats
borders separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.nodes import Expr, Tensor, is_float, is_load, load, node_id, operands
from ....expr.rewrite import expand_lets, postorder, substituter
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    axis_range,
    data_axis,
    is_compute,
    reduction_of,
    reduction_stage,
)
from ...cost import STORE
from ...kernel import size_of
from ...nest.access import unit_strides
from ...nest.reductions.products import is_sum


def with_window_sums(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``s = Σ_{i, k} f(i, k) → t[i] = Σ_k f(i, k), s = Σ_i t[i]`` if k only shifts i."""
    return each_stage(outputs, _in_two_steps)


def _in_two_steps(op: Operation) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or not is_sum(reduction) or reduction.init or len(op.axis):
        return None
    source = reduction.sources[0]
    ranges = [axis_range(axis) for axis in reduction.axes]
    if not is_float(source) or not all(low == 0 and isinstance(n, int) for low, n in ranges):
        return None
    if any(unit_strides(op, axis.var) for axis in reduction.axes):
        return None
    plain = _plain_indices(source)
    places = [axis for axis in reduction.axes if node_id(axis.var) in plain]
    window = [axis for axis in reduction.axes if node_id(axis.var) not in plain]
    count = size_of([axis_range(axis)[1] for axis in window])
    if not places or count < STORE or size_of([axis_range(a)[1] for a in places]) < count:
        return None
    axes = [data_axis(axis.var.name, axis_range(axis)[1]) for axis in places]
    rename = substituter({old.var: new.var for old, new in zip(places, axes, strict=True)})
    inner = replace(reduction, axes=tuple(window), sources=(rename(source),))
    partial = reduction_stage(f"{op.name}_windows", axes, inner)[0]
    values = load(partial, [axis.var for axis in places])
    outer = replace(reduction, axes=tuple(places), sources=(values,))
    return reduction_stage(op.name, [], outer)


def _plain_indices(source: Expr) -> set[int]:
    """The variables that are themselves an index of some read."""
    return {
        node_id(index)
        for node in postorder(expand_lets(source))
        if is_load(node)
        for index in operands(node)
    }
