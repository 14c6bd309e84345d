"""Divisions of sizes and by sizes: a size `n` of an array is never negative, but may be zero.

TVM takes a size for any number of its width. It writes ``(n + 351) // 352`` for negative numbers,
too, with a literal that may be beyond 32 bits, which it then refuses itself. It divides by `n`
where a kernel of an empty array has a thread, too.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import prim

from ...expr.build import const
from ...expr.nodes import Expr, binary, const_value, dtype_of, node_id, operands
from ...expr.rewrite import postorder

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
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
