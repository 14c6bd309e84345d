"""Writes products that are added as one operation, which every kernel rounds alike.

LLVM and nvcc fuse ``a*b + c`` into one operation where a kernel suits them, so two kernels that
compute it may differ in the last bit. Where both take a decision by it, each must take the same.
"""

from __future__ import annotations

from .build import neg
from .nodes import Expr, call_node, dtype_of, op_name, operands
from .rewrite import rewrite

#: dtypes in which a fused operation is one instruction, or the same two everywhere
_FUSED = ("float32", "float64")


def rounded_alike(expr: Expr) -> Expr:
    """``a*b + c → fma(a, b, c)``, ``a*b - c → fma(a, b, -c)``, ``c - a*b → fma(-a, b, c)``

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> a, b, c = (te.var(name, "float32") for name in "abc")
    >>> text(rounded_alike(te.sqrt(a * b - c * c)))
    'sqrt(fma(a, b, -(c*c)))'
    """
    return rewrite(expr, _fused)


def _fused(node: Expr) -> Expr | None:
    name = op_name(node)
    if name not in ("add", "sub") or dtype_of(node) not in _FUSED:
        return None
    left, right = operands(node)
    if op_name(left) == "mul":
        a, b = operands(left)
        return call_node("fma", (a, b, right if name == "add" else neg(right)), dtype_of(node))
    if op_name(right) == "mul":
        a, b = operands(right)
        return call_node("fma", (a if name == "add" else neg(a), b, left), dtype_of(node))
    return None
