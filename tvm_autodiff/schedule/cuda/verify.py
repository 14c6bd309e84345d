"""What every CUDA schedule must keep: all writes by threads, blocks that a device can start.

A rule is declined where one of its functions would write from the host (TVM compiles that without
an error), asks for more threads or shared memory than a block has, or cannot be lowered by TVM.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ...codegen.passes.launches import fits_device, has_unbound_write, lowered
from ...codegen.primfunc import first_line
from ..declined import Declined
from ..machine import Machine
from ..rule import Launches, Rule


def problem_of(func: Any, machine: Machine) -> str | None:
    """What keeps a scheduled function from running on the device, or None."""
    try:
        function = lowered(func)
    except Exception as error:  # of TVM's passes, for example for a reducer that is none of TVM's
        return f"code that TVM cannot lower: {first_line(error)}"
    if has_unbound_write(function):
        return "a write outside of every thread"
    if not fits_device(function, machine.block_threads, machine.shared_bytes):
        return "more threads or shared memory than a block has"
    return None


def verified(rule: Callable[[Any, Machine], Launches | Declined]) -> Rule:
    """The rule, for kernels or for chains, held to what a device can run."""

    @wraps(rule)
    def checked(kernel: Any, machine: Machine) -> Launches | Declined:
        launches = rule(kernel, machine)
        if isinstance(launches, Declined):
            return launches
        problems = (problem_of(launch.func, machine) for launch in launches)
        problem = next((found for found in problems if found is not None), None)
        return launches if problem is None else Declined(f"its schedule has {problem}")

    return checked
