"""Orders reduced axes so that memory is read in order: the last one is contiguous in every read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.costly import is_expensive
from ....expr.nodes import Axis, Tensor, is_load, node_id
from ....expr.rewrite import contains, depends_on, postorder
from ....graph.graph import each_stage
from ....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    is_compute,
    reduction_bounds,
    reduction_of,
    reduction_stage,
)
from ...cost import MIN_LANES, SYMBOLIC_SIZE
from ...kernel import Kernel, with_root
from ...nest.access import streamed
from ...nest.inside import unit_strides_inside


def with_axes_in_order(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``s[i] = Σ_{a, k} x[i, k]*w[k, a] → s[i] = Σ_{k, a} x[i, k]*w[k, a]``, as w is contiguous
    along a and x does not depend on it; of two such axes the longer one, if the last is short, and
    of all axes for functions that take long.
    Products of reused operands stay, and reductions with vectors along their last output axis.
    """
    return each_stage(outputs, _changed)


def in_order_of_memory(kernel: Kernel) -> Kernel | None:
    """The kernel with its reduced axes in order, also if it multiplies reused operands, where no
    tile pays; None if they are.
    """
    found = _changed(kernel.root, tiled=False)
    return None if found is None else with_root(kernel, found)


def _changed(op: Operation, tiled: bool = True) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or reduction.init or len(reduction.axes) < 2:
        return None
    inner = [axis.var for axis in reduction.axes]
    if any(depends_on(bound, inner) for bound in reduction_bounds(op)):
        return None  # of an axis that follows another one
    if len(op.axis) and _is_contiguous(op, reduction, op.axis[-1]):
        return None
    *_, last = reduction.axes
    long = _length(last) >= 2 * MIN_LANES
    if long and _is_contiguous(op, reduction, last):
        return None
    if tiled and not streamed(op, reduction) and _is_reused(op, reduction):
        return None
    found = [axis for axis in reduction.axes if _is_contiguous(op, reduction, axis)]
    chosen = max(found, key=_length, default=last)
    if not long and _length(chosen) < 2 * MIN_LANES and contains(reduction.sources, is_expensive):
        chosen = max(reduction.axes, key=_length)  # functions in vectors are worth gathers
    if _length(chosen) < 2 * MIN_LANES or node_id(chosen.var) == node_id(last.var):
        return None
    rest = [axis for axis in reduction.axes if node_id(axis.var) != node_id(chosen.var)]
    return reduction_stage(op.name, list(op.axis), replace(reduction, axes=(*rest, chosen)))


def _is_contiguous(op: Operation, reduction: Reduction, axis: Axis) -> bool:
    """Whether some read is contiguous along an axis, and all others are or do not depend on it."""
    reads = [node for node in postorder(list(reduction.sources)) if is_load(node)]
    return any(depends_on(read, [axis.var]) for read in reads) and unit_strides_inside(op, axis.var)


def _is_reused(op: Operation, reduction: Reduction) -> bool:
    """Whether several results read an element: not all reads depend on all output axes."""
    reads = [node for node in postorder(list(reduction.sources)) if is_load(node)]
    return not all(depends_on(read, [axis.var]) for read in reads for axis in op.axis)


def _length(axis: Axis) -> int:
    extent = axis_range(axis)[1]
    return extent if isinstance(extent, int) else SYMBOLIC_SIZE
