"""Schedules fusion groups by blocks of threads: softmax and norms with their gradients.

One block handles one row, or a few, and combines in shared memory.
"""

from __future__ import annotations

from ..declined import Declined
from ..fusion.groups import FusionGroup
from ..machine import Machine
from ..rule import Made
from .blocks.row_launch import rows_of_group


def fused_rows(group: FusionGroup, machine: Machine) -> Made | Declined:
    """Schedule the rows of a fusion group as one function."""
    return rows_of_group(group, machine)
