"""A reduction alone, written as a chain of one: sums of rows, of channels, of columns, winners.

In: a kernel that reduces, without reuse. Out: one function, or None where its rows are not plain or
are too few. Along rows in memory, whole vectors of partial results and one of what is left; where
rows are added up, each thread adds whole rows to sums of its own, so that memory is read in order.
"""

from __future__ import annotations

from ...ir.nodes import dtype_of
from ...ir.primfunc import StageFunction
from ...ir.stage import axis_range, is_compute, reduction_of
from ..chains import Chain
from ..kernel import Kernel, iterations, size_of
from ..machine import Machine
from ..members import Member, contiguous_run, natural_member
from .row_chain import row_chain

MAX_SUM_BYTES = 16_384  #: sums over rows that stay in the first cache
MIN_ROWS = 16  #: rows below which sums are better kept in registers, column by column


def rows(kernel: Kernel, machine: Machine) -> list[StageFunction] | None:
    """Schedule a reduction row by row; None for other kernels."""
    if not is_compute(kernel.root) or reduction_of(kernel.root) is None:
        return None
    member = natural_member(kernel, certain=False)
    if member is None or (member.across and not _few_sums(member, machine)):
        return None
    extents = tuple(axis_range(axis)[1] for axis in member.row_axes)
    return row_chain(Chain((kernel,), (member,), extents, kernel.outputs), machine)


def _few_sums(member: Member, machine: Machine) -> bool:
    """Whether sums over rows stay in cache from one row to the next, are added to often enough, and
    rows are read in one piece.
    """
    root = member.kernel.root
    outputs = size_of([axis_range(axis)[1] for axis in root.axis])
    added = iterations(root) // max(1, outputs)
    itemsize = machine.vector_bytes // machine.lanes(dtype_of(root.output(0)))
    if contiguous_run(root, root.axis) != outputs:
        return False
    return outputs * itemsize * root.num_outputs <= MAX_SUM_BYTES and added >= MIN_ROWS
