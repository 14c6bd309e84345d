"""Copies small tensors that an elementwise kernel reads along another axis than it writes.

``y[a, d, c, b] = x[b, a]*z[d, c, a]  →  p[a, b] = x[b, a], y[a, d, c, b] = p[a, b]*z[d, c, a]``
"""

from __future__ import annotations

from ....expr.nodes import Expr, node_id
from ....expr.rewrite import expand_lets, rewrite
from ....graph.stage import axis_range, bodies, make_stage
from ...cost import LAUNCH_CYCLES, MIN_LANES, STORE
from ...kernel import Kernel, iterations, size_of, with_root
from .reads import reads_of


def over_turned_copies(kernel: Kernel) -> tuple[list[Kernel], Kernel] | None:
    """Copies, and the kernel that reads them in order along its last axis: of what it reads at a
    stride, each element so often that a copy costs little beside. None if nothing is read so.
    """
    op = kernel.root
    if not len(op.axis) or iterations(op) < LAUNCH_CYCLES:
        return None
    last, values = op.axis[-1], list(map(expand_lets, bodies(op)))
    reads = reads_of(op, values)
    if size_of([axis_range(last)[1]]) < MIN_LANES:
        return None
    apart = [
        read
        for read in reads
        if read.stride(last) not in (0, 1) and read.elements * STORE <= iterations(op)
    ]
    copies: list[Kernel] = []
    table: dict[int, Expr] = {}
    for number, read in enumerate(apart):
        copy, new_read = read.copied(op.axis, f"{op.name}_turned{number}")
        copies.append(copy)
        table[node_id(read.expr)] = new_read
    if not copies:
        return None
    new = [rewrite(value, lambda node: table.get(node_id(node))) for value in values]
    return copies, with_root(kernel, make_stage(op.name, list(op.axis), new))
