"""Operands of a reduction as copies that vectors along the last output axis read in order.

``Σ_r if 0 <= t - r < n then x[t - r]*w[r]  →  p[u] = if 0 <= u - 4 < n then x[u - 4];
Σ_r p[t - r + 4]*w[r]``, and ``Σ_r x[(t - r) % n]*w[r]`` and ``Σ_r x[2*t + r]*w[r] → p[r, t] =
x[2*t + r]; Σ_r p[r, t]*w[r]``
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .....expr.build import true
from .....expr.nodes import node_id, operands, tensor_key
from .....graph.graph import retarget
from .....graph.stage import reduction_stage
from ....cost import STORE
from ....kernel import Kernel
from ....nest.access import affine_forms
from ....nest.reductions.products import Operand
from ..nests import Nest
from ..packing import TileAxes, pack, packed_size


@dataclass(frozen=True)
class InOrder:
    """A kernel over copies, and the kernels of the copies."""

    kernel: Kernel
    copies: tuple[Kernel, ...]


def with_operands_in_order(kernel: Kernel, nest: Nest) -> InOrder | None:
    """The kernel with copies in place of operands that have conditions or are not read in order;
    None if one cannot be copied, or for few reads.
    """
    op = kernel.root
    loops = nest.loops(nest.extents)
    last = nest.spatial[-1]
    axes = TileAxes(last, {}, (), nest.reduced)
    reads, copies = [], []
    for number, operand in enumerate(nest.body.operands):
        plain = operand.is_load and not operand.guards
        inside = plain and nest.reads_inside(operand, nest.extents)
        if inside and _is_in_order(operand, nest):
            reads.append(operand.expr)
            continue
        if inside and STORE * packed_size(operand, loops.ranges, nest.symbolic) > nest.iterations:
            return None
        made = pack(operand, f"{op.name}_in_order{number}", loops, nest.spatial, axes, along=last)
        if made is None:
            return None
        copies.append(Kernel(made.tensor.op))
        reads.append(made.read)
    if not copies:
        return InOrder(kernel, ())
    sources = nest.body.over(reads)
    reduction = replace(nest.body.reduction, sources=sources, condition=true(), init=())
    tensors = reduction_stage(op.name, list(op.axis), reduction)
    root = tensors[0].op
    if kernel.epilogue is None:
        return InOrder(replace(kernel, root=root), tuple(copies))
    table = {tensor_key(op.output(number)): new for number, new in enumerate(tensors)}
    epilogue = retarget(kernel.epilogue, lambda tensor: table.get(tensor_key(tensor)))[0].op
    return InOrder(replace(kernel, root=root, epilogue=epilogue), tuple(copies))


def _is_in_order(operand: Operand, nest: Nest) -> bool:
    """Whether what is read goes through memory in one direction, by elements or by rows."""
    indices = operands(operand.expr)
    forms = affine_forms(list(indices), nest.variables)
    found = [forms.get(node_id(index)) for index in indices]
    along = [dict(form.terms).get(nest.spatial[-1], 0) if form else None for form in found]
    return None not in along[:-1] and (not along or along[-1] in (0, 1))
