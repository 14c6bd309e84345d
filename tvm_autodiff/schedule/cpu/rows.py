"""Schedules fusion groups row by row, and single reductions as groups of one: sums of rows,
channels or columns, arg-reductions.

Along rows in memory it uses whole vectors of partial results and one remainder. Across rows, each
thread adds whole rows to its own sums, so that memory is read in order. Rows shorter than a few
vectors are processed several at a time. The rule declines if the rows are not plain or too few.
"""

from __future__ import annotations

from dataclasses import replace

from ...expr.dtypes import itemsize
from ...graph.stage import axis_range, reduction_of
from ..cost import LATENCY, MAX_COPIES, THREAD_CYCLES
from ..declined import Declined
from ..fusion.groups import FusionGroup
from ..fusion.row_kernels import RowKernel, contiguous_run, lone_rows, natural_rows
from ..kernel import Kernel, iterations, size_of
from ..machine import Machine
from ..nest.commuting import commutes
from ..rewrites.sums.split_reduction import split_reduction
from ..rule import Made, Rest, in_parts, writes_to
from .loops.parallel import parts_for_threads
from .loops.row_function import row_function, too_few_rows


def fused_rows(group: FusionGroup, machine: Machine) -> Made | Declined:
    """Schedule a fusion group as one function."""
    if too_few_rows(group, machine):
        return Declined("it has too few rows for the threads")
    return row_function(group, machine)


def rows(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a reduction row by row."""
    split = _several_at_a_time(kernel, machine)
    if split is not None:
        partial, combined = split
        first = rows(partial, machine)
        if not isinstance(first, Declined):
            return [*writes_to(first, partial), *writes_to([Rest(combined)], kernel)]
    member = natural_rows(kernel, certain=False) or lone_rows(kernel)
    if member is None:
        return Declined("its reads do not run along rows of memory")
    if member.across and not _few_sums(member, machine):
        return Declined("its sums over rows are too many for the first cache, or of too few rows")
    extents = tuple(axis_range(axis)[1] for axis in member.row_axes)
    group = FusionGroup((kernel,), (member,), extents, kernel.outputs)
    # with a single result for each thread, too
    even = size_of(extents, machine.symbolic_size) % machine.threads == 0
    if even or not too_few_rows(group, machine):
        return row_function(group, machine)
    parts = parts_for_threads(kernel, machine)
    if parts is None:
        return row_function(group, replace(machine, threads=1))
    partial, combined = parts
    return in_parts(rows(partial, machine), partial, combined, kernel)


def _few_sums(member: RowKernel, machine: Machine) -> bool:
    """Whether sums over rows stay in cache between rows, get enough additions, and rows are
    contiguous.
    """
    root = member.kernel.root
    outputs = size_of([axis_range(axis)[1] for axis in root.axis], machine.symbolic_size)
    added = iterations(root, machine.symbolic_size) // max(1, outputs)
    if contiguous_run(root, root.axis) != outputs:
        return False
    near = machine.first_cache_bytes // 2
    return outputs * _bytes_of(member.kernel) <= near and added >= MAX_COPIES


def _bytes_of(kernel: Kernel) -> int:
    """The size of a result, with all of its components."""
    return sum(map(itemsize, kernel.dtypes))


def _several_at_a_time(kernel: Kernel, machine: Machine) -> tuple[Kernel, Kernel] | None:
    """``out[c] = ⊕_k x[k, c]  →  part[p, c] = ⊕_o x[o*P + p, c], out[c] = ⊕_p part[p, c]``, where
    few c leave most of a vector empty, and each element would wait for the one before.
    """
    root = kernel.root
    found = reduction_of(root)
    assert found is not None
    if not len(root.axis) or not commutes(found.combiner):
        return None
    if iterations(root, machine.symbolic_size) < THREAD_CYCLES:
        return None
    width = size_of([axis_range(axis)[1] for axis in root.axis], machine.symbolic_size)
    lanes = machine.lanes(*kernel.dtypes)
    extent = axis_range(found.axes[-1])[1]
    if not isinstance(extent, int) or width >= 2 * lanes:
        return None
    if contiguous_run(root, [found.axes[-1], *root.axis]) != extent * width:
        return None
    most = machine.first_cache_bytes // 2 // _bytes_of(kernel)
    parts = [
        count
        for count in range(2, most // width + 1)
        if extent % count == 0 and count * width >= LATENCY * lanes
    ]
    if not parts:
        return None
    best = min(parts, key=lambda count: (count * width % lanes != 0, count))
    return split_reduction(kernel, len(found.axes) - 1, best, interleaved=True)
