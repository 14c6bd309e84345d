"""Schedules stages whose output axes are read through quotients: over the rows that these make of
an axis, by whatever rule takes them then.
"""

from __future__ import annotations

from ..declined import Declined, other_kind
from ..kernel import Kernel
from ..machine import Machine
from ..rewrites.row_axes import split_into_rows
from ..rule import Made, Rest, with_last


def split_rows(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a stage whose axes are read through quotients over rows of neighbours in memory."""
    if len(kernel.outputs) > 1 or kernel.epilogue is not None:
        return other_kind("it has several results, or an epilogue")
    split = split_into_rows(kernel)
    if split is None:
        return other_kind("no axis is read through a quotient in rows")
    return with_last([Rest(split.kernel)], lambda launch: split.merged(launch, kernel))
