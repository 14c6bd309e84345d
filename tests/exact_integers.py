"""Integer expressions evaluated in Python's integers, node by node: the oracle for overflow.

Arithmetic of int32 and int64 is exact here; conversions and narrow or unsigned arithmetic wrap
round. With `checked`, a value outside of its node's type is a failure: a machine would have wrapped
it, or worse.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tests.walks import address_of, bound_values, dtype_of, in_order, name_of, parts_of

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "truncmod": lambda a, b: a - b * _FUNCTIONS["truncdiv"](a, b),
    "min": min,
    "max": max,
    "bitwise_and": operator.and_,
    "bitwise_xor": operator.xor,
    "shift_left": operator.lshift,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": operator.not_,
    "select": lambda c, a, b: a if c else b,
    "if_then_else": lambda c, a, b: a if c else b,
    "likely": lambda a: a,
    "cast": lambda a: a,
    "reinterpret": lambda a: a,
    "broadcast": lambda a: a,
    "let": lambda value, body: body,
}


def type_range(dtype: str) -> tuple[int, int]:
    """Least and largest value of an integer type."""
    bits = int(dtype.strip("uint"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def exact_values(
    expr: Any,
    variables: Mapping[Any, int],
    *,
    checked: bool = False,
    read: Callable[[Any, list[int]], Any] | None = None,
) -> list[Any]:
    """The values of all nodes of an expression, its own last; of a vector that of its last lane."""
    known = {address_of(var): value for var, value in variables.items()}
    values: dict[int, Any] = {}
    nodes = in_order(expr)
    bound = bound_values(nodes)
    for node in nodes:
        parts = [values[address_of(part)] for part in parts_of(node)]
        name, dtype = name_of(node), dtype_of(node).partition("x")[0]
        if name == "var":
            here = bound.get(address_of(node))
            value = known[address_of(node)] if here is None else values[address_of(here)]
        elif name == "const":
            value = node.value
        elif name == "ramp":
            value = parts[0] + parts[1] * (int(node.lanes) - 1)
        elif name == "load":
            assert read is not None
            value = read(node, parts)
        else:
            value = _FUNCTIONS[name](*parts)
        if dtype.startswith(("int", "uint")):
            low, high = type_range(dtype)
            if name == "cast" or dtype not in ("int32", "int64"):
                value = (int(value) - low) % (high - low + 1) + low
            if checked:
                assert low <= value <= high, f"{node} is {value}"
        values[address_of(node)] = value
    return list(values.values())
