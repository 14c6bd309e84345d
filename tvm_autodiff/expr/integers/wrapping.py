"""Hides arithmetic that may wrap from TVM's analyzer, which treats every integer as exact.

For 0 <= k < 9 the analyzer bounds ``uint8(k - 5)`` by 0 and 3, and ``uint8(k) - uint8(4)`` by -4
and 4. Both reach 255. It takes ``int32(u)`` of a ``uint32`` for non-negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..build import variable
from ..dtypes import bits_of, integer_range, keeps_values
from ..nodes import (
    Expr,
    Var,
    call_node,
    dtype_of,
    is_integer,
    is_load,
    op_name,
    operands,
    with_operands,
)
from ..rewrite import contains, postorder, rewrite
from ..structural import StructuralKeys
from .intervals import MOST_SYMBOLIC, Intervals, contains as holds

#: types whose arithmetic wraps; that of indices, int32 and int64, does not
_NARROW = ("uint8", "uint16", "uint32", "uint64", "int8", "int16")
_WRAPPING = ("cast", "add", "sub", "mul", "shift_left")
#: `narrow` computes the others in int32 or int64
_WIDE_UNSIGNED = ("uint32", "uint64")


def hide_wrapping(exprs: Sequence[Expr], analyzer: Any) -> tuple[list[Expr], dict[Var, Expr]]:
    """``int32(uint8(k - 5)) <= 3  →  int32(v) <= 3``, where k - 5 may be outside of uint8.

    Parameters
    ----------
    exprs : sequence of Expr
        Integer expressions and conditions.
    analyzer : tvm.sym.Analyzer
        Knows the ranges of variables.

    Returns
    -------
    list of Expr, dict of Var to Expr
        The expressions, and the expression that each new variable replaces. Equal expressions share
        one variable.

    Examples
    --------
    >>> from tvm import sym, te, tirx
    >>> k, analyzer = te.var("k"), sym.Analyzer()
    >>> [hidden], values = hide_wrapping([tirx.Cast("int32", tirx.Cast("uint8", k - 5))], analyzer)
    >>> hidden, list(values.values())
    (T.Cast("int32", wrapped), [T.Cast("uint8", k - 5)])
    """
    values: dict[Var, Expr] = {}
    keys, hidden = StructuralKeys(), dict[int, Var]()

    def visit(node: Expr) -> Expr | None:
        if not _may_wrap(node):
            return None
        exact = operands(node)[0] if op_name(node) == "cast" else node
        low, high = integer_range(dtype_of(node))
        bound = analyzer.const_int_bound(exact)
        most = bound.max_value
        if dtype_of(exact) == "uint64" and most >= integer_range("int64")[1]:
            most = integer_range("uint64")[1]  # the analyzer has no larger bound than that of int64
        if low <= bound.min_value and most <= high:
            return None
        key = keys.expr(node)
        if key not in hidden:
            hidden[key] = variable("wrapped", dtype_of(node))
            values[hidden[key]] = node
        return hidden[key]

    if not contains(exprs, _may_wrap):
        return list(exprs), values
    return [rewrite(expr, visit) for expr in exprs], values


def _may_wrap(node: Expr) -> bool:
    """Whether a node is arithmetic of a narrow type, or a conversion that may change the value."""
    return (op_name(node) in _WRAPPING and dtype_of(node) in _NARROW) or _may_change(node)


def opaque_conversions(expr: Expr, intervals: Intervals) -> Expr:
    """Hide conversions that may change a value in calls that LLVM removes.

    ``int32(a) → reinterpret(a)`` of a uint32, ``int32(int64(a)) → int32(reinterpret(int64(a)))``,
    and ``uint32(a) → reinterpret(uint32(a))`` of an int8. TVM bounds a conversion by what of the
    interval of the source fits the type, so that ``int32(int64(a)) >= 0`` of a uint32 is true to
    it. It also moves conversions to the parts of a sum, and fails at a part that does not fit.

    Parameters
    ----------
    expr : Expr
        An expression of any dtype.
    intervals : Intervals
        Intervals of its parts.

    Examples
    --------
    >>> from tvm import tirx
    >>> a, intervals = variable("a", "uint32"), Intervals(lambda var: (0, 2**32 - 1))
    >>> opaque_conversions(tirx.Cast("int32", a), intervals)
    T.reinterpret("int32", a)
    >>> opaque_conversions(tirx.Cast("int64", a), intervals)
    T.Cast("int64", a)
    """

    def visit(node: Expr) -> Expr | None:
        if not _may_change(node):
            return None
        dtype, [wide] = dtype_of(node), operands(node)
        if holds(integer_range(dtype), intervals.of(wide)) or _is_plain(wide, dtype, intervals):
            return None
        source = dtype_of(wide)
        if bits_of(source) > bits_of(dtype):
            return with_operands(node, [call_node("reinterpret", (wide,), source.lstrip("u"))])
        return call_node("reinterpret", (node if dtype.startswith("u") else wide,), dtype)

    return rewrite(expr, visit) if contains([expr], _may_change) else expr


def _may_change(node: Expr) -> bool:
    """Whether a node is a conversion between integers that does not keep every value."""
    if op_name(node) != "cast" or not is_integer(node):
        return False
    [source] = operands(node)
    return is_integer(source) and not keeps_values(dtype_of(source), dtype_of(node))


def _is_plain(wide: Expr, dtype: str, intervals: Intervals) -> bool:
    """Whether TVM bounds a conversion to `dtype` by that type alone, or it counts as exact.

    A conversion of a symbolic size comes from this library, or is treated as exact.
    """
    least, most = integer_range(dtype_of(wide))
    low, high = integer_range(dtype)
    if is_load(wide) or op_name(wide) == "reinterpret":
        return least <= low and high <= most
    if dtype != "int32" or dtype_of(wide) != "int64":
        return False
    parts = postorder(wide)
    return not any(map(is_load, parts)) and not all(_is_small(part, intervals) for part in parts)


def _is_small(node: Expr, intervals: Intervals) -> bool:
    """Whether a node is no size, which may have any value of its type."""
    return op_name(node) != "var" or intervals.of(node)[1] < MOST_SYMBOLIC


def opaque_unsigned(expr: Expr) -> Expr:
    """``a - b → reinterpret(a - b)`` of uint32 and uint64, which LLVM removes.

    TVM turns ``a - 3 < 2`` into ``a < 5``, and fails at ``a % 3 < 7``.

    Examples
    --------
    >>> from tvm import tirx
    >>> a = variable("a", "uint32")
    >>> opaque_unsigned(a - tirx.const(3, "uint32"))
    T.reinterpret("uint32", a - T.uint32(3))
    """

    def visit(node: Expr) -> Expr | None:
        dtype = dtype_of(node)
        if op_name(node) == "reinterpret":  # of what has been hidden before
            [inner] = operands(node)
            again = op_name(inner) == "reinterpret" and dtype_of(inner) == dtype
            return inner if again else None
        return call_node("reinterpret", (node,), dtype) if _is_wide_unsigned(node) else None

    return rewrite(expr, visit) if contains([expr], _is_wide_unsigned) else expr


def _is_wide_unsigned(node: Expr) -> bool:
    """Whether a node computes a uint32 or a uint64."""
    if dtype_of(node) not in _WIDE_UNSIGNED or is_load(node):
        return False
    return bool(operands(node)) and op_name(node) not in ("reinterpret", "let")
