"""Chains of row reductions by the rule that TVM brings along (dlight): softmax, norms.

In: kernels that work through the same rows. Out: one function with a block of threads for each row,
whose reductions stay in shared memory. The rule takes chains of reductions over the same loops that
end in one elementwise stage; others are left to the rules for single kernels. It gets a copy of the
function, and what it raises counts as not applying.
"""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir import dlight

from ...ir.launches import unrolled_by_cuda
from ...ir.primfunc import StageFunction, stage_function
from ...ir.stage import is_compute
from ..chains import Chain
from ..kernel import iterations, size_of
from ..machine import Machine

LONG_ROW = 8_192  #: elements of a row that one block should not go through alone


def library_chain(chain: Chain, machine: Machine) -> list[StageFunction] | None:
    """Schedule a chain as one kernel; None where TVM's rule does not apply."""
    literal = all(isinstance(extent, int) and extent > 0 for extent in chain.extents)
    if len(chain.outputs) != 1 or not literal or not all(map(is_compute, chain.ops)):
        return None
    rows = size_of(chain.extents)
    length = max(iterations(op) for op in chain.ops) // rows
    if rows < machine.multiprocessors // 4 and length > LONG_ROW:
        return None  # parts of few long rows keep more of the device busy
    unscheduled = stage_function(chain.ops, chain.outputs)
    copy = s_tir.Schedule(unscheduled.func).mod["main"]
    with machine.target:
        schedule = dlight.gpu.GeneralReduction().apply(copy, machine.target, False)
    if schedule is None:
        return None
    func = unrolled_by_cuda(schedule.mod["main"].without_attr("global_symbol"))
    return [StageFunction(func, unscheduled.inputs, unscheduled.outputs, unscheduled.scalars)]
