"""Divisions of sizes and by sizes: a size `n` of an array is never negative, but may be zero.

TVM takes a size for any number of its width. It writes ``(n + 351) // 352`` for negative numbers,
too, with a literal that may be beyond 32 bits, which it then refuses itself. It divides by `n`
where a kernel of an empty array has a thread, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import prim

from ....expr.build import add, const, variable
from ....expr.dtypes import bits_of, integer_range
from ....expr.nodes import (
    INDEX_DTYPES,
    Expr,
    binary,
    const_value,
    dtype_of,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import postorder
from ....expr.sharing.weights import provable
from ...functions import with_body

_TRUNCATED = {prim.FloorDiv: "truncdiv", prim.FloorMod: "truncmod"}


@tirx.transform.prim_func_pass(opt_level=0)
def with_sizes_divided(func: Any, _module: Any, _context: Any) -> Any:
    """The function with divisions of sizes by positive literals that round to zero, and with
    ``i // max(n, 1)`` for ``i // n``.
    """
    sizes = {
        node_id(param)
        for param in func.params
        if isinstance(param.ty, tvm.ir.PrimType) and dtype_of(param).startswith("int")
    }
    analyzer = sym.Analyzer()
    for param in func.params:
        if node_id(param) in sizes:
            most = (1 << (int(dtype_of(param)[3:]) - 1)) - 1
            analyzer.update(param, sym.ConstIntBound(0, most))

    def of_sizes(node: Expr) -> bool:
        leaves = [part for part in postorder([node]) if not operands(part)]
        return all(const_value(leaf) is not None or node_id(leaf) in sizes for leaf in leaves)

    def divided(node: Expr) -> Expr:
        dividend, divisor = operands(node)
        if const_value(divisor) is None and of_sizes(divisor):
            one = const(1, dtype_of(divisor))
            return type(node)(dividend, binary("max", divisor, one))
        if (const_value(divisor) or 0) <= 0 or not of_sizes(dividend):
            return node
        if not analyzer.can_prove(dividend >= const(0, dtype_of(dividend))):
            return node
        return binary(_TRUNCATED[type(node)], dividend, divisor)

    if not sizes:
        return func
    body = tvm_ffi.structural_map(func.body, [(kind, divided) for kind in _TRUNCATED])
    return with_body(func, body)


def with_rounding_to_zero(func: Any) -> Any:
    """``i // n → truncdiv(i, n)`` for a size n and an i that is not negative, as indices are.

    TVM does not know the signs, and writes a choice between two roundings into every index. Its
    simplifier walks choices again and again.

    Examples
    --------
    >>> from tvm import te
    >>> n = te.var("n")
    >>> A = te.placeholder((n, n), name="A")
    >>> B = te.compute((n * n,), lambda i: A[i // n, i % n], name="B")
    >>> text = with_rounding_to_zero(te.create_prim_func([A, B])).script()
    >>> text[text.rindex("A[") :].strip()
    'A[T.Div(v_i, n), T.truncmod(v_i, n)]'
    """
    return _with_divisions(func, _Signs.divided)


@tirx.transform.prim_func_pass(opt_level=0)
def with_rounding_down(func: Any, _module: Any, _context: Any) -> Any:
    """``i % n → let r = truncmod(i, n) in r + (n & (r >> 31))`` and ``i // n → truncdiv(i, n) +
    (truncmod(i, n) >> 31)`` for positive divisors made of sizes, at the end of TVM's lowering.

    TVM's own form chooses by the sign of the divisor. Its code generator simplifies whatever a
    variable is bound to, which takes seconds for such choices in indices of indices.
    """
    return _with_divisions(func, _Signs.rounded_down)


def _with_divisions(func: Any, written: Callable[[_Signs, Any], Any]) -> Any:
    """The function with its divisions by what is no literal in another form."""
    found: list[Any] = []
    for kind in _TRUNCATED:
        tvm_ffi.structural_walk(func.body, [(kind, found.append)])
    if all(const_value(operands(node)[1]) is not None for node in found):
        return func
    change = partial(written, _Signs(func))
    body = tvm_ffi.structural_map(func.body, [(kind, change) for kind in _TRUNCATED])
    return with_body(func, body)


class _Signs:
    """What the loops, the bindings and the sizes of a function say about signs."""

    def __init__(self, func: Any) -> None:
        self._analyzer = sym.Analyzer()
        self._sizes: set[int] = set()
        for param in func.params:
            shape = getattr(param.ty, "shape", None)
            parts = [param] if shape is None else list(shape)
            for var in (part for part in postorder(parts) if op_name(part) == "var"):
                if dtype_of(var) in INDEX_DTYPES:
                    self._sizes.add(node_id(var))
                    self._at_least(var, 0)
        visitors = [
            (tirx.For, lambda node: self._at_least(node.loop_var, self._low(node.min))),
            (tirx.Bind, lambda node: self._bound(node.var, node.value)),
            (s_tir.SBlockRealize, self._block),
        ]
        tvm_ffi.structural_walk(func.body, visitors, order="pre")

    def divided(self, node: Any) -> Any:
        """A division of what is not negative by a size, rounded to zero."""
        dividend, divisor = operands(node)
        if not self._is_size(divisor) or self._low(dividend) < 0:
            return node
        return binary(_TRUNCATED[type(node)], dividend, divisor)

    def rounded_down(self, node: Any) -> Any:
        """A division of any number by a size, made of one that rounds to zero."""
        dividend, divisor = operands(node)
        dtype = dtype_of(dividend)
        if dtype not in INDEX_DTYPES or not self._is_size(divisor):
            return node
        if self._low(dividend) >= 0:
            return binary(_TRUNCATED[type(node)], dividend, divisor)
        sign = const(bits_of(dtype) - 1, dtype)
        left = binary("truncmod", dividend, divisor)
        if op_name(node) == "floordiv":
            return add(binary("truncdiv", dividend, divisor), binary("shift_right", left, sign))
        name = variable("left", dtype)
        more = binary("bitwise_and", divisor, binary("shift_right", name, sign))
        return prim.Let(name, left, add(name, more))

    def _is_size(self, divisor: Any) -> bool:
        """Whether a divisor is made of sizes, and not negative."""
        if const_value(divisor) is not None:
            return False
        leaves = [part for part in postorder([divisor]) if not operands(part)]
        sizes = all(
            const_value(leaf) is not None or node_id(leaf) in self._sizes for leaf in leaves
        )
        return sizes and self._low(divisor) >= 0

    def _block(self, realize: Any) -> None:
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            self._bound(axis.var, value)

    def _bound(self, var: Any, value: Any) -> None:
        if dtype_of(var) in INDEX_DTYPES:
            self._at_least(var, self._low(value))

    def _at_least(self, var: Any, low: int) -> None:
        self._analyzer.update(var, sym.ConstIntBound(low, integer_range(dtype_of(var))[1]), True)

    def _low(self, value: Any) -> int:
        if not provable(value):
            return -1
        # conversions of indices are exact here: others are calls (`expr/integers/wrapping.py`)
        return int(self._analyzer.const_int_bound(value).min_value)
