"""Counts work: multiplications of an expression, points of a loop nest, and their sums.

The definitions are those of the RFC's branch, so the figures are comparable with the ones recorded
there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ..errors import UnsolvableError
from ..expr.integers.loop_points import loop_points
from ..expr.nodes import Axis, Expr, Tensor, Var, node_id, op_name, operands
from ..expr.rewrite import contains_load, depends_on, postorder, variables_of
from ..expr.simplify import constant_bounds
from .marks.value_marks import MARKS
from .stage import axis_range, shape_of

#: maps symbolic extents to their values
Put = Callable[[Any], Any]

#: nodes that cost nothing next to a multiplication
_FREE = frozenset(
    ("add", "sub", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not")
    + ("select", "if_then_else", "likely", "cast", "const", "var", "let", "load", "reduce")
    + ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right")
    + tuple(sorted(MARKS))
)


@dataclass(frozen=True)
class Cost:
    """The work and memory of tensors, as ints, or as TVM expressions for symbolic shapes.

    Attributes
    ----------
    iterations
        The sum over stages of output elements times reduce extents.
    multiplications
        The number of mul, div, mod, floordiv, floormod and intrinsic calls (except if_then_else),
        times iterations.
    memory
        The number of elements that the stages allocate, without inputs.

    Examples
    --------
    >>> Cost(iterations=4, multiplications=8, memory=4).iterations
    4
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


def multiplications_in(expr: Expr) -> int:
    """The multiplications of one evaluation; a let-bound value is counted once."""
    counts: dict[int, int] = {}
    for node in postorder(expr):
        own = 0 if op_name(node) in _FREE else 1
        counts[node_id(node)] = own + sum(counts[node_id(part)] for part in operands(node))
    return counts[node_id(expr)]


def loop_iterations(axes: Sequence[Axis], put: Put = lambda extent: extent) -> Any:
    """The points of a loop nest whose inner extents may depend on outer axes, as in adaptive
    windows.

    If there are too many points to count, every extent takes its maximum. An axis variable is
    replaced by its extent where the extent is data, or depends on axes and has no constant bound.
    """
    known, unknown = _apart(axes)
    if unknown:
        return product_of([loop_iterations(known, put), *(put(axis.var) for axis in unknown)])
    loops = [(axis.var, 0, put(axis_range(axis)[1])) for axis in axes]
    own = {node_id(var) for var, _, _ in loops}
    if not any(
        node_id(var) in own
        for _, _, extent in loops
        if not isinstance(extent, int)
        for var in variables_of(extent)
    ):
        return product_of([extent for _, _, extent in loops])
    count = loop_points(loops)
    return product_of(_largest(loops)) if count is None else count


def _apart(axes: Sequence[Axis]) -> tuple[list[Axis], list[Axis]]:
    """The axes with known extents, and those whose extents are data or depend on such axes."""
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
    """The extents; those that depend on axes take their maximum."""
    ranges: dict[Var, tuple[int, Any]] = {}
    for var, low, extent in loops:
        if not isinstance(extent, int) and any(node in ranges for node in variables_of(extent)):
            try:
                extent = constant_bounds(extent, ranges)[1]
            except UnsolvableError:
                extent = var
        ranges[var] = (low, extent)
    return [extent for _, extent in ranges.values()]


def elements_of(tensor: Tensor, put: Put) -> Any:
    """The number of elements of a tensor."""
    return product_of([put(extent) for extent in shape_of(tensor)])


def product_of(extents: Sequence[Any]) -> Any:
    """The product of extents, symbolic ones among them."""
    return reduce(operator.mul, extents, 1)
