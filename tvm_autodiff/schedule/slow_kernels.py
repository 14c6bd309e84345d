"""Reports the kernels of a program that are slower than necessary, with the reasons.

A kernel is reported if TVM rejected the code of a faster schedule, or if it runs as plain loops
although these are slower, and all such kernels take more than a twentieth of the estimated time of
the program: plain loops do one operation at a time, other schedules one for each lane of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..expr.nodes import dtype_of
from ..graph.kinds.kind import Compute, kind_of
from ..graph.kinds.prefix_scan import Scan
from ..graph.kinds.scatter_add import ScatterAdd
from .cost import THREAD_CYCLES
from .declined import Cause
from .machine import Machine
from .rule import Scheduled
from .work import estimated_work

#: the kinds for which rules other than the last one exist
_SCHEDULED = (Compute, Scan, ScatterAdd)


def reasons_of(one: Scheduled) -> tuple[str, ...]:
    """Why no faster schedule applies, for each rule; empty for a kernel that has one."""
    return tuple(
        f"{rule}: {declined.reason}"
        for rule, declined in one.declined
        if declined.cause == Cause.REFUSED
        or (one.plain and _is_open(one) and declined.cause != Cause.OTHER_KIND)
        or (one.plain and declined.cause == Cause.CANNOT)
    )


def _is_open(one: Scheduled) -> bool:
    """Whether there are rules for all kinds of stages of a kernel."""
    return all(isinstance(kind_of(op), _SCHEDULED) for op in one.kernel.ops)


def _operations(one: Scheduled, machine: Machine) -> float:
    """The estimated number of operations in turn, of one thread."""
    work = one.runs * estimated_work(one.kernel)
    vectors = machine.vector_registers and not one.plain
    lanes = machine.lanes("float32", *map(dtype_of, one.kernel.outputs)) if vectors else 1
    return work / lanes


def slow_kernels(scheduled: Sequence[Scheduled], machine: Machine) -> list[Scheduled]:
    """The kernels to report, the one that takes the most time first."""
    work = {id(one): _operations(one, machine) for one in scheduled}
    total = sum(work.values())

    def is_refused(one: Scheduled) -> bool:
        return any(declined.cause == Cause.REFUSED for _, declined in one.declined)

    def is_slow(one: Scheduled) -> bool:
        causes = {declined.cause for _, declined in one.declined}
        # ten times what a call from Python takes: below, a faster schedule is hardly noticed
        heavy = work[id(one)] >= 4 * THREAD_CYCLES
        # if no other rule was tried, the caller chose plain loops
        chosen = not causes or Cause.NO_GAIN in causes
        known = _is_open(one) or Cause.CANNOT in causes
        return one.plain and heavy and known and not chosen

    slow = [one for one in scheduled if is_slow(one)]
    if sum(work[id(one)] for one in slow) <= total / 20:
        slow = []
    found = {id(one): one for one in [*filter(is_refused, scheduled), *slow]}
    return sorted(found.values(), key=lambda one: -work[id(one)])


def notice_of(scheduled: Sequence[Scheduled], machine: Machine) -> str | None:
    """The text of a warning, or None if every kernel is as fast as expected.

    Parameters
    ----------
    scheduled
        All kernels of a program.
    machine
        What they are scheduled for.
    """
    found = slow_kernels(scheduled, machine)
    if not found:
        return None
    total = max(1.0, sum(_operations(one, machine) for one in scheduled))
    alike: dict[tuple[str, str], list[Scheduled]] = {}
    for one in found:
        how = "plain loops" if one.plain else f"rule {one.rule}"
        reasons = "; ".join(reasons_of(one)) or "no rule is made for kernels like it"
        alike.setdefault((how, reasons), []).append(one)
    lines, told = [], 0
    for (how, reasons), some in list(alike.items())[:3]:
        share = sum(_operations(one, machine) for one in some) / total
        names = list(dict.fromkeys(one.kernel.name for one in some))
        stages = f"stage{'s' if len(names) > 1 else ''} {', '.join(names)}"
        lines.append(f"{stages} by {how}, {share:.0%} of the estimated work ({reasons})")
        told += len(some)
    if len(found) > told:
        lines.append(f"{len(found) - told} more")
    return (
        f"slow schedules, right results: {'; '.join(lines)}. "
        ".profile() of the function shows what each costs"
    )
