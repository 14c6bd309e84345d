"""Bounds on the parts of an index, derived from the requirement that the index is inside its
dimension.

Data and symbolic sizes may have any value, but a meaningful read restricts them: ``table[I[n] +
4]`` with ten rows implies that ``I[n]`` lies in [-4, 5].
"""

from __future__ import annotations

from collections.abc import Callable

from ..dtypes import integer_range
from ..nodes import Expr, const_value, op_name, operands
from .intervals import (
    ARITHMETIC,
    Interval,
    Intervals,
    add,
    contains,
    is_index,
    meet,
    mul,
    scalar_dtype,
    sub,
)


def demand(
    root: Expr, wanted: Interval, bounds: Intervals, is_open: Callable[[Expr], bool]
) -> None:
    """Bound the parts of an index from the interval it must lie in: ``I + 4`` in [0, 9] → I in [-4,
    5].

    Parts of loops of constant lengths alone (not `is_open`) keep what leaves int32: TVM writes
    literals of them, also for turns that no meaningful call takes.
    """
    pending = [(root, wanted)]
    while pending:
        node, target = pending.pop()
        if not is_index(node) or const_value(node) is not None:
            continue
        own = bounds.of(node)
        if not contains(integer_range("int32"), own) and not is_open(node):
            continue
        known = meet(own, target)
        pending += _demanded(node, known, bounds)
        bounds.assume(node, known)


def places_of(extent: Expr | int, known: Interval) -> Interval:
    """The places of a dimension whose extent lies in an interval: it fits its type, if not all that
    it is computed from does.
    """
    if not isinstance(extent, int):
        known = meet(known, integer_range(scalar_dtype(extent)))
    return 0, max(known[1] - 1, 0)


def _demanded(node: Expr, known: Interval, bounds: Intervals) -> list[tuple[Expr, Interval]]:
    """The intervals of the operands that follow from the interval of a node."""
    name, parts = op_name(node), operands(node)
    if name in ("likely", "reinterpret"):
        return [(parts[0], known)]
    if name == "cast" and is_index(parts[0]):
        inside = contains(integer_range(scalar_dtype(node)), bounds.of(parts[0]))
        return [(parts[0], known)] if inside else []
    if name == "ramp":
        steps = mul(bounds.of(node.stride), (0, int(const_value(node.lanes) or 1) - 1))
        return [(node.base, (known[0] - steps[0], known[1] - steps[1]))]
    if name not in ARITHMETIC:
        return []
    left, right = parts
    a, b = bounds.of(left), bounds.of(right)
    if name == "add":
        return [(left, sub(known, b)), (right, sub(known, a))]
    if name == "sub":
        return [(left, add(known, b)), (right, sub(a, known))]
    factor = const_value(right) if const_value(right) is not None else const_value(left)
    other = left if const_value(right) is not None else right
    if name == "mul" and factor:
        return [(other, _around(known, int(factor)))]
    if name == "floordiv" and const_value(right) is not None and int(const_value(right) or 0) > 0:
        c = int(const_value(right) or 1)
        return [(left, (known[0] * c, known[1] * c + c - 1))]
    most = integer_range("int64")
    if name == "min":
        return [(part, (known[0], most[1])) for part in parts]
    if name == "max":
        return [(part, (most[0], known[1])) for part in parts]
    return []


def _around(known: Interval, factor: int) -> Interval:
    """The integers x with ``factor * x`` in an interval."""
    low, high = known if factor > 0 else (-known[1], -known[0])
    return -(-low // abs(factor)), high // abs(factor)
