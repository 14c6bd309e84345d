"""Decides whether the rows of a loop run through all steps in blocks, one or more for each thread,
and whether its steps are shared among threads.

Threads then synchronise once instead of in each kernel of each step, and temporaries stay in the
cache of one core. What all rows read is then read by each core completely, so it must fit its
cache, or be used for much work each time.
"""

from __future__ import annotations

from ..graph.graph import topological
from ..graph.kinds.loop import Loop
from ..graph.stage import is_placeholder
from .cost import STORE, SYMBOLIC_SIZE
from .declined import Declined
from .kernel import Kernel
from .machine import Machine
from .rewrites.loops.row_blocks import RowBlocks, row_blocks
from .work import bytes_of, estimated_work


def rows_apart(loop: Loop, machine: Machine) -> RowBlocks | None:
    """The blocks of rows of a loop, or None if it runs step by step as a whole."""
    if not loop.step.carries or loop.length == 1:  # one step alone: its kernels have threads
        return None
    ops = [op for op in topological(list(loop.step.outputs)) if not is_placeholder(op)]
    length = loop.length if isinstance(loop.length, int) else SYMBOLIC_SIZE
    work = sum(estimated_work(Kernel(op)) for op in ops)
    if not machine.worth_threads(length * work):
        return None
    found = row_blocks(loop.step, machine.threads)
    if isinstance(found, Declined):
        return None
    sizes = [bytes_of(tensor) for tensor in found.shared]
    if any(size is None for size in sizes):
        return None
    shared = sum(size or 0 for size in sizes)
    near = machine.cache_bytes // 2
    far = machine.last_cache_bytes // found.count  # each block packs a separate copy
    worth = work >= found.count * shared * STORE
    return found if shared <= near or (worth and shared <= far) else None


def steps_apart(loop: Loop, machine: Machine) -> int:
    """In how many runs of steps threads take a loop without carries; 1 if its steps run in order.

    Each run has its own temporaries. Where steps do not divide evenly, kernels use the threads.
    """
    if loop.step.carries or not isinstance(loop.length, int) or not machine.is_even(loop.length):
        return 1
    ops = [op for op in topological(list(loop.step.outputs)) if not is_placeholder(op)]
    work = loop.length * sum(estimated_work(Kernel(op)) for op in ops)
    return machine.threads_for(work)


