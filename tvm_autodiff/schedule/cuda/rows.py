"""Schedules fusion groups and single reductions by blocks of threads, for any reducer.

TVM cannot combine user-defined reducers and tuples across threads. One block handles one row and
combines in shared memory.
"""

from __future__ import annotations

from ..declined import Declined
from ..fusion.groups import FusionGroup
from ..kernel import Kernel
from ..machine import Machine
from ..rule import Made
from .blocks.row_launch import rows_of_group, rows_of_kernel


def fused_rows(group: FusionGroup, machine: Machine) -> Made | Declined:
    """Schedule the rows of a fusion group as one function."""
    return rows_of_group(group, machine)


def any_reducer(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a reduction along memory by any reducer."""
    return rows_of_kernel(kernel, machine)
