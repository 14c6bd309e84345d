"""Splits a reduction in two (split-K): partial results over parts of one axis, then their
combination.

Parts can run in parallel, and each has a smaller working set. The first output axis of the first
kernel is the part; the second kernel keeps the epilogue.

    ``out[s] = ⊕_k f(s, k)  →  part[p, s] = ⊕_i f(s, p*size + i),  out[s] = ⊕_p part[p, s]``

Axes of symbolic extent are dealt out in chunks: their parts have no size that is a number.
"""

from __future__ import annotations

from dataclasses import replace

from ....expr.build import add, cast, compare, const, if_then_else, mul
from ....expr.integers.exact_quotient import exact_quotient
from ....expr.nodes import (
    Axis,
    Tensor,
    binary,
    const_value,
    dtype_of,
    load,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import substituter
from ....graph.graph import retarget
from ....graph.sizes.equal_sizes import is_same
from ....graph.sizes.nonnegative import nonnegative
from ....graph.stage import (
    Extent,
    Reduction,
    axis_range,
    data_axis,
    make_stage,
    reduce_axis,
    reduction_of,
    reduction_stage,
    renew_axis,
    renewed,
)
from ...kernel import Kernel, results_of


def divisor_at_least(extent: int, wanted: int) -> int:
    """The smallest divisor of `extent` that is at least `wanted`."""
    return next(d for d in range(min(wanted, extent), extent + 1) if extent % d == 0)


def split_reduction(
    kernel: Kernel, axis: int, parts: int, *, interleaved: bool = False
) -> tuple[Kernel, Kernel]:
    """Split reduce axis number `axis`, whose extent `parts` divides.

    A part is one piece of the axis, or, `interleaved`, every element with the same remainder:
    ``part[p, s] = ⊕_i f(s, i*parts + p)``.
    """
    op = kernel.root
    reduction = reduction_of(op)
    assert reduction is not None
    low, extent = axis_range(reduction.axes[axis])
    count = exact_quotient(extent, parts)
    assert count is not None
    dtype = dtype_of(reduction.axes[axis].var)
    part = data_axis("part", parts, dtype)
    spatial, table = renewed(op.axis)
    reduced: list[Axis] = []
    for number, old in enumerate(reduction.axes):
        if number != axis:
            fresh = renew_axis(old)
            table[old.var] = fresh.var
        else:
            fresh = reduce_axis(old.var.name, count, 0, dtype)
            outer, inner, size = part.var, fresh.var, count
            if interleaved:
                outer, inner, size = fresh.var, part.var, parts
            step = const(size, dtype) if isinstance(size, int) else cast(dtype, size)
            base = add(mul(outer, step), inner)
            table[old.var] = add(base, const(low, dtype)) if isinstance(low, int) else base + low
        if not is_same(axis_range(fresh)[1], 1):
            reduced.append(fresh)
        else:
            table[old.var] = substituter({fresh.var: const(0, dtype)})(table[old.var])
    if not reduced:
        reduced = [reduce_axis("one", 1)]
    rename = substituter(table)
    partial = reduction_stage(
        f"{op.name}_part",
        [part, *spatial],
        Reduction(
            reduction.combiner,
            tuple(rename(source) for source in reduction.sources),
            tuple(reduced),
            reduction.condition,
            (),
        ),
    )
    first = replace(kernel, root=partial[0].op, epilogue=None)
    return first, _combine(kernel, partial, parts, reduction, dtype)


def dealt_parts(kernel: Kernel, axis: int, parts: int, chunk: int) -> tuple[Kernel, Kernel]:
    """Split reduce axis number `axis`, of symbolic extent: parts take chunks of it in turns.

    ``part[p, s] = ⊕_{i, c} if k < n then f(s, k) else identity, k = (i*parts + p)*chunk + c``
    """
    op = kernel.root
    reduction = reduction_of(op)
    assert reduction is not None
    low, extent = axis_range(reduction.axes[axis])
    dtype = dtype_of(reduction.axes[axis].var)
    part = data_axis("part", parts, dtype)
    spatial, table = renewed(op.axis)
    reduced, inner = renewed(reduction.axes)
    every, below = const(parts * chunk, dtype), const(chunk, dtype)
    rounds = binary("floordiv", add(extent, const(parts * chunk - 1, dtype)), every)
    outer = reduce_axis(f"{reduction.axes[axis].var.name}_chunk", rounds, 0, dtype)
    within = reduce_axis(reduction.axes[axis].var.name, chunk, 0, dtype)
    reduced[axis : axis + 1] = [outer, within]
    index = add(add(mul(outer.var, every), mul(part.var, below)), within.var)
    start = const(low, dtype) if isinstance(low, int) else low
    rename = substituter({**table, **inner, reduction.axes[axis].var: add(index, start)})
    inside = compare("lt", index, cast(dtype, extent))
    sources = tuple(
        if_then_else(inside, rename(source), identity)
        for source, identity in zip(reduction.sources, reduction.combiner.identity, strict=True)
    )
    partial = reduction_stage(
        f"{op.name}_part",
        [part, *spatial],
        replace(reduction, sources=sources, axes=tuple(reduced), init=()),
    )
    first = replace(kernel, root=partial[0].op, epilogue=None)
    return first, _combine(kernel, partial, parts, reduction, dtype)


def _combine(
    kernel: Kernel, partial: list[Tensor], parts: int, reduction: Reduction, dtype: str
) -> Kernel:
    op = kernel.root
    axes = [renew_axis(old) for old in op.axis]
    over = reduce_axis("part", parts, 0, dtype)
    indices = [over.var, *(axis.var for axis in axes)]
    combined = reduction_stage(
        f"{op.name}_sum",
        axes,
        replace(
            reduction, sources=tuple(load(tensor, indices) for tensor in partial), axes=(over,)
        ),
    )
    if kernel.epilogue is None:
        return Kernel(combined[0].op)
    table = {tensor_key(op.output(index)): tensor for index, tensor in enumerate(combined)}
    epilogue = retarget(kernel.epilogue, lambda tensor: table.get(tensor_key(tensor)))
    return Kernel(combined[0].op, epilogue[0].op)


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
    reduced, inner = renewed(reduction.axes)
    old = reduction.axes[axis]
    reduced[axis] = reduce_axis(old.var.name, longer, low, dtype_of(old.var))
    spatial, table = renewed(op.axis)
    rename = substituter(table | inner | {old.var: reduced[axis].var})
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


def _is_rest(extent: Extent, multiple: int) -> bool:
    """Whether an extent is what such a multiple has left."""
    if isinstance(extent, int) or op_name(extent) != "floormod":
        return False
    divisor = const_value(operands(extent)[1])
    return divisor is not None and divisor <= multiple


def _even(extent: Extent, multiple: int) -> tuple[Extent, Extent]:
    """The largest multiple in an extent, and what is left."""
    if isinstance(extent, int):
        return extent // multiple * multiple, extent % multiple
    divisor = const(multiple, dtype_of(extent))
    whole = mul(binary("floordiv", extent, divisor), divisor)
    return whole, binary("floormod", extent, divisor)


def even_part(kernel: Kernel, multiple: int) -> tuple[Kernel, Kernel, Kernel] | None:
    """``out[i] = ⊕_{k<257} f(i, k)  →  most[i] = ⊕_{k<256} f(i, k), rest[i] = ⊕_{k<1} f(i, k+256),
    out[i] = most[i] ⊕ rest[i]``; None where the last axis is shorter, or such a multiple.
    """
    op = kernel.root
    reduction = reduction_of(op)
    assert reduction is not None
    low, extent = axis_range(reduction.axes[-1])
    if low != 0 or exact_quotient(extent, multiple) is not None or _is_rest(extent, multiple):
        return None
    length, left = _even(nonnegative(extent), multiple)  # -1 % 16 is 15
    if length == 0:
        return None

    def part(name: str, first: Extent, count: Extent) -> list[Tensor]:
        *others, last = reduction.axes
        spatial, table = renewed(op.axis)
        reduced, inner = renewed(others)
        dtype = dtype_of(last.var)
        fresh = reduce_axis(last.var.name, count, 0, dtype)
        start = const(first, dtype) if isinstance(first, int) else cast(dtype, first)
        place = add(fresh.var, start)
        rename = substituter({**table, **inner, last.var: place})
        sources = tuple(map(rename, reduction.sources))
        plain = replace(reduction, sources=sources, axes=(*reduced, fresh), init=())
        return reduction_stage(f"{op.name}_{name}", spatial, plain)

    most, rest = part("most", 0, length), part("rest", length, left)
    last = kernel.ops[-1]
    axes = [renew_axis(axis) for axis in last.axis]
    here = [axis.var for axis in axes]
    values = [[load(tensor, here) for tensor in tensors] for tensors in (most, rest)]
    results = results_of(kernel, reduction.combiner.apply(*values), here)
    [whole, *_] = make_stage(f"{last.name}_whole", axes, results)
    return replace(kernel, root=most[0].op, epilogue=None), Kernel(rest[0].op), Kernel(whole.op)
