"""Schedules fusion groups of row reductions with TVM's own rule (dlight): softmax, norms.

Each row has a block of threads, with its reductions in shared memory. The rule takes reductions
over the same loops that end in one elementwise stage; others are left to the rules for single
kernels.
"""

from __future__ import annotations

from dataclasses import replace

from ...codegen.passes.launches import unrolled_by_cuda
from ...codegen.stages.primfunc import StageFunction, stage_function
from ...graph.stage import is_compute
from ..declined import Declined
from ..fusion.groups import FusionGroup
from ..kernel import iterations, size_of
from ..machine import Machine
from ..primitives import by_library
from .blocks.threads import LONG_ROW


def library_rows(group: FusionGroup, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a fusion group as one kernel with TVM's rule."""
    literal = all(isinstance(extent, int) and extent > 0 for extent in group.extents)
    if len(group.outputs) != 1 or not literal or not all(map(is_compute, group.ops)):
        return Declined("it has several outputs, symbolic or empty rows, or a stage that is opaque")
    rows = size_of(group.extents)
    length = max(iterations(op) for op in group.ops) // rows
    if rows < machine.multiprocessors // 4 and length > LONG_ROW:
        # parts of few long rows keep more of the device busy
        return Declined("its rows are few and long")
    unscheduled = stage_function(group.ops, group.outputs)
    launch = by_library("GeneralReduction", unscheduled, machine.target)
    if isinstance(launch, Declined):
        return launch
    return [replace(launch, func=unrolled_by_cuda(launch.func))]
