"""Schedules elementwise kernels that read along another axis than they write: transposes, packed
operands.

Some read is contiguous along an axis that is not the last one. The function goes through square
tiles: each is read in whole vectors along the axis of the read, transposed in registers, and
written in whole vectors along the last axis. Each cache line is thus touched once per tile, however
far apart the rows are.
"""

from __future__ import annotations

from ...graph.stage import axis_range
from ..cost import MIN_LANES
from ..declined import Declined
from ..kernel import Kernel
from ..machine import Machine
from ..rewrites.operands.crossed_operands import over_turned_copies
from ..rule import Made, Rest, writes_to
from .loops.crossed import crossed, transposed_nest
from .loops.nest_function import nest_function
from .loops.parallel import threads_of


def transposition(kernel: Kernel, machine: Machine) -> Made | Declined:
    """Schedule a kernel that transposes."""
    turned = over_turned_copies(kernel)
    if turned is not None:
        copies, whole = turned
        return [*map(Rest, copies), *writes_to([Rest(whole)], kernel)]
    op = kernel.root
    found = crossed(kernel, machine)
    if isinstance(found, Declined):
        return found
    extents = [axis_range(op.axis[place])[1] for place in (found.across, -1)]
    symbolic = not all(isinstance(extent, int) for extent in extents)
    # the narrowest tiles are single elements
    sides = dict.fromkeys((1, MIN_LANES, found.side) if symbolic else (found.side,))
    nests = [transposed_nest(kernel, found, side) for side in sides]
    strict = not found.has_border  # whose elements are single
    launch = nest_function(nests, kernel.outputs, threads_of(kernel, machine), strict=strict)
    return launch if isinstance(launch, Declined) else [launch]
