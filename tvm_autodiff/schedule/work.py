"""Counts how much a kernel computes and moves, for rates that can be compared with the machine's.

It counts floating point operations of the expressions as written, and the bytes of the tensors read
and written, each once. The counts are None if sizes are symbolic or the stage is opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ..codegen.stages.primfunc import StageFunction
from ..errors import UnsolvableError
from ..expr.costly import EXPENSIVE
from ..expr.dtypes import itemsize
from ..expr.integers.tried_values import tried_bounds
from ..expr.nodes import Axis, Tensor, dtype_of, is_float, is_load, op_name
from ..expr.rewrite import postorder
from ..expr.simplify import constant_bounds
from ..graph.graph import tensors_read_by, topological
from ..graph.kinds.kind import Compute, kind_of
from ..graph.kinds.loop import Loop
from ..graph.kinds.rewind import KeptLoop, Rewind, loops_in
from ..graph.stage import (
    Operation,
    axis_range,
    bodies,
    is_compute,
    is_placeholder,
    loop_axes,
    outputs_of,
    reduction_of,
    shape_of,
)
from .cost import CALL, SYMBOLIC_SIZE
from .fusion.groups import FusionGroup
from .kernel import Kernel, size_of

#: float nodes that compute nothing
_FREE = frozenset(("var", "const", "load", "cast", "let", "select", "if_then_else", "likely"))


def operations(kernel: Kernel | FusionGroup) -> int | None:
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


_UNCOUNTED = frozenset(("var", "const", "cast", "let", "reduce"))


def estimated_work(kernel: Kernel | FusionGroup) -> int:
    """The operations and reads of a kernel, counting each evaluation of a body, with what combines
    its values.
    """
    return sum(map(_work, kernel.ops))


def _work(op: Operation) -> int:
    return _WORK.get(type(kind_of(op)), _moved)(op)


def _computed(op: Operation) -> int:
    reduction = reduction_of(op)
    combined = [] if reduction is None else reduction.combiner.expanded()
    nodes = [*postorder(bodies(op)), *postorder(combined)]
    return _iterations(op) * max(1, sum(map(_cost, nodes)))


def _moved(op: Operation) -> int:
    """The reads and writes of a stage that reads its inputs and writes its outputs once."""
    return sum(size_of(shape_of(tensor)) for tensor in (*tensors_read_by(op), *outputs_of(op)))


def _repeated(op: Operation) -> int:
    """The work of loops: that of their steps, for each of them."""
    total = 0
    for loop in loops_in(kind_of(op)):
        ops = [one for one in topological(loop.step.outputs) if not is_placeholder(one)]
        total += size_of([loop.length]) * sum(map(_work, ops))
    return total


_WORK: dict[type, Callable[[Operation], int]] = {
    Compute: _computed,
    Loop: _repeated,
    KeptLoop: _repeated,
    Rewind: _repeated,
}


def _iterations(op: Operation) -> int:
    """How often a body is evaluated, at most where the extents of reduce axes vary."""
    known = {axis.var: axis_range(axis) for axis in op.axis}
    ranges = {var: span for var, span in known.items() if all(isinstance(n, int) for n in span)}

    def extent(axis: Axis) -> int:
        size = axis_range(axis)[1]
        if isinstance(size, int):
            return size
        tried = tried_bounds(size, ranges)
        if tried is not None:
            return max(0, tried[1])
        try:
            return max(0, constant_bounds(size, ranges)[1])
        except UnsolvableError:
            return SYMBOLIC_SIZE

    return prod(map(extent, loop_axes(op)))


def _cost(node: object) -> int:
    name = op_name(node)
    if is_load(node):
        return 1
    return 0 if name in _UNCOUNTED else int(CALL) if name in EXPENSIVE else 1
