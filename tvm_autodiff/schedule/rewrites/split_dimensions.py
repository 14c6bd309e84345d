"""Reads a dimension of groups, as many as a call tells, as two: groups, and places in a group.

The memory layout does not change. Heads of attention that lie side by side in one dimension, and
blocks of quantised weights, are batches of matrix products this way.

    ``s[h, i, j] = Σ_{d<16} q[i, h*16 + d]*k[j, h*16 + d]  →  Σ_{d<16} q[i, h, d]*k[j, h, d]``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from ...codegen.passes.merged_axes import with_merged_parameter
from ...codegen.stages.primfunc import StageFunction
from ...expr.integers.exact_quotient import exact_quotient
from ...expr.integers.intervals import Intervals, range_intervals
from ...expr.linear_terms import linear_sum, linear_terms
from ...expr.nodes import (
    Expr,
    Tensor,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    operands,
    tensor_key,
)
from ...expr.rewrite import contains_load, expand_lets, map_loads, postorder, variables_of
from ...graph.stage import (
    Extent,
    axis_range,
    bodies,
    is_compute,
    loop_axes,
    make_stage,
    placeholder,
    reduction_of,
    reduction_stage,
    shape_of,
)
from ..kernel import Kernel

Key = tuple[int, int]


@dataclass(frozen=True)
class _View:
    """A tensor, the size of the groups in each of its dimensions that has some, and what stands for
    it.
    """

    tensor: Tensor
    sizes: Mapping[int, int]
    split: Tensor

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Which dimensions of what stands for the tensor each of its dimensions consists of."""
        found: list[tuple[int, ...]] = []
        place = 0
        for dim in range(len(shape_of(self.tensor))):
            count = 2 if dim in self.sizes else 1
            found.append(tuple(range(place, place + count)))
            place += count
        return tuple(found)


@dataclass(frozen=True)
class SplitReads:
    """A kernel over tensors with more dimensions, and the tensors that they stand for."""

    kernel: Kernel
    views: Mapping[Key, _View]

    def whole(self, launch: StageFunction) -> StageFunction:
        """A launch of the kernel over the tensors themselves."""
        func, inputs = launch.func, list(launch.inputs)
        for number, tensor in enumerate(launch.inputs):
            view = self.views.get(tensor_key(tensor))
            if view is not None:
                shape = shape_of(view.tensor)
                func = with_merged_parameter(func, number, shape, view.groups)
                inputs[number] = view.tensor
        return replace(launch, func=func, inputs=tuple(inputs))


def split_dimensions(kernel: Kernel) -> SplitReads | None:
    """The kernel over tensors whose dimensions of groups are two, or None if it reads none."""
    op, reader = kernel.root, kernel.epilogue
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None:
        return None
    inside = [expand_lets(source) for source in reduction.sources]
    after = [] if reader is None else [expand_lets(body) for body in bodies(reader)]
    axes = [*loop_axes(op), *([] if reader is None else reader.axis)]
    ranges = {axis.var: axis_range(axis) for axis in axes}
    intervals = Intervals(range_intervals(ranges))
    literal = {node_id(var) for var, (_, extent) in ranges.items() if isinstance(extent, int)}
    views = _views([*inside, *after], intervals, literal)
    if not views:
        return None

    def read(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        view = views.get(tensor_key(tensor))
        if view is None:
            return None
        found: list[Expr] = []
        for dim, index in enumerate(indices):
            size = view.sizes.get(dim)
            found += [index] if size is None else _divided(index, size)
        return load(view.split, found)

    sources = tuple(map_loads(source, read) for source in inside)
    tensors = reduction_stage(op.name, list(op.axis), replace(reduction, sources=sources))
    split = replace(kernel, root=tensors[0].op)
    if reader is not None:
        results = {tensor_key(op.output(n)): tensor for n, tensor in enumerate(tensors)}

        def result(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
            made = results.get(tensor_key(tensor))
            return read(tensor, indices) if made is None else load(made, indices)

        body = [map_loads(expr, result) for expr in after]
        split = replace(split, epilogue=make_stage(reader.name, list(reader.axis), body)[0].op)
    fixed = split.repetition.fixed
    fixed |= {tensor_key(view.split) for key, view in views.items() if key in fixed}
    split = replace(split, repetition=replace(split.repetition, fixed=fixed))
    return SplitReads(split, {tensor_key(view.split): view for view in views.values()})


def _views(
    roots: Sequence[Expr], intervals: Intervals, literal: set[int]
) -> dict[Key, _View]:
    """The tensors that have dimensions of groups, in all of their reads."""
    sizes: dict[Key, dict[int, set[int]]] = {}
    tensors: dict[Key, Tensor] = {}
    for node in postorder(list(roots)):
        if not is_load(node):
            continue
        tensor = load_tensor(node)
        tensors[tensor_key(tensor)] = tensor
        known = sizes.setdefault(tensor_key(tensor), {})
        for dim, (index, extent) in enumerate(zip(operands(node), shape_of(tensor), strict=True)):
            known.setdefault(dim, set()).add(_group_size(index, extent, intervals, literal))
    found: dict[Key, _View] = {}
    for key, dims in sizes.items():
        chosen = {dim: size for dim, (size, *others) in dims.items() if size > 1 and not others}
        if chosen:
            tensor = tensors[key]
            shape: list[Extent] = []
            for dim, extent in enumerate(shape_of(tensor)):
                count = exact_quotient(extent, chosen.get(dim, 1))
                assert count is not None
                shape += [count, chosen[dim]] if dim in chosen else [extent]
            split = placeholder(shape, dtype_of(tensor), tensor.op.name)
            found[key] = _View(tensor, chosen, split)
    return found


def _group_size(index: Expr, extent: Extent, intervals: Intervals, literal: set[int]) -> int:
    """The k of an index ``k*a + b``, 0 <= b < k, where a has a symbolic extent; 1 if it has none.
    """
    if isinstance(extent, int) or contains_load(index):
        return 1
    terms, _ = linear_terms(index)
    unknown = [
        factor
        for node, factor in terms
        if any(node_id(var) not in literal for var in variables_of(node))
    ]
    size = gcd(*unknown) if unknown else 1
    if size < 2 or exact_quotient(extent, size) is None:
        return 1
    low, high = intervals.of(_divided(index, size)[1])
    return size if low >= 0 and high < size else 1


def _divided(index: Expr, size: int) -> list[Expr]:
    """``k*a + b → a, b``"""
    terms, constant = linear_terms(index)
    high = [(node, factor // size) for node, factor in terms if factor % size == 0]
    low = [(node, factor) for node, factor in terms if factor % size]
    dtype = dtype_of(index)
    return [linear_sum(high, constant // size, dtype), linear_sum(low, constant % size, dtype)]
