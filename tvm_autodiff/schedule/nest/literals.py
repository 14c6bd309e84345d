"""Evaluates nodes over numbers, for an expression at one point of its loops."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ...expr.build import all_of, any_of, cast, const, if_then_else, negate, select
from ...expr.nodes import (
    INDEX_DTYPES,
    Expr,
    const_value,
    dtype_of,
    op_name,
    operands,
)

FLOOR_DIVISIONS = frozenset(("floordiv", "floormod"))

_FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "min": min,
    "max": max,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def over_numbers(node: Expr) -> Expr | None:
    """The value of a node over numbers: ``0 == 0 → true``, ``if true then a else b → a``."""
    name, parts = op_name(node), operands(node)
    if name in ("if_then_else", "select"):
        return (if_then_else if name == "if_then_else" else select)(*parts)
    if name in ("and", "or"):
        return all_of(parts) if name == "and" else any_of(parts)
    if name == "not" and const_value(parts[0]) is not None:
        return negate(parts[0])
    if name == "likely":
        return parts[0]
    if name == "cast" and dtype_of(node) in INDEX_DTYPES and dtype_of(parts[0]) in INDEX_DTYPES:
        return cast(dtype_of(node), parts[0])
    if name not in _FOLDED or any(dtype_of(part) not in INDEX_DTYPES for part in parts):
        return None
    left, right = map(const_value, parts)
    if name in ("add", "sub") and right == 0:
        return parts[0]
    if (name == "add" and left == 0) or (name == "mul" and left == 1):
        return parts[1]
    if name in ("mul", "floordiv") and right == 1:
        return parts[0]
    if left is None or right is None or (right == 0 and name in FLOOR_DIVISIONS):
        return None
    return const(_FOLDED[name](left, right), dtype_of(node))
