"""Schedules elementwise kernels that read along another axis than they write: transposes, packed
operands.

Some read is contiguous along an axis that is not the last one. The function goes through square
tiles: each is read in whole vectors along the axis of the read, transposed in registers, and
written in whole vectors along the last axis. Each cache line is thus touched once per tile, however
far apart the rows are.
"""

from __future__ import annotations

from ...codegen.stages.primfunc import StageFunction
from ...graph.stage import axis_range
from ..cost import MIN_LANES
from ..declined import Declined
from ..kernel import Kernel
from ..machine import Machine
from ..nest.nest import Nest, interchanged, nest_of, strip_mined, unrolled, vectorised
from .loops.crossed import crossed
from .loops.nest_function import nest_function
from .loops.parallel import threads_of


def transposition(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel that transposes.

    ``for i: for j: T(i, j) → for j by L: for i by L: T(i, j .. j + L - 1), .. T(i + L - 1, j ..)``
    """
    op = kernel.root
    found = crossed(kernel, machine)
    if isinstance(found, Declined):
        return found
    count = len(op.axis)
    outer = [place for place in range(count - 1) if place != found.across]
    nest = nest_of(op.axis, found.values, kernel.outputs)
    nest = interchanged(nest, [*outer, count - 1, found.across])

    def tiled(side: int) -> Nest:
        if side == 1:
            return nest
        strips = strip_mined(vectorised(nest, count - 2, side), count - 1, side)
        return unrolled(strips, [*(1 for _ in nest.loops), side])

    extents = [axis_range(op.axis[place])[1] for place in (found.across, -1)]
    symbolic = not all(isinstance(extent, int) for extent in extents)
    # the narrowest tiles are single elements
    sides = dict.fromkeys((1, MIN_LANES, found.side) if symbolic else (found.side,))
    threads = threads_of(kernel, machine)
    launch = nest_function([tiled(s) for s in sides], kernel.outputs, threads, strict=True)
    return launch if isinstance(launch, Declined) else [launch]
