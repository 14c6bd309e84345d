"""Binds loops of a schedule to threads, as all CUDA rules do.

A grid has a fixed number of blocks if an extent is symbolic, and each thread then takes every so
many elements. An empty array thus causes no empty launch, which CUDA rejects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....codegen.thread_loops import BLOCK, WARP
from ....graph.stage import Operation
from ...machine import Machine
from ...primitives import extent_of

LONG_ROW = BLOCK * WARP  #: elements of a row that one block should not go through alone


def fused(schedule: Any, loops: Sequence[Any]) -> Any:
    """One loop made of consecutive loops."""
    return schedule.fuse(*loops) if len(loops) > 1 else loops[0]


def own_loops(schedule: Any, block: Any, op: Operation) -> tuple[list[Any], list[Any]]:
    """The loops of a stage: over its output (at least one), and over its reduction."""
    loops = list(schedule.get_loops(block))
    spatial, reduced = loops[: len(op.axis)], loops[len(op.axis) :]
    if not spatial:
        spatial = [schedule.add_unit_loop(reduced[0] if reduced else block)]
    return spatial, reduced


def bind_flat(
    schedule: Any, loop: Any, machine: Machine, block: int = BLOCK, vector: int = 1
) -> Any:
    """Bind one loop to a grid of threads, each with `vector` neighbours.

    Returns the loop inside which a thread works on its element.
    """
    extent = extent_of(schedule, loop) or None  # an empty loop has a grid, too
    # a single element has one thread: TVM drops the bound of a copy that has no index
    threads = 1 if extent == 1 else min(block, machine.block_threads)
    if extent is not None:
        # small blocks rather than idle multiprocessors
        while threads > WARP and threads * vector * machine.multiprocessors > extent:
            threads //= 2
    wide = [vector] if vector > 1 else []
    if extent is not None:
        grid, inner, *lanes = schedule.split(loop, [None, threads, *wide])
        thread = inner
    else:
        count = 16 * machine.multiprocessors
        inner, grid, thread, *lanes = schedule.split(loop, [None, count, threads, *wide])
        schedule.reorder(grid, thread, inner, *lanes)
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    for lane in lanes:
        schedule.vectorize(lane)
    return inner
