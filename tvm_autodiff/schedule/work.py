"""Counts how much a kernel computes and moves, for rates that can be compared with the machine's.

It counts floating point operations of the expressions as written, and the bytes of the tensors read
and written, each once. The counts are None if sizes are symbolic or the stage is opaque.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codegen.primfunc import StageFunction
from ..expr.dtypes import itemsize
from ..expr.nodes import Axis, Tensor, dtype_of, is_float, is_load, op_name
from ..expr.rewrite import postorder
from ..graph.stage import Operation, axis_range, bodies, is_compute, reduction_of, shape_of
from .fusion.kernels import Chain, Kernel

#: float nodes that compute nothing
_FREE = frozenset(("var", "const", "load", "cast", "let", "select", "if_then_else", "likely"))


def operations(kernel: Kernel | Chain) -> int | None:
    """Floating point operations of a kernel; a function such as exp counts as one."""
    counts = [_operations(op) for op in kernel.ops]
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


def traffic(launch: StageFunction) -> int | None:
    """The bytes that a launch reads and writes, counting each tensor once."""
    sizes = [bytes_of(tensor) for tensor in (*launch.inputs, *launch.outputs)]
    return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)


def _operations(op: Operation) -> int | None:
    if not is_compute(op):
        return None
    reduction = reduction_of(op)
    if reduction is None:
        elements = _points(list(op.axis))
        return None if elements is None else elements * _arithmetic(bodies(op))
    points = _points([*op.axis, *reduction.axes])
    each = _arithmetic(reduction.sources) + _arithmetic(reduction.combiner.result)
    return None if points is None else points * each


def _arithmetic(roots: Sequence[Any]) -> int:
    return sum(
        1
        for node in postorder(list(roots))
        if is_float(node) and not is_load(node) and op_name(node) not in _FREE
    )


def _points(axes: Sequence[Axis]) -> int | None:
    return _product([axis_range(axis)[1] for axis in axes])


def bytes_of(tensor: Tensor) -> int | None:
    """The size of a tensor in bytes, or None if a dimension is symbolic."""
    count = _product(shape_of(tensor))
    return None if count is None else count * itemsize(dtype_of(tensor))


def _product(extents: Sequence[Any]) -> int | None:
    total = 1
    for extent in extents:
        if not isinstance(extent, int):
            return None
        total *= extent
    return total
