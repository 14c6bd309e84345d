"""Reads that stay inside of their tensors for some sizes of a call only.

``y[i] = x[i] + z[i], i < n`` for a z of m elements reads outside if n is larger than m: operators
of topi take axes of different symbolic sizes for equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..expr.nodes import Expr, load_tensor, operands
from ..expr.simplify import Ranges, prove
from .out_of_bounds import box_of, extremes, is_inside, loops_of_stage, sizes_of, unguarded_reads
from .stage import Extent, Operation, axis_range, is_compute, is_scan, shape_of


@dataclass(frozen=True)
class SizeLimit:
    """A stage reads the places from `least` to `most` of a dimension of `dim` elements, if its
    `loops` have steps.
    """

    stage: str
    tensor: str
    least: Extent
    most: Extent
    dim: Extent
    loops: tuple[Extent, ...]


def size_limits(ops: Sequence[Operation]) -> list[SizeLimit]:
    """What sizes have to satisfy that are at least one, and is not proved; for affine indices that
    no condition guards.
    """
    sizes = sizes_of(ops)
    if not sizes or any(map(is_scan, ops)):
        return []
    found: dict[str, SizeLimit] = {}
    for op in filter(is_compute, ops):
        for axes, roots in loops_of_stage(op):
            box = box_of(axes, sizes)
            if box is None:
                continue
            extents = [axis_range(axis)[1] for axis in axes]
            loops = tuple(extent for extent in extents if not isinstance(extent, int))
            for read in unguarded_reads(roots):
                if is_inside(read, axes):
                    continue
                tensor = load_tensor(read)
                for index, dim in zip(operands(read), shape_of(tensor), strict=True):
                    ends = extremes(index, dim, box)
                    if ends is None or all(isinstance(end, int) for end in (*ends, dim)):
                        continue
                    one = SizeLimit(str(op.name), str(tensor.op.name), *ends, dim, loops)
                    if not (_holds(ends[0] >= 0, sizes) and _holds(ends[1] < dim, sizes)):
                        found.setdefault(str(one), one)
    return list(found.values())


def _holds(condition: Expr | bool, sizes: Ranges) -> bool:
    return condition if isinstance(condition, bool) else prove(condition, sizes)
