"""Loops over time on a GPU, which have no schedule yet.

The last rule runs the whole loop in one thread, whose own memory holds the carried state.
"""

from __future__ import annotations

from ...graph.kinds.kind import kind_of
from ...graph.kinds.rewind import loops_in
from ..declined import Declined, other_kind
from ..kernel import Kernel
from ..machine import Machine


def loops(kernel: Kernel, machine: Machine) -> Declined:
    """Decline, with the reason for users of GPUs."""
    if not loops_in(kind_of(kernel.root)):
        return other_kind("it is not a loop")
    return Declined("one thread of the GPU runs the whole loop: build it for the CPU")
