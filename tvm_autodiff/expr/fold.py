"""Constant folding after a substitution: ``1.0*x → x`` where a seed became the number one.

The expression is rebuilt with the constructors of `build`. Indices and conditions are simplified
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from . import build
from .nodes import Expr, dtype_of, is_float, op_name, operands
from .rewrite import rewrite

_CONSTRUCTORS: dict[str, Callable[..., Expr]] = {
    "add": build.add,
    "sub": build.sub,
    "mul": build.mul,
    "div": build.div,
    "if_then_else": build.if_then_else,
    "select": build.select,
}


def fold(expr: Expr) -> Expr:
    """Fold the float arithmetic of an expression.

    Examples
    --------
    >>> from tvm import te, tirx
    >>> x = te.var("x", "float32")
    >>> fold(tirx.Mul(x, tirx.const(1.0, "float32"))).name
    'x'
    """

    def visit(node: Expr) -> Expr | None:
        if not is_float(node):
            return None
        name = op_name(node)
        if name == "cast":
            return build.cast(dtype_of(node), operands(node)[0])
        constructor = _CONSTRUCTORS.get(name)
        return None if constructor is None else constructor(*operands(node))

    return rewrite(expr, visit)
