"""Finds the axes at which a kernel can join the rows of a fusion group.

What the kernel and the members read of each other tells which axes those are, and without that what
both of them read. A kernel that reads outside of its row is not a member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...expr.nodes import Expr, node_id, tensor_key
from ...graph.stage import Operation, axis_range, is_compute, reduced_axes
from ..kernel import Kernel
from .row_kernels import RowKernel, checked_rows

_Vote = tuple[bool, tuple[int, ...]]


def placed_rows(kernel: Kernel, members: Sequence[RowKernel]) -> RowKernel | None:
    """The kernel as a member of a fusion group, if its reads determine which axes are the rows."""
    if not is_compute(kernel.root) or any(axis_range(a)[0] != 0 for a in kernel.root.axis):
        return None
    first, *others = list(_votes(kernel, members)) or [next(_sibling_votes(kernel, members), None)]
    if first is None or any(vote != first for vote in others):
        return None
    across, rows = first
    return checked_rows(RowKernel(kernel, rows, across))


def _votes(kernel: Kernel, members: Sequence[RowKernel]) -> Iterator[_Vote | None]:
    """The rows according to each read between the kernel and the members."""
    writers = {
        key: member
        for member in members
        for key in member.kernel.write_keys & kernel.read_keys
    }
    for op in kernel.ops if writers else ():
        for tensor, indices in kernel.reads[hash(op)]:
            writer = writers.get(tensor_key(tensor))
            if writer is not None:
                yield None if writer.across else _axes_at(op, [indices[n] for n in writer.rows])
    for member in members:
        if member.kernel.read_keys & kernel.write_keys:
            for key, places in member.read_places:
                if key in kernel.write_keys:
                    yield None if places is None else (False, places)


def _sibling_votes(kernel: Kernel, members: Sequence[RowKernel]) -> Iterator[_Vote]:
    """The rows of a kernel that reads what members read in their rows."""
    known: dict[tuple[int, int], tuple[int, ...]] = {}
    for member in members:
        if member.kernel.read_keys & kernel.read_keys:
            for key, places in member.read_places:
                if places:
                    known.setdefault(key, places)
    for op in kernel.ops if known else ():
        for tensor, indices in kernel.reads[hash(op)]:
            places = known.get(tensor_key(tensor))
            vote = None if places is None else _axes_at(op, [indices[n] for n in places])
            if vote is not None:
                yield vote


def _axes_at(op: Operation, indices: Sequence[Expr]) -> _Vote | None:
    """The axes of a stage that are indices: all output axes, or all reduced ones."""
    for across, axes in ((False, list(op.axis)), (True, list(reduced_axes(op)))):
        numbers = {node_id(axis.var): number for number, axis in enumerate(axes)}
        if all(node_id(index) in numbers for index in indices):
            return across, tuple(numbers[node_id(index)] for index in indices)
    return None
