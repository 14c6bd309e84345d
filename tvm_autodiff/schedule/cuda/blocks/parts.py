"""Decides how threads share a reduction: along rows or columns of memory, and in how many parts."""

from __future__ import annotations

from collections.abc import Sequence

from ....expr.nodes import Axis, Var, is_load, node_id
from ....expr.rewrite import postorder
from ....graph.stage import Operation, Reduction, axis_range, sources_of
from ...kernel import Kernel, iterations
from ...machine import Machine
from ...nest.access import stride_of, strides_along
from ...rewrites.sums.split_reduction import dealt_parts, parts_of
from .threads import BLOCK, LONG_ROW, WARP


def parts_for_device(
    kernel: Kernel, found: Reduction, outputs: int, machine: Machine
) -> tuple[Kernel, Kernel] | None:
    """The number of parts that occupies the multiprocessors which the outputs alone do not."""
    columns = goes_down_columns(kernel.root, found)
    threads = WARP if columns else BLOCK // 2
    part = LONG_ROW // 16 if columns else LONG_ROW // 2  # below, another launch takes longer
    filling = machine.multiprocessors * machine.block_threads // max(1, outputs * threads)
    if any(not isinstance(axis_range(axis)[1], int) for axis in found.axes):
        # one more launch costs less than a long sum that few blocks share
        return split_for_device(kernel, found.axes, filling)
    each = iterations(kernel.root) // max(1, outputs)
    return split_for_device(kernel, found.axes, min(filling, each // part))


def split_for_device(
    kernel: Kernel, axes: Sequence[Axis], wanted: int
) -> tuple[Kernel, Kernel] | None:
    """A reduction over some axes in so many parts, and their combination; None for one part."""
    extents = [axis_range(axis)[1] for axis in axes]
    if wanted < 2 or not extents:
        return None
    symbolic = next((n for n, extent in enumerate(extents) if not isinstance(extent, int)), None)
    if symbolic is not None:
        variables = [axis.var for axis in (*kernel.root.axis, *axes)]
        key = node_id(axes[symbolic].var)
        reads = [node for node in postorder(sources_of(kernel.root)) if is_load(node)]
        along = any(stride_of(read, key, variables) == 1 for read in reads)
        # neighbours in memory stay together
        return dealt_parts(kernel, symbolic, wanted, WARP if along else 1)
    lengths = [extent for extent in extents if isinstance(extent, int)]
    # an axis of which the parts are even, else the outermost one that is long enough: parts stay
    # in one piece
    chosen = [
        *(n for n, length in enumerate(lengths) if length % wanted == 0),
        *(n for n, length in enumerate(lengths) if length >= wanted),
        lengths.index(max(lengths)),
    ]
    parts = min(wanted, lengths[chosen[0]])
    return parts_of(kernel, chosen[0], parts) if parts > 1 else None


def goes_down_columns(op: Operation, found: Reduction) -> bool:
    """Whether reads touch neighbours along the last output axis, and not along a reduced one."""
    if runs_along_rows(op, found) or not len(op.axis):
        return False
    variables = [axis.var for axis in (*op.axis, *found.axes)]
    return _runs_along(found, op.axis[len(op.axis) - 1].var, variables)


def runs_along_rows(op: Operation, found: Reduction) -> bool:
    """Whether reads touch neighbours along the last reduced axis."""
    variables = [axis.var for axis in (*op.axis, *found.axes)]
    return bool(found.axes) and _runs_along(found, found.axes[-1].var, variables)


def _runs_along(found: Reduction, var: Var, variables: Sequence[Var]) -> bool:
    """Whether reads along a variable touch neighbours, with at least one in every step."""
    strides = strides_along(list(found.sources), var, variables)
    return bool(strides) and max(strides or [0]) == 1
