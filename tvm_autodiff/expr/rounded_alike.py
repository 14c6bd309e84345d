"""Writes products that are added as one operation, which every kernel rounds alike.

LLVM and nvcc fuse ``a*b + c`` into one operation where a kernel suits them, so two kernels that
compute it may differ in the last bit. Where both take a decision by it, each must take the same.
"""

from __future__ import annotations

from collections.abc import Callable

from .build import neg
from .nodes import (
    BRANCHES,
    Expr,
    call_node,
    dtype_of,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
)
from .rewrite import postorder, rewrite

#: dtypes in which a fused operation is one instruction, or the same two everywhere
_FUSED = ("float32", "float64")
_CHOICES = (*BRANCHES, "min", "max")


def with_decisions_alike(root: Expr, cancels: Callable[[Expr], bool]) -> Expr:
    """The expression, with products fused if sums of products decide which of two sides it takes.

    Its sides' derivatives may be computed in different kernels. All of it is written alike, so that
    what decisions and values have in common stays so. Of a side that reads nothing, there is no
    derivative, and those of the other one need not be together.

    Parameters
    ----------
    root : Expr
    cancels : callable
        Whether the derivatives of a side by what it reads may cancel.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> x, w = (te.placeholder((9,), name=name) for name in "xw")
    >>> i = te.var("i")
    >>> text(with_decisions_alike(te.min(x[i], w[i] * w[i] + 1), lambda side: False))
    'min(x[i], fma(w[i], w[i], 1.0))'
    >>> text(with_decisions_alike(te.max(w[i] * x[i] + 1, 0), lambda side: False))
    'max(w[i]*x[i] + 1.0, 0.0)'
    """
    reading: set[int] = set()
    adding: set[int] = set()  # sums of products, and what holds them
    for node in postorder(root):
        parts = [node_id(part) for part in operands(node)]
        if is_load(node) or any(part in reading for part in parts):
            reading.add(node_id(node))
        if _adds_products(node) or any(part in adding for part in parts):
            adding.add(node_id(node))
        if not is_float(node) or op_name(node) not in _CHOICES:
            continue
        branches = op_name(node) in BRANCHES
        by = parts[:1] if branches else parts
        if adding.isdisjoint(by):
            continue
        sides = operands(node)[1:] if branches else operands(node)
        if reading.issuperset(map(node_id, sides)) or any(map(cancels, sides)):
            return rounded_alike(root)
    return root


def rounded_alike(expr: Expr) -> Expr:
    """``a*b + c → fma(a, b, c)``, ``a*b - c → fma(a, b, -c)``, ``c - a*b → fma(-a, b, c)``

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> a, b, c = (te.var(name, "float32") for name in "abc")
    >>> text(rounded_alike(te.sqrt(a * b - c * c)))
    'sqrt(fma(a, b, -c*c))'
    """
    return rewrite(expr, _fused)


def _adds_products(node: Expr) -> bool:
    return (
        op_name(node) in ("add", "sub")
        and dtype_of(node) in _FUSED
        and "mul" in map(op_name, operands(node))
    )


def _fused(node: Expr) -> Expr | None:
    if not _adds_products(node):
        return None
    adds = op_name(node) == "add"
    left, right = operands(node)
    if op_name(left) == "mul":
        a, b = operands(left)
        return call_node("fma", (a, b, right if adds else neg(right)), dtype_of(node))
    a, b = operands(right)
    return call_node("fma", (a if adds else neg(a), b, left), dtype_of(node))
