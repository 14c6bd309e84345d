"""Writes fusion groups for blocks of threads: softmax and norms with their gradients.

A block processes one or a few rows (`row_phases`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.stages.primfunc import StageFunction, external_reads
from ....expr.nodes import always, tensor_key
from ....graph.stage import axis_range, is_compute, outputs_of
from ...declined import Declined
from ...fusion.groups import FusionGroup
from ...fusion.row_items import BLOCK, SUM, Item, items_of
from ...kernel import size_of
from ...machine import Machine
from ...rule import Made, Rest
from .row_phases import RowWriter, items_size
from .threads import BLOCK as THREADS, LONG_ROW, WARP


def rows_of_group(group: FusionGroup, machine: Machine) -> Made | Declined:
    """A fusion group by blocks of threads; its sums over the rows are left to the rules."""
    across = [member for member in group.members if member.across]
    left = tuple(member.kernel for member in across)
    kernels = [part for part in group.parts if not any(part is kernel for kernel in left)]
    ops = [op for kernel in kernels for op in kernel.ops]
    if not kernels or not all(map(is_compute, ops)):
        return Declined("all its stages are sums over the rows, or one is opaque")
    items = [item for item in items_of(group, machine) if item.kind != SUM]
    if not all(map(_is_plain, items)):
        return Declined("an extent in a row is symbolic or empty, or a reduction has a condition")
    if not _is_worth_it(group, items, machine):
        return Declined("its rows are empty, few and long, or contain long sums of several results")
    written = {tensor_key(tensor): tensor for op in ops for tensor in outputs_of(op)}
    wanted = {tensor_key(t): t for t in group.outputs if tensor_key(t) in written}
    for kernel in left:
        wanted |= {tensor_key(t): t for t in external_reads(kernel.ops) if tensor_key(t) in written}
    length = max(items_size(item.loops) for item in items)
    literal = all(isinstance(extent, int) for extent in group.extents)
    threads, together = _block(size_of(group.extents), length, machine)
    block = threads, together if literal else 1
    writer = RowWriter(items, wanted, group.extents, block, machine)
    if not writer.fits:
        return Declined("its values of a row do not fit shared memory")
    inputs = external_reads(ops)
    func = writer.function(inputs)
    launch = StageFunction(func, tuple(inputs), tuple(writer.outputs.values()))
    return [launch, *map(Rest, left)]


def _is_plain(item: Item) -> bool:
    axes = [*item.spatial, *item.reduced]
    ranges = [axis_range(axis) for axis in axes]
    literal = all(low == 0 and isinstance(extent, int) and extent > 0 for low, extent in ranges)
    found = item.reduction
    return literal and (found is None or (always(found.condition) and not found.init))


def _is_worth_it(group: FusionGroup, items: Sequence[Item], machine: Machine) -> bool:
    if any(extent == 0 for extent in group.extents if isinstance(extent, int)):
        return False
    # a thread adds up each of several results alone
    if any(item.kind == BLOCK and items_size(item.reduced) > THREADS for item in items):
        return False
    rows, length = size_of(group.extents), max(items_size(item.loops) for item in items)
    return rows >= machine.multiprocessors // 4 or length <= LONG_ROW


def _block(rows: int, length: int, machine: Machine) -> tuple[int, int]:
    """Threads along a row, and rows of a block."""
    threads, enough = WARP, machine.multiprocessors * machine.block_threads
    while threads < machine.block_threads and (
        8 * threads <= length or (threads < length and rows * threads < enough)
    ):
        threads *= 2
    together = 1
    while (
        threads * together < THREADS // 2
        and rows % (2 * together) == 0
        and rows // (2 * together) >= machine.multiprocessors
    ):
        together *= 2
    return threads, together
