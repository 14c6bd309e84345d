"""Schedules reductions by cooperating threads for any reducer, including user-defined ones and
tuples.

TVM cannot combine these reducers across threads. One block handles one row of the reduction and
combines in shared memory (`row_chain`). Few elements with long reductions use two functions.
"""

from __future__ import annotations

from ...codegen.primfunc import StageFunction
from ...graph.stage import axis_range, is_compute, reduction_of
from ..declined import NO_REDUCTION, NOT_COMPUTED, Declined, no_gain
from ..fusion.chains import Chain
from ..fusion.members import Member
from ..kernel import Kernel, iterations, size_of
from ..machine import Machine
from ..rule import writes_to
from .blocks.threads import WARP
from .fallback import fallback
from .reduction import parts_for_device, runs_along_rows
from .row_chain import rows_of_chain


def any_reducer(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a reduction along memory by any reducer."""
    op = kernel.root
    if not is_compute(op):
        return NOT_COMPUTED
    found = reduction_of(op)
    if found is None:
        return NO_REDUCTION
    if not runs_along_rows(op, found):
        return Declined("its reads do not run along rows of memory")
    extents = tuple(axis_range(axis)[1] for axis in op.axis)
    outputs = size_of(extents)
    if outputs < 1 or iterations(op) // outputs <= WARP:
        return no_gain("a thread for each output has little to reduce")
    split = parts_for_device(kernel, found, outputs, machine)
    if split is not None:
        partial, combined = split
        first = any_reducer(partial, machine)
        if isinstance(first, Declined):
            return first
        second = any_reducer(combined, machine) or fallback(combined, machine)
        return [*writes_to(first, partial), *writes_to(second, kernel)]
    member = Member(kernel, tuple(range(len(op.axis))))
    chain = Chain((kernel,), (member,), extents, kernel.outputs)
    launch = rows_of_chain(chain, machine)
    return launch if isinstance(launch, Declined) else [launch.launch]
