"""Blocks of neighbouring results of a reduction, as a group of kernels that run in the same loops.

    ``for i: y[i] = Σ_k f(i, k)
    →  for i in steps of 2: y[i], y[i + 1] = Σ_k f(i, k), Σ_k f(i + 1, k)``

The last block ends where the axis does, and overlaps the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from ....expr.build import add, const
from ....expr.nodes import Axis, Expr, Tensor, Var, dtype_of, load, tensor_key
from ....expr.rewrite import map_loads, substituter
from ....graph.stage import (
    Extent,
    axis_range,
    bodies,
    data_axis,
    make_stage,
    outputs_of,
    reduction_of,
    reduction_stage,
    renewed_reduction,
)
from ...fusion.groups import FusionGroup
from ...fusion.row_kernels import RowKernel
from ...kernel import Kernel


@dataclass(frozen=True)
class ResultBlocks:
    """Blocks of the results of a kernel.

    Attributes
    ----------
    group : FusionGroup
        A kernel for each result of a block, which begins at the indices of its axes; its rows are
        the blocks.
    steps : tuple of int
        The results of a block along each output axis.
    ends : tuple
        The extents of the output axes.
    places : tuple of (int, tuple of int)
        For each output of the group, the number of the kernel's output, and where it is in a block.
    """

    group: FusionGroup
    steps: tuple[int, ...]
    ends: tuple[Extent, ...]
    places: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def are_apart(self) -> bool:
        """Whether no result is in two blocks."""
        pairs = zip(self.steps, self.ends, strict=True)
        return all(step == 1 or (isinstance(end, int) and end % step == 0) for step, end in pairs)


def blocks_of(kernel: Kernel, steps: tuple[int, ...]) -> ResultBlocks:
    """Blocks of so many results along each output axis, with a kernel for each of these."""
    ends = tuple(axis_range(axis)[1] for axis in kernel.root.axis)
    offsets = list(product(*map(range, steps)))
    kernels = tuple(_result(kernel, steps, place) for place in offsets)
    rows = tuple(range(len(steps)))
    members = tuple(RowKernel(one, rows) for one in kernels)
    counts = tuple(
        end if step == 1 or not isinstance(end, int) else -(-end // step)
        for step, end in zip(steps, ends, strict=True)
    )
    outputs = [tensor for one in kernels for tensor in one.outputs]
    places = tuple(
        (number, place)
        for place, one in zip(offsets, kernels, strict=True)
        for number in range(len(one.outputs))
    )
    return ResultBlocks(FusionGroup(kernels, members, counts, outputs), steps, ends, places)


def _result(kernel: Kernel, steps: Sequence[int], place: Sequence[int]) -> Kernel:
    """A kernel of one result of each block, over the indices at which blocks begin."""
    root = kernel.root
    reduction = reduction_of(root)
    assert reduction is not None
    axes, table = _begins(root.axis, steps, place)
    made = reduction_stage(root.name, axes, renewed_reduction(reduction, table))
    first = replace(kernel, root=made[0].op, epilogue=None)
    if kernel.epilogue is None:
        return first
    sums = dict(zip(map(tensor_key, outputs_of(root)), made, strict=True))
    axes, table = _begins(kernel.epilogue.axis, steps, place)
    begin = [axis.var for axis in axes]

    def read(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        own = sums.get(tensor_key(tensor))
        return None if own is None else load(own, begin)

    moved = map(substituter(table), bodies(kernel.epilogue))
    finished = make_stage(kernel.epilogue.name, axes, [map_loads(one, read) for one in moved])
    return replace(first, epilogue=finished[0].op)


def _begins(
    axes: Sequence[Axis], steps: Sequence[int], place: Sequence[int]
) -> tuple[list[Axis], dict[Var, Expr]]:
    """Axes over the indices at which blocks begin, and the index of one of their results."""
    fresh: list[Axis] = []
    table: dict[Var, Expr] = {}
    for axis, step, offset in zip(axes, steps, place, strict=True):
        extent, dtype = axis_range(axis)[1], dtype_of(axis.var)
        whole = extent + 1 - step if isinstance(extent, int) else extent
        fresh.append(data_axis(axis.var.name, whole, dtype))
        table[axis.var] = add(fresh[-1].var, const(offset, dtype)) if offset else fresh[-1].var
    return fresh, table
