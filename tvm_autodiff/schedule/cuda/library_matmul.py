"""Schedules matrix products of symbolic size with TVM's own rule (dlight).

The product is of two plain reads. `contraction` needs literal extents to choose a tile.
"""

from __future__ import annotations

from dataclasses import replace

from ...codegen.passes.launches import unrolled_by_cuda, with_nonempty_grids
from ...codegen.stages.primfunc import StageFunction, stage_function
from ...graph.stage import axis_range
from ..declined import Declined, other_kind
from ..kernel import Kernel
from ..machine import Machine
from ..nest.products import product_of
from ..primitives import by_library


def library_matmul(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a matrix product of symbolic size."""
    found = product_of(kernel.root)
    if found is None or len(found.operands) != 2 or kernel.root.num_outputs != 1:
        return other_kind("it does not sum a product of two operands")
    axes = (*found.axes, *found.reduction.axes)
    if all(isinstance(axis_range(axis)[1], int) for axis in axes):
        return other_kind("its extents are literals")
    # it pads operands with zeros, which are neutral in a product of plain reads alone
    if not all(operand.is_load and not operand.guards for operand in found.operands):
        return Declined("an operand is not a plain read")
    unscheduled = stage_function(kernel.ops, kernel.outputs)
    launch = by_library("Matmul", unscheduled, machine.target)
    if isinstance(launch, Declined):
        return launch
    return [replace(launch, func=with_nonempty_grids(unrolled_by_cuda(launch.func)))]
