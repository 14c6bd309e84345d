"""Decides when threads pay off, and parallelises loops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ....codegen.loop_nest import PARALLEL, Statement, bind, counter, loop, sequence
from ....expr.build import const
from ....expr.nodes import Var, binary, dtype_of
from ...machine import Machine
from ...primitives import extent_of


def share_out(schedule: Any, loops: Sequence[Any], machine: Machine) -> None:
    """Parallelise leading loops: as few as give every thread a fair share.

    The others stay separate loops, so that no index is computed by divisions in them.
    """
    chosen: list[Any] = []
    count = 1
    for each in loops:
        chosen.append(each)
        # a symbolic extent may be 1
        count *= extent_of(schedule, each) or 1
        if count >= 2 * machine.threads and count % machine.threads == 0:
            break
        if count >= 16 * machine.threads:
            break
    schedule.parallel(schedule.fuse(*chosen) if len(chosen) > 1 else chosen[0])


def shared_loops(loops: Sequence[tuple[Var, int]], body: Statement, threads: int) -> Statement:
    """``for v, count in loops: body``, with the leading loops parallelised."""
    chosen, total = 0, 1
    for _, count in loops if threads > 1 else ():
        if total >= 2 * threads and (total % threads == 0 or total >= 16 * threads):
            break
        chosen += 1
        total *= count
    for var, count in reversed(loops[chosen:]):
        body = loop(var, count, body)
    return tasks(loops[:chosen], body) if chosen else body


def tasks(loops: Sequence[tuple[Var, int]], body: Statement) -> Statement:
    """``for v, count in loops: body`` as one parallel loop, whose index is divided once for each
    task.
    """
    below = prod(count for _, count in loops)
    task = counter("task", below)
    total = below
    values: list[Statement] = []
    for var, count in loops:
        below //= count
        value = binary("floordiv", task, const(below, dtype_of(task)))
        values.append(bind(var, binary("floormod", value, const(count, dtype_of(task)))))
    return loop(task, total, sequence([*values, body]), PARALLEL)
