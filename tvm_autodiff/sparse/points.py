"""Evaluates index expressions for a whole box of points at once, as arrays.

The results are flattened row and column numbers. Arithmetic is int64, in which no index overflows.
Conversions to narrow types wrap as they do in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgumentError
from ..expr.dtypes import integer_range
from ..expr.nodes import (
    INDEX_DTYPES,
    Axis,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands,
)
from ..expr.rewrite import postorder
from ..graph.stage import Extent, axis_range

Array = NDArray[np.int64]
Sizes = Mapping[Var, int]


def _truncdiv(a: Array, b: Array) -> Array:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.maximum(np.abs(b), 1))


def _divided(a: Array, b: Array) -> Array:
    """Floor division whose result is arbitrary where the divisor is zero, because a guard excludes
    it.
    """
    return np.floor_divide(a, np.where(b == 0, 1, b))


def _remainder(a: Array, b: Array) -> Array:
    return np.mod(a, np.where(b == 0, 1, b))


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": _divided,
    "floormod": _remainder,
    "truncdiv": _truncdiv,
    "truncmod": lambda a, b: a - b * _truncdiv(a, b),
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "cast": lambda a: a,
    "likely": lambda a: a,
    "select": np.where,
    "if_then_else": np.where,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.invert,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
}


class Evaluator:
    """Evaluates integer expressions for arrays of values of their variables."""

    def __init__(self, sizes: Sizes) -> None:
        self._values: dict[int, Array] = {
            node_id(var): np.int64(value) for var, value in sizes.items()
        }
        self._alive: list[Expr] = list(sizes)  # ids are addresses: keep what was keyed

    def put(self, var: Var, value: Array) -> None:
        """Set the values of a variable."""
        self._values[node_id(var)] = value
        self._alive.append(var)

    def __call__(self, expr: Expr | int) -> Array:
        """The values of an expression, in a shape that broadcasts over the points."""
        if isinstance(expr, int):
            return np.int64(expr)
        for node in postorder(expr):
            key = node_id(node)
            if key not in self._values:
                self._values[key] = self._value(node)
                self._alive.append(node)
        return self._values[node_id(expr)]

    def _value(self, node: Expr) -> Array:
        name = op_name(node)
        if name == "const":
            return np.asarray(const_value(node), np.int64)
        if name == "var":
            raise InvalidArgumentError(
                f"the pattern depends on the symbolic size {node.name}: give it a value, "
                f"sizes={{{node.name}: ...}}"
            )
        function = _FUNCTIONS.get(name)
        if function is None:
            raise InvalidArgumentError(
                f"the pattern depends on {node}, and {name} of integers is not known here: use "
                'jacobian(format="dense")'
            )
        value = function(*(self._values[node_id(part)] for part in operands(node)))
        if name == "cast" and dtype_of(node) == "bool":
            return value != 0
        if is_integer(node) and (name == "cast" or dtype_of(node) not in INDEX_DTYPES):
            least, most = integer_range(dtype_of(node))
            if most < 2**63 - 1:
                value = (value - least) % (most - least + 1) + least
        return value


def extents_of(shape: Sequence[Extent], sizes: Sizes) -> tuple[int, ...]:
    """A shape as integers.

    Raises
    ------
    InvalidArgumentError
        If it depends on a size that has no value.
    """
    value = Evaluator(sizes)
    return tuple(int(value(extent)) for extent in shape)


@dataclass(frozen=True)
class Points:
    """The points of a box that satisfy conditions, in order.

    Attributes
    ----------
    box : tuple of int
        The extents of the box.
    inside : array of bool, or None
        Which points of the box count, flattened; None for all.
    rows, columns : array
        The flattened indices of each point that counts.
    """

    box: tuple[int, ...]
    inside: NDArray[np.bool_] | None
    rows: Array
    columns: Array


def points_of(
    axes: Sequence[Axis],
    rows: Sequence[Expr],
    columns: Sequence[Expr],
    conditions: Sequence[Expr],
    shapes: tuple[Sequence[int], Sequence[int]],
    sizes: Sizes,
) -> Points:
    """The points of axes where conditions hold and both indices are in bounds.

    Parameters
    ----------
    axes : sequence of Axis
        The axes. Bounds may depend on outer axes; the box has the largest extent.
    rows, columns : sequence of Expr
        Two indices in terms of the axes.
    conditions : sequence of Expr
        Conditions on indices.
    shapes : pair of sequences of int
        The shapes of the indexed tensors. Both indices are flattened.
    sizes : mapping from Var to int
        Values of symbolic sizes.
    """
    value = Evaluator(sizes)
    tests: list[NDArray[Any]] = []
    box: list[int] = []
    for number, axis in enumerate(axes):
        low, extent = (value(part) for part in axis_range(axis))
        longest = max(0, int(np.max(extent, initial=0)))
        steps = np.arange(longest, dtype=np.int64).reshape(-1, *(1,) * (len(axes) - number - 1))
        if np.ndim(extent):
            tests.append(steps < extent)
        value.put(axis.var, low + steps)
        box.append(longest)
    if 0 in box:
        nothing = np.zeros(0, np.int64)
        return Points(tuple(box), np.zeros(prod(box), bool), nothing, nothing)
    tests += [value(condition) for condition in conditions]
    flat: list[Array] = []
    for place, shape in zip((rows, columns), shapes, strict=True):
        position: NDArray[Any] = np.zeros((), np.int64)
        for index, most in zip(place, shape, strict=True):
            at = value(index)
            if np.min(at) < 0 or np.max(at) >= most:
                tests.append((at >= 0) & (at < most))
            position = position * most + at
        flat.append(np.broadcast_to(position, box).reshape(-1))
    inside: NDArray[Any] = np.ones((), bool)
    for test in tests:
        inside = inside & test
    if inside.all():
        return Points(tuple(box), None, *flat)
    mask = np.broadcast_to(inside, box).reshape(-1)
    return Points(tuple(box), mask, flat[0][mask], flat[1][mask])
