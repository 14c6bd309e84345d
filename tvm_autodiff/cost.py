"""What tensors cost to compute, counted from their expressions.

In: tensors. Out: iterations, multiplications and memory, summed over every stage that they need.
The definition is that of the RFC's branch, so that figures can be compared with the ones it
recorded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from .errors import InvalidArgumentError, UnsolvableError
from .expr.build import const
from .expr.integers.loop_points import loop_points
from .expr.nodes import Axis, Expr, Tensor, Var, const_value, dtype_of, node_id, op_name, operands
from .expr.rewrite import contains_load, depends_on, postorder, substituter, variables_of
from .expr.simplify import constant_bounds, simplify
from .graph.graph import tensors_read_by, topological
from .graph.kinds.prefix_scan import scan_of
from .graph.stage import (
    Operation,
    Reduction,
    axis_range,
    bodies,
    is_compute,
    is_placeholder,
    outputs_of,
    reduction_of,
    shape_of,
)
from .graph.stop_gradient import NAME as STOP

#: nodes that cost nothing next to a multiplication
_FREE = frozenset(
    ("add", "sub", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not")
    + ("select", "if_then_else", "likely", "cast", "const", "var", "let", "load", "reduce")
    + ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right")
    + (STOP,)
)


@dataclass(frozen=True)
class Cost:
    """Work and memory of tensors; ints, or TVM expressions where shapes are symbolic.

    Attributes
    ----------
    iterations
        Sum over stages of output elements times reduce extents.
    multiplications
        mul, div, mod, floordiv, floormod and intrinsic calls except if_then_else, times iterations.
    memory
        Elements allocated by the stages; inputs are not counted.
    """

    iterations: Any
    multiplications: Any
    memory: Any

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.iterations + other.iterations,
            self.multiplications + other.multiplications,
            self.memory + other.memory,
        )


def estimate_cost(
    tensors: Tensor | Sequence[Tensor], params: Mapping[Var, int] | None = None
) -> Cost:
    """Count the work of everything that some tensors need, forward stages included.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        What is computed.
    params : mapping from Var to int, optional
        Values of symbolic extents; those without a value stay symbolic in the result. An extent
        that is data, as of ``te.reduce_axis((0, length[i]))``, is the variable of its axis: the
        iterations of one row on average.

    Returns
    -------
    Cost

    Raises
    ------
    InvalidArgumentError
        Something is not a tensor.

    Examples
    --------
    >>> from tvm import te
    >>> A, B = te.placeholder((4, 5), name="A"), te.placeholder((5, 3), name="B")
    >>> k = te.reduce_axis((0, 5), name="k")
    >>> C = te.compute((4, 3), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    >>> estimate_cost(C)
    Cost(iterations=60, multiplications=60, memory=12)

    References
    ----------
    apache/tvm issue 1996 and its branch ``autodiff-dev``, whose tests recorded these three figures.
    """
    listed = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    for tensor in listed:
        if not hasattr(tensor, "op"):
            raise InvalidArgumentError(
                f"estimate_cost takes te tensors, got {type(tensor).__name__}"
            )
    put = _evaluator(params or {})
    total = Cost(0, 0, 0)
    for op in topological(listed):
        if not is_placeholder(op):
            total = total + stage_cost(op, put)
    return Cost(
        *(_plain(value) for value in (total.iterations, total.multiplications, total.memory))
    )


def stage_cost(op: Operation, put: Callable[[Any], Any] = lambda extent: extent) -> Cost:
    """The cost of one stage; `put` gives symbolic extents their values."""
    elements = _product([put(extent) for extent in shape_of(outputs_of(op)[0])])
    memory = sum(
        _product([put(extent) for extent in shape_of(tensor)]) for tensor in outputs_of(op)
    )
    scan = scan_of(op)
    if scan is not None:
        # one step an element
        return Cost(elements, elements * sum(map(multiplications_in, scan.recurrence.step)), memory)
    if not is_compute(op):
        # an opaque stage writes its result and reads its largest input
        read = [_product([put(n) for n in shape_of(tensor)]) for tensor in tensors_read_by(op)]
        sizes = [size for size in read if isinstance(size, int)]
        return Cost(elements + max(sizes, default=0), 0, memory)
    reduction = reduction_of(op)
    if reduction is None:
        return Cost(elements, elements * sum(map(multiplications_in, bodies(op))), memory)
    iterations = loop_iterations((*op.axis, *reduction.axes), put)
    return Cost(iterations, iterations * _reduction_multiplications(reduction), memory)


def _reduction_multiplications(reduction: Reduction) -> int:
    parts = [*reduction.sources, reduction.condition, *reduction.combiner.result]
    return sum(map(multiplications_in, parts))


def multiplications_in(expr: Expr) -> int:
    """Multiplications of one evaluation; what a let binds is counted once."""
    counts: dict[int, int] = {}
    for node in postorder(expr):
        own = 0 if op_name(node) in _FREE else 1
        counts[node_id(node)] = own + sum(counts[node_id(part)] for part in operands(node))
    return counts[node_id(expr)]


def loop_iterations(axes: Sequence[Axis], put: Callable[[Any], Any] = lambda extent: extent) -> Any:
    """Points of a loop nest whose inner extents may depend on outer axes: adaptive windows.

    Where such points are too many to count, every extent is at its largest. The variable of an axis
    counts as its extent where that is data, or follows axes and has no constant bound.
    """
    known, unknown = _apart(axes)
    if unknown:
        return _product([loop_iterations(known, put), *(put(axis.var) for axis in unknown)])
    loops = [(axis.var, 0, put(axis_range(axis)[1])) for axis in axes]
    own = {node_id(var) for var, _, _ in loops}
    if not any(
        node_id(var) in own
        for _, _, extent in loops
        if not isinstance(extent, int)
        for var in variables_of(extent)
    ):
        return _product([extent for _, _, extent in loops])
    count = loop_points(loops)
    return _product(_largest(loops)) if count is None else count


def _apart(axes: Sequence[Axis]) -> tuple[list[Axis], list[Axis]]:
    """The axes whose extents can be known, and those whose extents are data or follow such axes."""
    known: list[Axis] = []
    unknown: list[Axis] = []
    for axis in axes:
        extent = axis_range(axis)[1]
        follows = not isinstance(extent, int) and (
            contains_load(extent) or depends_on(extent, [other.var for other in unknown])
        )
        (unknown if follows else known).append(axis)
    return known, unknown


def _largest(loops: Sequence[tuple[Var, int, Any]]) -> list[Any]:
    """The extents, those that depend on axes at their largest."""
    ranges: dict[Var, tuple[int, Any]] = {}
    for var, low, extent in loops:
        if not isinstance(extent, int) and any(node in ranges for node in variables_of(extent)):
            try:
                extent = constant_bounds(extent, ranges)[1]
            except UnsolvableError:
                extent = var
        ranges[var] = (low, extent)
    return [extent for _, extent in ranges.values()]


def _evaluator(params: Mapping[Var, int]) -> Callable[[Any], Any]:
    def put(extent: Any) -> Any:
        if isinstance(extent, int) or not params:
            return extent
        values = {var: const(value, dtype_of(var)) for var, value in params.items()}
        return _plain(substituter(values)(extent))

    return put


def _plain(value: Any) -> Any:
    if isinstance(value, int):
        return value
    simplified = simplify(value)
    number = const_value(simplified)
    return simplified if number is None else int(number)


def _product(extents: Sequence[Any]) -> Any:
    return reduce(operator.mul, extents, 1)
