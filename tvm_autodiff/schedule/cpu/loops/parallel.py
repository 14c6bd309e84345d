"""Decides when threads pay off, and parallelises loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....codegen.flat_axes import number_of_points, unflattened
from ....codegen.loop_nest import PARALLEL, Statement, bind, loop, nested, sequence
from ....expr.build import cast, variable
from ....expr.dtypes import itemsize
from ....expr.nodes import Var, const_value, dtype_of
from ....graph.stage import Extent, axis_range, index_dtype, loop_axes, reduction_of
from ...cost import MAX_TASKS, SHORT_LOOP, enough_tasks
from ...kernel import Kernel, Repetition, iterations, size_of
from ...machine import Machine
from ...nest.reductions.commuting import commutes
from ...primitives import extent_of
from ...rewrites.sums.split_reduction import divisor_at_least, split_reduction


def threads_of(kernel: Kernel, machine: Machine, cycles: float | None = None) -> int:
    """The threads that share the output axes of a kernel; of `cycles`, or of one for each point."""
    extents = [axis_range(axis)[1] for axis in loop_axes(kernel.root)]
    work = iterations(kernel.root, machine.symbolic_size) if cycles is None else cycles
    return threads_over(extents, work, kernel.repetition, machine)


def threads_over(
    extents: Sequence[Extent], work: float, repetition: Repetition, machine: Machine
) -> int:
    """The threads that share the work of some loops. Of symbolic extents a call decides, except in
    each step of a loop, where to decide takes as long as small steps.
    """
    symbolic = any(not isinstance(extent, int) for extent in extents)
    if symbolic and repetition.times == 1:
        return machine.threads
    return machine.threads_for(work)


def share_out(schedule: Any, loops: Sequence[Any], machine: Machine) -> None:
    """Parallelise leading loops: as few as give every thread a fair share.

    The others stay separate loops, so that no index is computed by divisions in them. One loop of
    symbolic extent takes part at most, as the outermost one, and only long ones beside it: all
    divisors are literal then, and the bounds of the quotients are known.
    """
    chosen: list[Any] = []
    symbolic: list[Any] = []
    count = 1
    for each in loops:
        extent = extent_of(schedule, each)
        if symbolic and (extent is None or extent < 2 * machine.threads):
            continue  # a short loop beside a symbolic one divides its index, and occupies nobody
        (symbolic if extent is None else chosen).append(each)
        count *= extent or 1  # a symbolic extent may be 1
        if enough_tasks(count, machine.threads):
            break
    chosen = symbolic + chosen
    if symbolic:
        rest = [each for each in loops if all(each is not one for one in chosen)]
        schedule.reorder(*chosen, *rest)
    schedule.parallel(schedule.fuse(*chosen) if len(chosen) > 1 else chosen[0])


def shared_loops(
    loops: Sequence[tuple[Var, Extent]], body: Statement, threads: int
) -> Statement:
    """``for v, count in loops: body``, with the leading loops parallelised."""
    chosen, total = 0, 1
    for _, count in loops if threads > 1 else ():
        if enough_tasks(total, threads):
            break
        chosen += 1
        total *= count if isinstance(count, int) else 1  # a symbolic extent may be 1
    body = nested(loops[chosen:], body)
    return tasks(loops[:chosen], body) if chosen else body


def tasks(loops: Sequence[tuple[Var, Extent]], body: Statement) -> Statement:
    """``for v, count in loops: body`` as one parallel loop, whose index is divided once for each
    task.
    """
    symbol = next((count for _, count in loops if not isinstance(count, int)), 1)
    dtype = index_dtype(symbol)
    task, extents = variable("task", dtype), [count for _, count in loops]
    values = [
        bind(var, cast(dtype_of(var), value))
        for (var, _), value in zip(loops, unflattened(task, extents), strict=True)
    ]
    total = number_of_points(extents, dtype)
    known = const_value(total)
    return loop(task, total if known is None else int(known), sequence([*values, body]), PARALLEL)


def parts_for_threads(kernel: Kernel, machine: Machine) -> tuple[Kernel, Kernel] | None:
    """The number of parts for the threads that the output axes do not occupy."""
    found = reduction_of(kernel.root)
    root = kernel.root
    outputs = size_of([axis_range(axis)[1] for axis in root.axis], machine.symbolic_size)
    points = iterations(root, machine.symbolic_size)
    if found is None or not machine.worth_threads(points / 2):
        return None
    if machine.is_even(outputs) and outputs * SHORT_LOOP > points:
        return None
    # the results of a thread are so many lines that two threads share few
    lines = outputs * itemsize(dtype_of(root.output(0))) // machine.line_bytes
    if lines >= MAX_TASKS * machine.threads:
        return None
    # parts along an inner axis are not in the order of the outer one
    leading = found.axes if commutes(found.combiner) else found.axes[:1]
    for number, axis in enumerate(leading):
        extent = axis_range(axis)[1]
        if isinstance(extent, int) and extent >= machine.threads:
            parts = divisor_at_least(extent, machine.threads)
            if parts <= MAX_TASKS * machine.threads and parts < extent:
                return split_reduction(kernel, number, parts)
    return None
