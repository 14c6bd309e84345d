"""Schedules scatter-adds: updates added at positions that are data.

If there are enough slices of trailing axes to occupy the device, each thread owns a part of the
result and adds in order, as on the CPU, so the result is the same in every run. Otherwise each
thread adds one update atomically, and the last bits depend on the order of arrival.
"""

from __future__ import annotations

from ...codegen.scatter_threads import scatter_add_threads
from ...codegen.stages.primfunc import StageFunction, launch_of
from ...expr.nodes import dtype_of
from ...graph.kinds.kind import kind_of
from ...graph.kinds.scatter_add import ScatterAdd
from ...graph.stage import shape_of
from ..declined import Declined, other_kind
from ..kernel import Kernel, size_of
from ..machine import Machine

#: the dtypes that CUDA adds atomically on every supported device
_ATOMIC = frozenset(("float32", "float64", "int32", "uint32", "float16"))


def scatter(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a scatter-add."""
    found = kind_of(kernel.root)
    if not isinstance(found, ScatterAdd):
        return other_kind("it is not a scatter-add")
    layout, [result] = found.layout, kernel.outputs
    slices = size_of([shape_of(result)[dim] for dim in layout.trailing])
    # neighbouring threads own neighbouring elements only where the last dimension is trailing
    rows = layout.dims[-1] < 0
    busy = rows and slices >= machine.multiprocessors * machine.block_threads // 4
    func = scatter_add_threads(
        found,
        atomic=not busy and dtype_of(result) in _ATOMIC,
        grid=16 * machine.multiprocessors,
    )
    inputs = list(dict.fromkeys([*found.positions, found.updates]))
    return [launch_of(func, kernel.root, inputs, [result])]
