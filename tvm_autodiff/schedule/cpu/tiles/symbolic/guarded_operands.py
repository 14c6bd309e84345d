"""Operands of a reduction that are zero under conditions, as copies with zeros around them.

``Σ_r if 0 <= t - r < n then x[t - r]*w[r]  →  p[u] = if 0 <= u - 4 < n then x[u - 4];
Σ_r p[t - r + 4]*w[r]``
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .....expr.build import true
from .....expr.nodes import tensor_key
from .....graph.graph import retarget
from .....graph.stage import reduction_stage
from ....kernel import Kernel
from ..nests import Nest
from ..packing import TileAxes, pack


@dataclass(frozen=True)
class Unguarded:
    """A kernel over copies, and the kernels of the copies."""

    kernel: Kernel
    copies: tuple[Kernel, ...]


def without_guards(kernel: Kernel, nest: Nest) -> Unguarded | None:
    """The kernel with copies in place of operands with guards; None if one cannot be copied."""
    op = kernel.root
    loops = nest.loops(nest.extents)
    axes = TileAxes(nest.spatial[-1], {}, (), nest.reduced)
    reads, copies = [], []
    for number, operand in enumerate(nest.body.operands):
        plain = operand.is_load and not operand.guards
        if plain and nest.reads_inside(operand, nest.extents):
            reads.append(operand.expr)
            continue
        made = pack(operand, f"{op.name}_zeros{number}", loops, nest.spatial, axes)
        if made is None:
            return None
        copies.append(Kernel(made.tensor.op))
        reads.append(made.read)
    if not copies:
        return Unguarded(kernel, ())
    sources = nest.body.over(reads, frozenset())
    reduction = replace(nest.body.reduction, sources=sources, condition=true(), init=())
    tensors = reduction_stage(op.name, list(op.axis), reduction)
    root = tensors[0].op
    if kernel.epilogue is None:
        return Unguarded(replace(kernel, root=root), tuple(copies))
    table = {tensor_key(op.output(number)): new for number, new in enumerate(tensors)}
    epilogue = retarget(kernel.epilogue, lambda tensor: table.get(tensor_key(tensor)))[0].op
    return Unguarded(replace(kernel, root=root, epilogue=epilogue), tuple(copies))
