"""Matrix products by the rule that TVM brings along (dlight), for sizes that are symbols.

In: a kernel that sums the product of two plain reads, over some symbolic extent. Out: one function.
`contraction` needs literal extents to choose a tile. The rule may fail on what it does not know and
writes into what it is given: it gets a copy.
"""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir import dlight

from ...codegen.passes.launches import unrolled_by_cuda, with_nonempty_grids
from ...codegen.primfunc import StageFunction, stage_function
from ...graph.stage import axis_range, is_compute
from ..declined import NOT_COMPUTED, Declined, by_tvm, other_kind
from ..kernels import Kernel
from ..machine import Machine
from ..products import product_of


def library_matmul(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a matrix product of symbolic size."""
    if not is_compute(kernel.root):
        return NOT_COMPUTED
    found = product_of(kernel.root)
    if found is None or len(found.operands) != 2 or kernel.root.num_outputs != 1:
        return other_kind("it does not sum a product of two operands")
    axes = (*found.axes, *found.reduction.axes)
    if all(isinstance(axis_range(axis)[1], int) for axis in axes):
        return other_kind("its extents are literals")
    # it pads operands with zeros, which are neutral in a product of plain reads alone
    if not all(operand.is_load and not operand.guards for operand in found.operands):
        return Declined("an operand is no plain read")
    unscheduled = stage_function(kernel.ops, kernel.outputs)
    copy = s_tir.Schedule(unscheduled.func).mod["main"]
    with machine.target:
        schedule = by_tvm(dlight.gpu.Matmul().apply, copy, machine.target, False)
    if isinstance(schedule, Declined):
        return schedule
    if schedule is None:
        return Declined("TVM's Matmul does not take it")
    func = schedule.mod["main"].without_attr("global_symbol")
    func = with_nonempty_grids(unrolled_by_cuda(func))
    return [StageFunction(func, unscheduled.inputs, unscheduled.outputs, unscheduled.scalars)]
