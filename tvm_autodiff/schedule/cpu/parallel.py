"""When threads pay: the work below which a parallel loop costs more than it gains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..machine import Machine

#: evaluations of a body below which starting threads costs more than it saves
MIN_WORK = 16_384


def worth_threads(work: int, machine: Machine) -> bool:
    """Whether a kernel that evaluates its body `work` times should use threads."""
    return machine.threads > 1 and work >= MIN_WORK


def share_out(schedule: Any, loops: Sequence[Any], machine: Machine) -> None:
    """Run leading loops in parallel: as few as give every thread a fair share.

    The others stay loops of their own, so that no index is taken apart by divisions in them.
    """
    chosen: list[Any] = []
    count = 1
    for loop in loops:
        chosen.append(loop)
        extent = getattr(schedule.get(loop).extent, "value", None)
        count *= 1 if extent is None else int(extent)
        if extent is None or (count >= 2 * machine.threads and count % machine.threads == 0):
            break
        if count >= 16 * machine.threads:
            break
    schedule.parallel(schedule.fuse(*chosen) if len(chosen) > 1 else chosen[0])
