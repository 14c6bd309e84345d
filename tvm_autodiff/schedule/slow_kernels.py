"""Reports the kernels of a program that are slower than necessary, with the reasons.

A kernel is reported if TVM rejected the code of a faster schedule, or if it runs as plain loops
although these are slower, with more than a twentieth of the estimated work of the program.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.kinds.kind import Compute, kind_of
from ..graph.kinds.prefix_scan import Scan
from ..graph.kinds.scatter_add import ScatterAdd
from .declined import Cause
from .rule import Scheduled
from .work import estimated_work

SHARE = 20  #: a kernel below one part in so many of the work cannot slow a program down much
#: operations that plain loops do in about ten times what a call from Python takes (5 µs, as
#: `benchmarks/call_overhead.py` measures it): below, a faster schedule is hardly noticed
MIN_WORK = 65_536
#: the kinds for which rules other than the last one exist
_SCHEDULED = (Compute, Scan, ScatterAdd)
SHOWN = 3  #: kernels that a warning names

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


def slow_kernels(scheduled: Sequence[Scheduled]) -> list[Scheduled]:
    """The kernels to report, the one with the most work first."""
    work = {id(one): one.runs * estimated_work(one.kernel) for one in scheduled}
    total = sum(work.values())

    def is_slow(one: Scheduled) -> bool:
        causes = {declined.cause for _, declined in one.declined}
        if Cause.REFUSED in causes:
            return True
        heavy = work[id(one)] >= MIN_WORK and work[id(one)] * SHARE > total
        # if no other rule was tried, the caller chose plain loops
        chosen = not causes or Cause.NO_GAIN in causes
        scheduled = _is_open(one) or Cause.CANNOT in causes
        return one.plain and heavy and scheduled and not chosen

    return sorted(filter(is_slow, scheduled), key=lambda one: -work[id(one)])


def notice_of(scheduled: Sequence[Scheduled]) -> str | None:
    """The text of a warning, or None if every kernel is as fast as expected.

    Parameters
    ----------
    scheduled
        All kernels of a program.
    """
    found = slow_kernels(scheduled)
    if not found:
        return None
    total = max(1, sum(one.runs * estimated_work(one.kernel) for one in scheduled))
    lines = []
    for one in found[:SHOWN]:
        share = one.runs * estimated_work(one.kernel) / total
        reasons = "; ".join(reasons_of(one)) or "no rule is made for kernels like it"
        how = "plain loops" if one.plain else f"rule {one.rule}"
        lines.append(f"stage {one.kernel.name} by {how}, {share:.0%} of the work ({reasons})")
    if len(found) > SHOWN:
        lines.append(f"{len(found) - SHOWN} more")
    return (
        f"slow schedules, right results: {'; '.join(lines)}. "
        ".profile() of the function shows what each costs"
    )
