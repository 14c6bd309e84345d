"""Decides how threads share a reduction: along rows or columns of memory, and in how many parts."""

from __future__ import annotations

from collections.abc import Sequence

from ....expr.nodes import Var
from ....graph.stage import Operation, Reduction, axis_range
from ...kernel import Kernel, iterations
from ...machine import Machine
from ...nest.access import strides_along
from ...rewrites.sums.split_reduction import parts_of
from .threads import BLOCK, LONG_ROW, WARP


def parts_for_device(
    kernel: Kernel, found: Reduction, outputs: int, machine: Machine
) -> tuple[Kernel, Kernel] | None:
    """The number of parts that occupies the multiprocessors which the outputs alone do not."""
    columns = goes_down_columns(kernel.root, found)
    threads = WARP if columns else BLOCK // 2
    part = LONG_ROW // 16 if columns else LONG_ROW // 2  # below, another launch takes longer
    wanted = min(
        machine.multiprocessors * machine.block_threads // max(1, outputs * threads),
        iterations(kernel.root) // max(1, outputs) // part,
    )
    extents = [axis_range(axis)[1] for axis in found.axes]
    lengths = [extent if isinstance(extent, int) else 0 for extent in extents]
    if wanted < 2 or not lengths:
        return None
    # the outermost axis that is long enough: parts stay in one piece
    axis = next((n for n, length in enumerate(lengths) if length >= wanted), None)
    if axis is None:
        axis = lengths.index(max(lengths))
    parts = min(wanted, lengths[axis])
    return parts_of(kernel, axis, parts) if parts > 1 else None


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
