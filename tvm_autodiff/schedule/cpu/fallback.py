"""The rule that always applies: outer loops in parallel, everything else as written.

It takes any kernel, including opaque ones. Blocks that TVM's primitives reject are unchanged.
"""

from __future__ import annotations

from typing import Any

from ...codegen.stages.primfunc import RefusedStageError, StageFunction, stage_function
from ...expr.nodes import op_name
from ...expr.rewrite import postorder
from ...graph.stage import bodies, is_compute
from ..declined import Declined
from ..kernel import Kernel, too_large
from ..machine import Machine
from ..primitives import by_tvm, output_loops, schedule_of, scheduled
from ..statement_loops import statement_loops
from .loops.parallel import threads_of


def fallback(kernel: Kernel, machine: Machine) -> list[StageFunction]:
    """Schedule any kernel, correctness first."""
    if too_large(kernel, expanded=True) is not None or _has_lets(kernel):
        launch = statement_loops(kernel, machine)
        if not isinstance(launch, Declined):
            return [launch]
    try:
        unscheduled = stage_function(kernel.ops, kernel.outputs)
    except RefusedStageError:  # as of two bounds of one datum, which TVM hashes in vain
        launch = statement_loops(kernel, machine)
        if isinstance(launch, Declined):
            raise
        return [launch]
    if not is_compute(kernel.root):
        return [unscheduled]
    schedule, blocks = schedule_of(unscheduled)
    if threads_of(kernel, machine) > 1:
        for block in blocks:
            _parallelise(schedule, block)
    return [scheduled(schedule, unscheduled)]


def _has_lets(kernel: Kernel) -> bool:
    """Whether a body contains a let.

    TVM's pass for common sub-expressions may place a definition that a let uses after it, and then
    rejects its own code.
    """
    roots = [body for op in kernel.ops if is_compute(op) for body in bodies(op)]
    return any(op_name(node) == "let" for node in postorder(roots))


def _parallelise(schedule: Any, block: Any) -> None:
    spatial = output_loops(schedule, block)
    if not spatial:
        return
    # rejected, for example, if several blocks are under one nest: these loops stay serial
    by_tvm(schedule.parallel, spatial[0] if len(spatial) == 1 else schedule.fuse(*spatial[:2]))
