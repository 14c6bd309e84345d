"""Splits long reductions of few elements into parts that run side by side.

The axis is padded to a multiple of the number of parts, and then split as in `cpu.split`:

    ``⊕_{k < n} f(k)  →  ⊕_{k < parts*size} (f(k) if k < n else identity)``
"""

from __future__ import annotations

from dataclasses import replace

from ....expr.build import compare, const, if_then_else
from ....expr.nodes import dtype_of, tensor_key
from ....expr.rewrite import substituter
from ....graph.graph import retarget
from ....graph.stage import axis_range, reduce_axis, reduction_of, reduction_stage, renew_axis
from ...cpu.split import split_reduction
from ...fusion.kernels import Kernel


def parts_of(kernel: Kernel, axis: int, parts: int) -> tuple[Kernel, Kernel]:
    """Split reduce axis number `axis`, of literal extent, into `parts` parts."""
    return split_reduction(_lengthened(kernel, axis, parts), axis, parts)


def _lengthened(kernel: Kernel, axis: int, multiple: int) -> Kernel:
    op = kernel.root
    reduction = reduction_of(op)
    assert reduction is not None
    low, extent = axis_range(reduction.axes[axis])
    assert isinstance(extent, int)
    longer = -(-extent // multiple) * multiple
    if longer == extent:
        return kernel
    reduced = [renew_axis(old) for old in reduction.axes]
    old = reduction.axes[axis]
    reduced[axis] = reduce_axis(old.var.name, longer, low, dtype_of(old.var))
    spatial = [renew_axis(each) for each in op.axis]
    table = {
        before.var: after.var
        for before, after in zip((*op.axis, *reduction.axes), (*spatial, *reduced), strict=True)
    }
    rename = substituter(table)
    var = reduced[axis].var
    inside = compare("lt", var, const(extent, dtype_of(var)) + low)
    sources = tuple(
        if_then_else(inside, rename(source), identity)
        for source, identity in zip(reduction.sources, reduction.combiner.identity, strict=True)
    )
    tensors = reduction_stage(
        op.name,
        spatial,
        replace(reduction, sources=sources, axes=tuple(reduced)),
    )
    if kernel.epilogue is None:
        return Kernel(tensors[0].op)
    moved = {tensor_key(op.output(n)): tensor for n, tensor in enumerate(tensors)}
    epilogue = retarget(kernel.epilogue, lambda tensor: moved.get(tensor_key(tensor)))
    return Kernel(tensors[0].op, epilogue[0].op)
