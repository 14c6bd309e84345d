"""Schedules prefix scans: several rows at a time, as vector lanes.

The steps of a row are sequential, so vectors run across rows, whose elements are read and written
one by one; a step is mostly arithmetic. Groups of rows run in parallel if there is enough work.
"""

from __future__ import annotations

from ....codegen.stages.primfunc import StageFunction, launch_of
from ....expr.nodes import dtype_of
from ....graph.kinds.kind import kind_of
from ....graph.kinds.prefix_scan import Scan, scan_function
from ....graph.stage import shape_of
from ...declined import Declined, other_kind
from ...kernel import Kernel, size_of
from ...machine import Machine
from ..loops.parallel import threads_over


def scan(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a prefix scan."""
    found = kind_of(kernel.root)
    if not isinstance(found, Scan):
        return other_kind("it is not a scan")
    lanes = min(machine.lanes(dtype_of(var)) for var in found.recurrence.state)
    while lanes > 1 and lanes >= 2 * size_of(found.rows):
        lanes //= 2
    shape = shape_of(kernel.outputs[0])
    func = scan_function(
        kernel.root.name,
        found,
        lanes=lanes,
        threads=threads_over(shape, size_of(shape), kernel.repetition, machine) > 1,
    )
    return [launch_of(func, kernel.root, found.inputs, kernel.outputs)]
