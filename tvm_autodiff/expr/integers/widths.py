"""Rewrites index arithmetic so that it cannot overflow: what does not fit int32 is computed in
int64.

``i*441 % 160 → int32(int64(i)*441 % 160)`` where i may reach ten million. `intervals` bounds every
intermediate value, and only those that may leave their type are widened, up to the first result
that fits again. An index is also bounded by its dimension, because a read outside its tensor has no
meaning. All decisions about widths are made here: `bounded_stage` applies them to stages,
`function_widths` to scheduled functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm.ir import prim

from ..build import cast, const
from ..dtypes import bits_of, integer_range
from ..nodes import (
    COMPARISONS,
    Expr,
    Var,
    binary,
    call_node,
    dtype_of,
    is_integer,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    with_operands,
)
from ..rewrite import expand_lets, postorder
from .demands import demand, places_of
from .intervals import (
    ARITHMETIC,
    Interval,
    Intervals,
    compared,
    contains,
    is_c_cast,
    is_index,
    scalar_dtype,
)
from .narrow import PROMOTED, WIDER, reduced

_INT32 = integer_range("int32")
_NUMBERS = ("int", "uint", "bool", "float", "bfloat")
#: nodes whose value is exact arithmetic of their operands
EXACT = frozenset((*ARITHMETIC, "select", "if_then_else", "likely", "ramp", "broadcast", "abs"))

#: kind of read → the shape of what it reads, its indices, and the read at others
Reads = Mapping[
    str,
    tuple[
        Callable[[Expr], Sequence[Any]],
        Callable[[Expr], Sequence[Expr]],
        Callable[[Expr, list[Expr]], Expr],
    ],
]
TENSOR_READS: Reads = {
    "load": (
        lambda node: list(load_tensor(node).shape),
        operands,
        lambda node, indices: load(load_tensor(node), indices),
    )
}


class Widths:
    """Rewrites expressions so that no index arithmetic leaves its type.

    Parameters
    ----------
    variable : callable
        The interval of a variable.
    reads : mapping
        The supported kinds of reads.
    is_open : callable
        Whether the interval of a variable depends on more than constants.
    hide : callable, optional
        Applied to a widened index, to hide it from TVM's index simplification.
    explicit : bool
        Whether wrapping arithmetic is rewritten so that it does not wrap. TVM treats all arithmetic
        as exact.
    renamed : mapping, optional
        From ids of int32 variables to the int64 variables that replace them.
    wide : bool
        Whether widened values stay wide, as in indices of tensors with more than 2**31 elements.
    in_c : bool
        Whether the code becomes C, which computes narrow types in int, and lets unsigned ones wrap.
    most_bits : int
        The number of bits of the widest arithmetic: 128 only in what LLVM gets next.

    Examples
    --------
    >>> from tvm import te
    >>> i = te.var("i")
    >>> Widths(lambda var: (0, 99)).index(i * 441 % 160, 160)
    i * 441 % 160
    >>> Widths(lambda var: (0, 9_999_999)).index(i * 441 % 160, 160)
    T.Cast("int32", T.Cast("int64", i) * T.int64(441) % T.int64(160))
    """

    def __init__(
        self,
        variable: Callable[[Var], Interval],
        reads: Reads = TENSOR_READS,
        *,
        is_open: Callable[[Var], bool] = lambda var: False,
        hide: Callable[[Expr], Expr] | None = None,
        renamed: Mapping[int, Var] | None = None,
        wide: bool = False,
        explicit: bool = False,
        in_c: bool = False,
        most_bits: int = 64,
    ) -> None:
        self._variable = variable
        self._reads = reads
        self._open = is_open
        self._hide = hide
        self._renamed = renamed or {}
        self._wide = wide
        self._explicit = explicit
        self._in_c = in_c
        self._most_bits = most_bits
        self._natural = _Rewriting(self, Intervals(variable))

    def value(self, root: Expr) -> Expr:
        """Rewrite the body of a stage, a condition or a bound, in its own type.

        Integer arithmetic on data is unchanged, except in indices and conditions.
        """
        return _narrowed(root, self._natural.rewritten(self._without_wide_lets(root), False))

    def exact(self, root: Expr) -> Expr:
        """Rewrite an integer expression as exact integer arithmetic, in its own type."""
        return _narrowed(root, self._natural.rewritten(root, True))

    def wide_value(self, root: Expr) -> Expr:
        """An integer expression as int64."""
        return _widened(self._natural.rewritten(root, True))

    def index(self, root: Expr, extent: Any) -> Expr:
        """Rewrite an index into a dimension of a given extent, in its own type."""
        if not self._renamed and op_name(root) in ("var", "const"):
            return root
        name, parts = op_name(root), operands(root)
        if (name == "reinterpret" and is_index(parts[0])) or is_c_cast(root):  # hidden already
            inner = self._index(parts[-1], extent)
            if node_id(inner) == node_id(parts[-1]):
                return root
            if name == "reinterpret":
                return call_node(name, [inner], dtype_of(inner))
            return inner if self._hide is None else self._hide(inner)
        new = self._index(root, extent)
        if self._hide is None or node_id(new) == node_id(root) or op_name(new) in ("var", "const"):
            return new
        return new if self._wide else self._hide(new)

    def _index(self, root: Expr, extent: Any) -> Expr:
        if op_name(root) in ("select", "if_then_else"):
            condition, *branches = operands(root)
            parts = [self.value(condition), *(self._index(part, extent) for part in branches)]
            if self._wide:
                parts[1:] = [_widened(part) for part in parts[1:]]
            return _rebuilt(root, operands(root), parts)
        new = self._natural.rewritten(root, True)
        if node_id(new) == node_id(root):
            return _widened(root) if self._wide else root
        if not self._is_open(root):
            return _widened(new) if self._wide else _narrowed(root, new)
        bounds = Intervals(self._variable)
        places = places_of(extent, self._natural.bounds_of(extent))
        demand(root, places, bounds, self._is_open)
        new = _Rewriting(self, bounds, self._natural).rewritten(root, True)
        return _widened(new) if self._wide else _narrowed(root, new)

    def _is_open(self, index: Expr) -> bool:
        """Whether an index depends on data or on sizes, so that its own bounds are wide."""
        return any(
            op_name(node) in self._reads or (op_name(node) == "var" and self._open(node))
            for node in postorder(index.base if op_name(index) == "ramp" else index)
        )

    def _without_wide_lets(self, root: Expr) -> Expr:
        """``let v = i*441 in b → b[v := i*441]`` for integers that do not fit their variable."""
        for node in postorder(root):
            if op_name(node) == "let" and is_integer(operands(node)[0]):
                value = operands(node)[0]
                if not contains(_INT32, self._natural.bounds_of(value)):
                    return expand_lets(root)
        return root


class _Rewriting:
    """One walk over expressions with one set of bounds."""

    def __init__(
        self, widths: Widths, bounds: Intervals, outside: _Rewriting | None = None
    ) -> None:
        self._widths = widths
        self._bounds = bounds
        self._outside = outside or self  # what is demanded of an index holds in it alone
        self._memo: dict[tuple[int, bool], Expr] = {}
        self._data: set[int] = set()  #: nodes that depend on what is read
        self._alive: list[Any] = []

    def bounds_of(self, extent: Any) -> Interval:
        return (extent, extent) if isinstance(extent, int) else self._bounds.of(extent)

    def rewritten(self, root: Expr, exact: bool) -> Expr:
        """The rewritten expression; an integer that does not fit int32 is returned as int64."""
        memo = self._memo
        pending: list[tuple[Expr, Sequence[Expr] | None]] = [(root, None)]
        while pending:
            node, parts = pending.pop()
            key = node_id(node)
            if (key, exact) in memo:
                continue
            if parts is None:
                parts = self._own_parts(node, exact)
                if parts:
                    pending.append((node, parts))
                    pending += [(part, None) for part in reversed(parts)]
                    continue
            keys = [node_id(part) for part in parts]
            new = [memo[part, exact] for part in keys]
            if op_name(node) in self._widths._reads or not self._data.isdisjoint(keys):
                self._data.add(key)
            memo[key, exact] = self._node(node, parts, new, exact)
            self._alive.append(node)
        return memo[node_id(root), exact]

    def _counts(self, node: Expr, exact: bool) -> bool:
        """Whether the node is rewritten; arithmetic on data is not."""
        return exact or node_id(node) not in self._data

    def _own_parts(self, node: Expr, exact: bool) -> Sequence[Expr]:
        """The operands rewritten in this walk; reads and comparisons start separate walks."""
        name = op_name(node)
        if name in self._widths._reads or (name in COMPARISONS and is_integer(operands(node)[0])):
            return ()
        if name == "ramp":
            return (node.base, node.stride)
        if name == "broadcast":
            return (node.value,)
        return [part for part in operands(node) if _is_scalar(part)]

    def _node(self, node: Expr, old: Sequence[Expr], parts: list[Expr], exact: bool) -> Expr:
        name = op_name(node)
        if name == "var":
            return self._widths._renamed.get(node_id(node), node)
        if name in self._widths._reads:
            return self._read(node)
        if name in COMPARISONS and is_integer(operands(node)[0]):
            return self._comparison(node)
        if not is_integer(node) and name == "cast":
            return _rebuilt(node, old, parts)  # a float of a wide integer
        if is_index(node) and name in EXACT and self._counts(node, exact):
            return self._arithmetic(node, old, parts)
        if is_integer(node) and name == "cast" and is_integer(old[0]):
            return self._cast(node, old[0], parts[0], exact)
        parts = [_narrowed(a, b) for a, b in zip(old, parts, strict=True)]
        return self._written_wrap(node, _rebuilt(node, old, parts), parts, exact)

    def _wider(self, dtype: str, name: str) -> str | None:
        """The type that holds all results of wide unsigned arithmetic."""
        kind = WIDER.get((dtype, name))
        return None if kind is None or bits_of(kind) > self._widths._most_bits else kind

    def _comparison(self, node: Expr) -> Expr:
        old = operands(node)
        if self._widths._explicit and scalar_dtype(old[0]).startswith("uint"):
            holds = compared(op_name(node), *map(self._bounds.of, old))
            if holds is not None and dtype_of(node) == "bool":
                return const(holds, "bool")  # TVM subtracts one from zero to negate ``u < 0``
        parts = [self._outside.rewritten(part, True) for part in old]
        if any(map(_is_widened, old, parts)):
            parts = [_widened(part) for part in parts]
        return _rebuilt(node, old, parts)

    def _read(self, node: Expr) -> Expr:
        shape, indices, at = self._widths._reads[op_name(node)]
        old = indices(node)
        new = [self._widths.index(i, n) for i, n in zip(old, shape(node), strict=True)]
        return node if _same(old, new) else at(node, new)

    def _arithmetic(self, node: Expr, old: Sequence[Expr], parts: list[Expr]) -> Expr:
        """Rewrite a node of exact integer arithmetic."""
        fits = contains(_INT32, self._bounds.of(node))
        numbers = [n for n, part in enumerate(old) if is_integer(part)]
        widened = any(_is_widened(old[n], parts[n]) for n in numbers)
        if scalar_dtype(node) == "int64" or (fits and not widened):
            return _rebuilt(node, old, parts)
        for n in numbers:
            parts[n] = _widened(parts[n])
        new = _typed(node, parts)
        return cast(dtype_of(node), new) if fits and not self._widths._wide else new

    def _cast(self, node: Expr, source: Expr, part: Expr, exact: bool) -> Expr:
        target = dtype_of(node)
        if scalar_dtype(node) == "int64":
            return cast(target, part)
        if is_index(node) and contains(_INT32, self._bounds.of(source)) and self._widths._wide:
            return part if scalar_dtype(part) == "int64" else _rebuilt(node, [source], [part])
        new = _rebuilt(node, [source], [part])
        return self._written_wrap(node, new, [part], exact)

    def _written_wrap(self, node: Expr, new: Expr, parts: Sequence[Expr], exact: bool) -> Expr:
        """``uint8(a - b) → uint8(int32(a) - int32(b) & 255)`` for what may wrap round.

        TVM treats narrow and unsigned arithmetic and conversions as exact, and unsigned 32-bit
        overflow as undefined.
        """
        name = op_name(node)
        if not self._widths._explicit or not is_integer(node):
            return new
        if not (name in ARITHMETIC or name == "cast"):
            return new
        promoted = self._widths._in_c and scalar_dtype(node) in PROMOTED and name != "cast"
        if not promoted and not self._counts(node, exact):
            return new
        if (is_index(node) and name != "cast") or not all(map(is_integer, parts)):
            return new
        found = [self._bounds.of(part) for part in operands(node)]
        value = found[0] if name == "cast" else ARITHMETIC[name](found[0], found[1])
        if contains(integer_range(scalar_dtype(node)), value):
            return new
        kind = self._wider(scalar_dtype(node), name)
        if kind is not None:
            lanes = dtype_of(node).removeprefix(scalar_dtype(node))
            sides = [cast(kind + lanes, part) for part in parts]
            return cast(dtype_of(node), binary(name, *sides))
        if scalar_dtype(node) == "uint64":
            return new
        ranges = (*found, value)
        if scalar_dtype(node) != "uint32" and all(contains(_INT32, one) for one in ranges):
            kind = "int32"
        elif all(contains(integer_range("int64"), interval) for interval in ranges):
            kind = "int64"
        else:
            return new
        lanes = dtype_of(node).removeprefix(scalar_dtype(node))
        sides = [cast(kind + lanes, part) for part in parts]
        wide = sides[0] if name == "cast" else binary(name, *sides)
        return cast(dtype_of(node), reduced(wide, scalar_dtype(node)))


def _is_scalar(part: Any) -> bool:
    """Whether an operand is an expression that may hold integers, not a name or a buffer."""
    name = op_name(part)
    if name == "stringimm" or not hasattr(part, "ty"):
        return False
    return name != "var" or dtype_of(part).startswith(_NUMBERS)


def _is_widened(old: Expr, new: Expr) -> bool:
    return scalar_dtype(old) == "int32" and scalar_dtype(new) == "int64"


def _widened(expr: Expr) -> Expr:
    """An int32 expression as int64, in as many lanes."""
    return cast("int64" + dtype_of(expr).removeprefix(scalar_dtype(expr)), expr)


def _narrowed(old: Expr, new: Expr) -> Expr:
    return cast(dtype_of(old), new) if _is_widened(old, new) else new


def _same(old: Sequence[Expr], new: Sequence[Expr]) -> bool:
    return all(node_id(a) == node_id(b) for a, b in zip(old, new, strict=True))


def _rebuilt(node: Expr, old: Sequence[Expr], new: Sequence[Expr]) -> Expr:
    """The node over other operands, in the dtype that follows from them."""
    if _same(old, new):
        return node
    if op_name(node) in EXACT and is_integer(node):
        return _typed(node, new)
    if len(old) == len(operands(node)):
        return with_operands(node, new)
    table = {node_id(a): b for a, b in zip(old, new, strict=True)}
    return with_operands(node, [table.get(node_id(part), part) for part in operands(node)])


def _typed(node: Expr, parts: Sequence[Expr]) -> Expr:
    """Exact arithmetic in the type of its operands."""
    name = op_name(node)
    if name == "ramp":
        return prim.Ramp(parts[0], parts[1], node.lanes)
    if name == "broadcast":
        return prim.Broadcast(parts[0], node.lanes)
    if name == "select":
        return prim.Select(*parts)
    if name in ("if_then_else", "likely", "abs"):
        return call_node(name, parts, dtype_of(parts[-1]))
    return binary(name, parts[0], parts[1])
