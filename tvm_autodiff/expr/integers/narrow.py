"""Computes numbers of narrow and unsigned types in int32 or int64, with masks where they may wrap.

TVM folds constants of such types as if they were unbounded, and fails when one exceeds its type:
``uint8(300)``, or ``x - 3 < 2`` of an unsigned x as ``x < 2 - -3``. Tensor elements keep their
type, since a vector of bytes has four times as many lanes as one of int32. ``bool(2)`` fails, too,
and is a comparison here.
"""

from __future__ import annotations

from ..build import cast, compare, const, like
from ..nodes import (
    COMPARISONS,
    Expr,
    binary,
    const_value,
    dtype_of,
    is_integer,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ..rewrite import postorder
from .intervals import ARITHMETIC, Interval, Intervals, contains, integer_range

#: narrow dtype → the one that holds its sums and differences
_KINDS = {
    **dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32"),
    "uint32": "int64",
}

#: types that C computes in int, so that nothing wraps before it is stored
PROMOTED = ("int8", "uint8", "int16", "uint16")

#: type and operation → a type that holds every result; to LLVM, TVM calls unsigned arithmetic of 32
#: and 64 bits free of overflow
WIDER = {
    ("uint32", "mul"): "uint64",
    ("uint64", "add"): "uint128",
    ("uint64", "sub"): "int128",
    ("uint64", "mul"): "uint128",
}


def without_narrow_types(root: Expr, intervals: Intervals) -> Expr:
    """``int32(uint8(i*9) - 3)  →  (i*9 & 255) - 3 & 255``, without masks where nothing wraps.

    Parameters
    ----------
    root : Expr
        An expression of any dtype. The dtype does not change.
    intervals : Intervals
        Intervals of its parts.

    Examples
    --------
    >>> from tvm import te, tirx
    >>> i, intervals = te.var("i"), Intervals(lambda var: (0, 99))
    >>> without_narrow_types(tirx.Cast("int32", tirx.Cast("uint8", i)), intervals)
    i
    >>> without_narrow_types(tirx.Cast("int32", tirx.Cast("uint8", i * 9)), intervals)
    i * 9 & 255
    """
    order = postorder(root)
    reading: set[int] = set()
    for node in order:
        if is_load(node) or any(node_id(part) in reading for part in operands(node)):
            reading.add(node_id(node))
    narrow = {node_id(n) for n in order if dtype_of(n) in _KINDS and node_id(n) not in reading}
    if not narrow and not any(map(_is_truth, order)):
        return root
    writer = _Writer(intervals, narrow)
    for node in order:
        writer.write(node)
    return writer.typed(root)


def _is_truth(node: Expr) -> bool:
    """Whether a node is ``bool(i)`` of an integer."""
    return op_name(node) == "cast" and dtype_of(node) == "bool" and is_integer(operands(node)[0])


class _Writer:
    """Rewrites nodes, operands first; a narrow node becomes a number of a wider type."""

    def __init__(self, intervals: Intervals, narrow: set[int]) -> None:
        self._intervals = intervals
        self._narrow = narrow
        self._numbers: dict[int, Expr] = {}

    def typed(self, node: Expr) -> Expr:
        """The rewritten form of a node, in the node's own dtype."""
        number = self._numbers[node_id(node)]
        return cast(dtype_of(node), number) if node_id(node) in self._narrow else number

    def write(self, node: Expr) -> None:
        """Rewrite a node whose operands have been rewritten."""
        key = node_id(node)
        self._numbers[key] = self._number(node) if key in self._narrow else self._other(node)

    def _other(self, node: Expr) -> Expr:
        parts, name = operands(node), op_name(node)
        narrow = [node_id(part) in self._narrow for part in parts]
        new = [self._numbers[node_id(part)] for part in parts]
        if _is_truth(node):  # bool(i) → i != 0
            return compare("ne", new[0], like(new[0], 0))
        if not any(narrow):
            same = all(node_id(a) == node_id(b) for a, b in zip(parts, new, strict=True))
            return node if same else with_operands(node, new)
        if is_load(node):
            return load(load_tensor(node), new)
        if name in COMPARISONS and all(narrow):
            return with_operands(node, new)
        if name == "cast":
            dtype, source = dtype_of(node), dtype_of(parts[0])
            fits = not is_integer(node) or contains(integer_range(dtype), integer_range(source))
            return cast(dtype, new[0] if fits else reduced(new[0], dtype))
        return with_operands(node, [self.typed(part) for part in parts])

    def _number(self, node: Expr) -> Expr:
        """The value of a narrow node in the wider dtype."""
        name, parts, dtype = op_name(node), operands(node), dtype_of(node)
        kind, value = _KINDS[dtype], const_value(node)
        if value is not None:
            return const(int(value), kind)
        if name == "cast" and (is_integer(parts[0]) or dtype_of(parts[0]) == "bool"):
            found = self._numbers[node_id(parts[0])]
            wide = "int64" if "64" in dtype_of(found) else kind
            return self._kept(cast(wide, found), dtype, self._intervals.of(parts[0]))
        numbers = [self._numbers[node_id(part)] for part in parts]
        if name in ("select", "if_then_else"):
            return with_operands(node, numbers)
        if name in ("min", "max"):
            return binary(name, *numbers)
        product = name in ("mul", "shift_left")
        if name in ARITHMETIC and not (product and dtype == "uint32"):
            # products of 16 bits need more than 31, those of 32 more than 63
            wide = "int64" if product and "16" in dtype else kind
            exact = binary(name, *(cast(wide, number) for number in numbers))
            left, right = (self._intervals.of(part) for part in parts)
            return self._kept(exact, dtype, ARITHMETIC[name](left, right))
        return cast(kind, with_operands(node, [self.typed(part) for part in parts]))

    def _kept(self, value: Expr, dtype: str, interval: Interval) -> Expr:
        """The value that the narrow type holds for a number in a given interval."""
        fits = contains(integer_range(dtype), interval)
        return cast(_KINDS[dtype], value if fits else reduced(value, dtype))


def reduced(value: Expr, dtype: str) -> Expr:
    """A 32- or 64-bit integer reduced to the values of a narrower type, as a cast does."""
    low, high = integer_range(dtype)
    mask, half = (like(value, number) for number in (high - low, -low))
    rest = binary("bitwise_and", value, mask)
    return rest if low == 0 else binary("sub", binary("bitwise_xor", rest, half), half)
