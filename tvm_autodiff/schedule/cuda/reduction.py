"""Schedules reductions by cooperating threads: sums, maxima, arg-reductions, user-defined reducers.
"""

from __future__ import annotations

from ..declined import Declined
from ..kernel import Kernel
from ..machine import Machine
from ..rule import Made
from .blocks.joint_reduction import joint_reduction


def reduction(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that reduces with more threads than outputs."""
    return joint_reduction(kernel, machine)
