"""Schedules kernels without reductions: maps, copies, stencils.

Each thread computes one element, or as many consecutive ones as fill 16 bytes if all reads are
consecutive as well and can be read and written at once. Neighbouring threads write neighbouring
elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...codegen.stages.primfunc import StageFunction, stage_function
from ...expr.dtypes import bits_of
from ...expr.nodes import Expr, dtype_of, is_float, is_load, op_name, operands
from ...expr.rewrite import postorder
from ...graph.stage import Operation, axis_range, axis_vars, bodies
from ..declined import Declined
from ..kernel import Kernel, iterations
from ..machine import Machine
from ..nest.access import strides_along
from ..primitives import schedule_of, scheduled
from .blocks.threads import bind_flat, fused, own_loops

#: what prevents computing several elements at once
_BRANCHES = frozenset(("if_then_else", "select", "reinterpret"))


def elementwise(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel that is one elementwise stage."""
    op = kernel.root
    unscheduled = stage_function([op], kernel.outputs)
    schedule, blocks = schedule_of(unscheduled)
    if len(blocks) != 1:
        return Declined("TVM makes several blocks of it")
    spatial, _ = own_loops(schedule, blocks[0], op)
    bind_flat(schedule, fused(schedule, spatial), machine, vector=_lanes(op, machine))
    return [scheduled(schedule, unscheduled)]


def _lanes(op: Operation, machine: Machine) -> int:
    """How many neighbours one thread computes: as many as fill 16 bytes, or one."""
    if op.num_outputs != 1 or not len(op.axis):
        return 1
    roots = bodies(op)
    nodes = list(postorder(roots))
    sizes = {bits_of(dtype_of(node)) for node in (*filter(is_load, nodes), roots[0])}
    if len(sizes) != 1 or any(op_name(node) in _BRANCHES for node in nodes):
        return 1
    lanes = machine.vector_bytes * 8 // sizes.pop()
    if lanes == 8:
        lanes = _lanes_of_16_bits(nodes, roots[0])
    last = op.axis[len(op.axis) - 1]
    extent = axis_range(last)[1]
    if lanes not in (2, 4, 8) or not isinstance(extent, int) or extent % lanes:
        return 1
    if iterations(op) < lanes * machine.multiprocessors * machine.block_threads:
        return 1  # more threads hide the time of a read better than wider ones
    strides = strides_along(roots, last.var, axis_vars(op))
    return lanes if strides is not None and set(strides) <= {0, 1} else 1


def _lanes_of_16_bits(nodes: Sequence[Expr], root: Expr) -> int:
    """Eight where all numbers have 16 bits; TVM writes constants of eight wider ones wrongly, and
    erf as a call for each.
    """
    if not is_float(root) or any(op_name(node) == "erf" for node in nodes):
        return 1
    wide = any(is_float(node) and bits_of(dtype_of(node)) > 16 for node in nodes)
    casts = (operands(node)[0] for node in nodes if op_name(node) == "cast" and is_float(node))
    return 4 if wide or not all(map(is_float, casts)) else 8
