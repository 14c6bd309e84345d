"""Hides arithmetic that may wrap from TVM's analyzer, which treats every integer as exact.

For 0 <= k < 9 the analyzer bounds ``uint8(k - 5)`` by 0 and 3, and ``uint8(k) - uint8(4)`` by -4
and 4. Both reach 255. It takes ``int32(u)`` of a ``uint32`` for non-negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi

from ..build import cast, variable
from ..nodes import (
    Expr,
    Var,
    call_node,
    dtype_of,
    integer_range,
    is_integer,
    is_load,
    keeps_values,
    op_name,
    operands,
    with_operands,
)
from ..rewrite import contains, postorder, rewrite
from .intervals import MOST_SYMBOLIC, Intervals, contains as holds

#: types whose arithmetic wraps; that of indices, int32 and int64, does not
_NARROW = ("uint8", "uint16", "uint32", "uint64", "int8", "int16")
_WRAPPING = ("cast", "add", "sub", "mul")
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
        for var, value in values.items():
            if tvm_ffi.structural_equal(value, node, map_free_vars=False):
                return var
        fresh = variable("wrapped", dtype_of(node))
        values[fresh] = node
        return fresh

    if not contains(exprs, _may_wrap):
        return list(exprs), values
    return [rewrite(expr, visit) for expr in exprs], values


def _may_wrap(node: Expr) -> bool:
    """Whether a node is arithmetic of a narrow type, or a conversion that may change the value.

    Conversions between index types are exact, because index arithmetic is.
    """
    if op_name(node) not in _WRAPPING:
        return False
    if dtype_of(node) in _NARROW:
        return True
    if op_name(node) != "cast" or not is_integer(node):
        return False
    source = dtype_of(operands(node)[0])
    return source.startswith("uint") and not keeps_values(source, dtype_of(node))


def opaque_narrowing(expr: Expr, intervals: Intervals) -> Expr:
    """``int32(int64(i)*2**33) → int32(reinterpret(int64(i)*2**33))``, which LLVM removes.

    TVM moves such a conversion to the parts of a sum, and fails at a part that does not fit int32.
    A conversion that depends on a size or on data comes from this library or is treated as exact.

    Parameters
    ----------
    expr : Expr
        An expression of any dtype.
    intervals : Intervals
        Intervals of its parts.
    """

    def visit(node: Expr) -> Expr | None:
        if not _narrows(node):
            return None
        [wide] = operands(node)
        fits = holds(integer_range("int32"), intervals.of(wide))
        if fits or not all(_is_small(part, intervals) for part in postorder(wide)):
            return None
        return with_operands(node, [call_node("reinterpret", (wide,), "int64")])

    return rewrite(expr, visit) if contains([expr], _narrows) else expr


def opaque_unsigned(expr: Expr) -> Expr:
    """Hide arithmetic and conversions of uint32 and uint64 in calls that LLVM removes.

    ``a - b → reinterpret(a - b)``, ``int32(a) → reinterpret(a)`` of a uint32, and ``int32(a) →
    int32(reinterpret(a))`` of a uint64. TVM turns ``a - 3 < 2`` into ``a < 5`` and
    ``int32(a) >= 0`` into true, and fails at ``a % 3 < 7``.

    Examples
    --------
    >>> from tvm import tirx
    >>> a = variable("a", "uint32")
    >>> opaque_unsigned(tirx.Cast("int32", a) + 1), opaque_unsigned(tirx.Cast("int64", a))
    (T.reinterpret("int32", a) + 1, T.Cast("int64", a))
    """

    def visit(node: Expr) -> Expr | None:
        name, dtype = op_name(node), dtype_of(node)
        if name == "reinterpret":  # of what has been hidden before
            [inner] = operands(node)
            again = op_name(inner) == "reinterpret" and dtype_of(inner) == dtype
            return inner if again else None
        if not _is_opaque(node):
            return None
        if dtype in _WIDE_UNSIGNED:
            return call_node("reinterpret", (node,), dtype)
        [source] = operands(node)
        return cast(dtype, call_node("reinterpret", (source,), dtype_of(source)[1:]))

    return rewrite(expr, visit) if contains([expr], _is_opaque) else expr


def _is_opaque(node: Expr) -> bool:
    """Whether a node computes a uint32 or a uint64, or converts one to a signed type that is
    narrower.
    """
    name, dtype = op_name(node), dtype_of(node)
    if dtype in _WIDE_UNSIGNED:
        return bool(operands(node)) and not is_load(node) and name not in ("reinterpret", "let")
    if name != "cast" or not dtype.startswith("int"):
        return False
    source = dtype_of(operands(node)[0])
    return source in _WIDE_UNSIGNED and not keeps_values(source, dtype)


def _narrows(node: Expr) -> bool:
    """Whether a node is a conversion from int64 to int32."""
    if op_name(node) != "cast" or dtype_of(node) != "int32":
        return False
    return dtype_of(operands(node)[0]) == "int64"


def _is_small(node: Expr, intervals: Intervals) -> bool:
    """Whether a node is neither a size nor data. A size may have any value of its type."""
    if is_load(node):
        return False
    return op_name(node) != "var" or intervals.of(node)[1] < MOST_SYMBOLIC
