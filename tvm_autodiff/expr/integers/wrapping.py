"""Hides arithmetic that may wrap from TVM's analyzer, which treats every integer as exact.

For 0 <= k < 9 the analyzer bounds ``uint8(k - 5)`` by 0 and 3, and ``uint8(k) - uint8(4)`` by -4
and 4. Both reach 255.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi

from ..build import variable
from ..nodes import (
    Expr,
    Var,
    call_node,
    dtype_of,
    integer_range,
    is_load,
    op_name,
    operands,
    with_operands,
)
from ..rewrite import contains, postorder, rewrite
from .intervals import MOST_SYMBOLIC, Intervals, contains as holds

#: dtype → its least and its largest value; indices themselves, int32 and int64, do not wrap
_LIMITS = {
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32)},
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16)},
}
_WRAPPING = ("cast", "add", "sub", "mul")


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
        low, high = _LIMITS[dtype_of(node)]
        bound = analyzer.const_int_bound(exact)
        if low <= bound.min_value and bound.max_value <= high:
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
    return op_name(node) in _WRAPPING and dtype_of(node) in _LIMITS


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
