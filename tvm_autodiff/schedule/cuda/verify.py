"""Checks every CUDA schedule: threads do all writes, and a device can start its blocks.

A rule is declined if one of its functions would write from the host (TVM compiles that without an
error), leaves the parts of several threads apart, needs more threads or shared memory than a block
has, or cannot be lowered by TVM.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from ...codegen.passes.launches import fits_device, has_unbound_write, leaves_threads_apart, lowered
from ...codegen.stages.primfunc import StageFunction
from ..declined import Declined
from ..machine import Machine
from ..rule import Made, Rule


def problem_of(func: Any, machine: Machine) -> str | None:
    """The reason why a scheduled function cannot run on the device, or None.

    Raises
    ------
    RefusedStageError
        If TVM cannot lower it; the rule is then declined with TVM's reason.
    """
    function = lowered(func)
    if leaves_threads_apart(func):
        return "parts of a reduction that TVM does not combine"
    if has_unbound_write(function):
        return "a write outside of every thread"
    if not fits_device(function, machine.block_threads, machine.shared_bytes):
        return "more threads or shared memory than a block has"
    return None


def verified(rule: Rule) -> Rule:
    """The rule, for kernels or fusion groups, with its result checked against the limits of a
    device.
    """

    @wraps(rule)
    def checked(kernel: Any, machine: Machine) -> Made | Declined:
        launches = rule(kernel, machine)
        if isinstance(launches, Declined):
            return launches
        own = (one for one in launches if isinstance(one, StageFunction))
        problems = (problem_of(launch.func, machine) for launch in own)
        problem = next((found for found in problems if found is not None), None)
        return launches if problem is None else Declined(f"its schedule has {problem}")

    return checked
