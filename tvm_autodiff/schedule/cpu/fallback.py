"""The rule that always applies: outer loops in parallel, everything else as written.

In: any kernel, opaque ones included. Out: one function. Blocks that TVM's primitives refuse stay as
they are.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from ...ir.primfunc import StageFunction, stage_function
from ...ir.stage import is_compute
from ..declined import by_tvm
from ..kernels import Kernel, iterations
from ..machine import Machine
from .parallel import worth_threads


def fallback(kernel: Kernel, machine: Machine) -> list[StageFunction]:
    """Schedule any kernel: correct first."""
    unscheduled = stage_function(kernel.ops, kernel.outputs)
    if not is_compute(kernel.root):
        return [unscheduled]
    schedule = s_tir.Schedule(unscheduled.func)
    if worth_threads(iterations(kernel.root), machine):
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            _parallelise(schedule, block)
    return [
        StageFunction(
            schedule.mod["main"].without_attr("global_symbol"),
            unscheduled.inputs,
            unscheduled.outputs,
            unscheduled.scalars,
        )
    ]


def _parallelise(schedule: Any, block: Any) -> None:
    loops = schedule.get_loops(block)
    spatial = []
    for loop, kind in zip(loops, schedule.get(block).iter_vars, strict=False):
        if int(kind.iter_type) != 0:
            break
        spatial.append(loop)
    if not spatial:
        return
    # refused, for example, where several blocks lie under one nest: these loops stay serial
    by_tvm(schedule.parallel, spatial[0] if len(spatial) == 1 else schedule.fuse(*spatial[:2]))
