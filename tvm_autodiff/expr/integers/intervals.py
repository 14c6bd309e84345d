"""Interval arithmetic for integer expressions, in exact Python integers.

Arithmetic on index types is treated as integer arithmetic and may exceed the type; `widths` looks
for exactly that. Conversions and arithmetic on narrow and unsigned types wrap instead. Unknown
values are bounded by their type. The only assumption about symbolic sizes is `MOST_SYMBOLIC`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..build import NEGATED
from ..dtypes import integer_range
from ..nodes import (
    INDEX_DTYPES,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands,
)

Interval = tuple[int, int]  #: least and largest value, both inclusive

#: the largest value of a symbolic size of type int32
MOST_SYMBOLIC = 1 << 30

_BOOL: Interval = (0, 1)


def scalar_dtype(node: Any) -> str:
    """The dtype of an expression, or of one lane of a vector."""
    return dtype_of(node).partition("x")[0]


def is_index(node: Any) -> bool:
    """Whether arithmetic at this node is treated as exact integer arithmetic."""
    return scalar_dtype(node) in INDEX_DTYPES


def contains(outer: Interval, inner: Interval) -> bool:
    """Whether one interval contains another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def meet(left: Interval, right: Interval) -> Interval:
    """The intersection of two intervals, or the first one if the intersection is empty."""
    both = max(left[0], right[0]), min(left[1], right[1])
    return both if both[0] <= both[1] else left


def size_interval(dtype: str) -> Interval:
    """The possible values of a symbolic size."""
    return 0, (MOST_SYMBOLIC if dtype == "int32" else integer_range("int64")[1])


def add(a: Interval, b: Interval) -> Interval:
    """``x + y`` for x, y in two intervals."""
    return a[0] + b[0], a[1] + b[1]


def sub(a: Interval, b: Interval) -> Interval:
    """``x - y``."""
    return a[0] - b[1], a[1] - b[0]


def mul(a: Interval, b: Interval) -> Interval:
    """``x * y``."""
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def floordiv(a: Interval, b: Interval) -> Interval:
    """``x // y``, rounded down; a divisor of zero does not count."""
    divisors = [d for d in (b[0], b[1], -1, 1) if d and b[0] <= d <= b[1]]
    corners = [x // d for x in a for d in divisors] or [0]
    return min(corners), max(corners)


def floormod(a: Interval, b: Interval) -> Interval:
    """``x % y`` with the sign of y."""
    if a[0] >= 0 and b[0] > a[1]:
        return a
    if b[0] > 0:
        return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


def truncdiv(a: Interval, b: Interval) -> Interval:
    """``x / y`` rounded towards zero."""
    most = max(abs(a[0]), abs(a[1]))
    if b[0] > 0:
        return _towards_zero(a[0], b), _towards_zero(a[1], b, up=True)
    return -most, most


def _towards_zero(x: int, b: Interval, up: bool = False) -> int:
    quotients = [abs(x) // d * (1 if x >= 0 else -1) for d in b]
    return max(quotients) if up else min(quotients)


def truncmod(a: Interval, b: Interval) -> Interval:
    """``x - y * (x / y)`` with the sign of x."""
    most = max(abs(b[0]), abs(b[1]), 1) - 1
    return max(-most, min(a[0], 0)), min(most, max(a[1], 0))


def shift_left(a: Interval, b: Interval) -> Interval:
    """``x << y``, the product ``x * 2**y``; only shifts by less than 64 bits have a meaning."""
    return mul(a, (1 << min(max(b[0], 0), 63), 1 << min(max(b[1], 0), 63)))


def least(a: Interval, b: Interval) -> Interval:
    """``min(x, y)``."""
    return min(a[0], b[0]), min(a[1], b[1])


def most(a: Interval, b: Interval) -> Interval:
    """``max(x, y)``."""
    return max(a[0], b[0]), max(a[1], b[1])


def bits_below(most: int) -> Interval:
    """The values that have bits only where a number up to `most` has some."""
    return 0, (1 << most.bit_length()) - 1


def union(a: Interval, b: Interval) -> Interval:
    """The smallest interval that contains both."""
    return min(a[0], b[0]), max(a[1], b[1])


ARITHMETIC: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncmod": truncmod,
    "min": least,
    "max": most,
    "shift_left": shift_left,
}

#: comparison → whether it holds for all values in two intervals
_SURELY: Mapping[str, Callable[[Interval, Interval], bool]] = {
    "lt": lambda left, right: left[1] < right[0],
    "le": lambda left, right: left[1] <= right[0],
    "gt": lambda left, right: left[0] > right[1],
    "ge": lambda left, right: left[0] >= right[1],
}


def compared(name: str, left: Interval, right: Interval) -> bool | None:
    """Whether a comparison holds for all values in two intervals, or for none.

    Examples
    --------
    >>> [compared("lt", left, (0, 0)) for left in ((0, 255), (-3, -1), (-3, 3))]
    [False, True, None]
    """
    if name not in _SURELY:
        return None
    if _SURELY[name](left, right):
        return True
    return False if _SURELY[NEGATED[name]](left, right) else None


#: nodes that pass on an operand, and its position
_SAME = {"likely": 0, "reinterpret": 0, "let": 1}
#: conversions of C that hide an index from TVM
C_CASTS = {"int32": "int", "int64": "int64_t", "uint32": "unsigned", "uint64": "uint64_t"}


def is_c_cast(node: Expr) -> bool:
    """Whether a node is a C conversion to the type that its operand already has."""
    if op_name(node) != "call_pure_extern":
        return False
    name = getattr(operands(node)[0], "value", None)
    return name is not None and name == C_CASTS.get(scalar_dtype(node))


def exact_interval(
    node: Expr, of: Callable[[Expr], Interval], variable: Callable[[Var], Interval]
) -> Interval:
    """The interval of an integer or boolean node, computed from the intervals of its operands.

    It may exceed the type of the node if that is an index type.
    """
    name = op_name(node)
    value = const_value(node)
    if value is not None:
        return int(value), int(value)
    if not is_integer(node):
        return _BOOL
    own = integer_range(scalar_dtype(node))
    if name == "var":
        return meet(own, variable(node))
    parts = operands(node)
    found: Interval | None = None
    if name in ARITHMETIC and len(parts) == 2:
        found = ARITHMETIC[name](of(parts[0]), of(parts[1]))
    elif name in ("select", "if_then_else"):
        found = union(of(parts[1]), of(parts[2]))
    elif name == "cast" or name in _SAME or is_c_cast(node):
        inner = parts[1 if is_c_cast(node) else _SAME.get(name, 0)]
        if is_integer(inner) or scalar_dtype(inner) == "bool":
            found = of(inner)
            if not contains(own, found) and not (name == "cast" and _exact_cast(inner, node)):
                return own
    elif name == "bitwise_and":
        ends = [of(part)[1] for part in parts if of(part)[0] >= 0]
        found = (0, min(ends)) if ends else None
    elif name in ("bitwise_or", "bitwise_xor") and all(of(part)[0] >= 0 for part in parts):
        found = bits_below(max(of(part)[1] for part in parts))
    elif name == "shift_right":
        shift = const_value(parts[1])
        found = None if shift is None else floordiv(of(parts[0]), (1 << int(shift),) * 2)
    elif name == "abs":
        low, high = of(parts[0])
        found = (max(low, -high, 0), max(-low, high))
    elif name == "ramp":
        steps = mul(of(node.stride), (0, int(const_value(node.lanes) or 1) - 1))
        found = add(of(node.base), steps)
    elif name == "broadcast":
        found = of(node.value)
    if found is None:
        return own
    if contains(own, found):
        return found
    if not is_index(node):
        return own
    # no type is wider than 64 bits, so a value that exceeds 64 bits is treated as if it did not
    return meet(found, integer_range("int64"))


def _exact_cast(source: Expr, target: Expr) -> bool:
    """Whether a conversion widens index arithmetic, so that the value is exact."""
    return is_index(source) and dtype_of(target).startswith("int64")


class Intervals:
    """Intervals of expressions over variables with known ranges.

    Parameters
    ----------
    variable : callable
        Returns the interval of a variable, or that of its type if nothing is known.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> bounds = Intervals(lambda var: (0, 9_999_999))
    >>> bounds.of(i * 441), bounds.of(i * 441 % 160)
    ((0, 4409999559), (0, 159))
    """

    def __init__(self, variable: Callable[[Var], Interval]) -> None:
        self._variable = variable
        self._known: dict[int, Interval] = {}
        self._alive: list[Expr] = []

    def of(self, expr: Expr) -> Interval:
        """The interval of an integer or boolean expression."""
        known = self._known
        pending = [expr]
        while pending:
            node = pending[-1]
            if node_id(node) in known:
                pending.pop()
                continue
            missing = [part for part in _parts(node) if node_id(part) not in known]
            if missing:
                pending += missing
                continue
            known[node_id(node)] = exact_interval(
                node, lambda part: known[node_id(part)], self._variable
            )
            self._alive.append(node)
            pending.pop()
        return known[node_id(expr)]

    def assume(self, node: Expr, interval: Interval) -> None:
        """Assume an interval for a node, whatever its operands are."""
        self._known[node_id(node)] = interval
        self._alive.append(node)


def _parts(node: Expr) -> Iterable[Expr]:
    """The operands that an interval depends on: those of integer nodes, but not of reads or
    conversions.
    """
    name = op_name(node)
    if name == "ramp":
        return (node.base, node.stride)
    if name == "broadcast":
        return (node.value,)
    if name in ("load", "tensorload", "bufferload") or not is_integer(node):
        return ()
    return [
        part
        for part in operands(node)
        if hasattr(part, "ty") and (is_integer(part) or scalar_dtype(part) == "bool")
    ]


def range_intervals(
    ranges: Mapping[Var, tuple[Any, Any]], sizes: Iterable[Var] = ()
) -> Callable[[Var], Interval]:
    """The intervals of variables with ranges ``(minimum, extent)``, which may depend on each other.

    An extent of None is unbounded. Variables in `sizes`, and variables without a range that extents
    depend on, are sizes. All others may have any value.
    """
    table = {node_id(var): pair for var, pair in ranges.items()}
    known: dict[int, Interval] = {node_id(var): size_interval(dtype_of(var)) for var in sizes}
    active: set[int] = set()

    def variable(var: Var) -> Interval:
        key = node_id(var)
        if key in known:
            return known[key]
        own = integer_range(scalar_dtype(var))
        if key not in table or key in active:
            return own
        active.add(key)
        bounds = Intervals(variable)
        low, extent = table[key]
        start = _bound(low, bounds)
        if extent is None:
            known[key] = start[0], size_interval(dtype_of(var))[1]
        else:
            known[key] = start[0], max(start[0], add(start, _bound(extent, bounds))[1] - 1)
        active.discard(key)
        return known[key]

    return variable


def _bound(bound: Any, bounds: Intervals) -> Interval:
    return (bound, bound) if isinstance(bound, int) else bounds.of(bound)
