"""What every CUDA schedule must keep: all writes by threads, blocks that a device can start.

In: a rule. Out: the same rule, which counts as not applying where one of its functions would write
from the host (TVM compiles that without an error), or asks for more threads or shared memory than
a block has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ...ir.launches import fits_device, has_unbound_write, lowered
from ..machine import Machine
from ..rule import Launches, Rule


def problem_of(func: Any, machine: Machine) -> str | None:
    """What keeps a scheduled function from running on the device, or None."""
    function = lowered(func)
    if has_unbound_write(function):
        return "a write outside of every thread"
    if not fits_device(function, machine.block_threads, machine.shared_bytes):
        return "more threads or shared memory than a block has"
    return None


def verified(rule: Callable[[Any, Machine], Launches | None]) -> Rule:
    """The rule, for kernels or for chains, held to what a device can run."""

    @wraps(rule)
    def checked(kernel: Any, machine: Machine) -> Launches | None:
        launches = rule(kernel, machine)
        if launches is None or any(problem_of(launch.func, machine) for launch in launches):
            return None
        return launches

    return checked
