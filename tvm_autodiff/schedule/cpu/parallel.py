"""When threads pay: the work below which a parallel loop costs more than it gains."""

from __future__ import annotations

from ..machine import Machine

#: evaluations of a body below which starting threads costs more than it saves
MIN_WORK = 16_384


def worth_threads(work: int, machine: Machine) -> bool:
    """Whether a kernel that evaluates its body `work` times should use threads."""
    return machine.threads > 1 and work >= MIN_WORK
