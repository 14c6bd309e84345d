"""Matrix products by the rule that TVM brings along (dlight), for sizes that are symbols.

In: a kernel that sums the product of two plain reads, over some symbolic extent. Out: one function.
`contraction` needs literal extents to choose a tile. The rule may fail on what it does not know and
writes into what it is given: it gets a copy, and what it raises counts as not applying.
"""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir import dlight

from ...ir.launches import unrolled_by_cuda, with_nonempty_grids
from ...ir.primfunc import StageFunction, stage_function
from ...ir.stage import axis_range
from ..kernels import Kernel
from ..machine import Machine
from ..products import product_of


def library_matmul(kernel: Kernel, machine: Machine) -> list[StageFunction] | None:
    """Schedule a matrix product of symbolic size; None for other kernels."""
    found = product_of(kernel.root)
    if found is None or len(found.operands) != 2 or kernel.root.num_outputs != 1:
        return None
    axes = (*found.axes, *found.reduction.axes)
    if all(isinstance(axis_range(axis)[1], int) for axis in axes):
        return None
    # it pads operands with zeros, which are neutral in a product of plain reads alone
    if not all(operand.is_load and not operand.guards for operand in found.operands):
        return None
    unscheduled = stage_function(kernel.ops, kernel.outputs)
    copy = s_tir.Schedule(unscheduled.func).mod["main"]
    with machine.target:
        schedule = dlight.gpu.Matmul().apply(copy, machine.target, False)
    if schedule is None:
        return None
    func = schedule.mod["main"].without_attr("global_symbol")
    func = with_nonempty_grids(unrolled_by_cuda(func))
    return [StageFunction(func, unscheduled.inputs, unscheduled.outputs, unscheduled.scalars)]
