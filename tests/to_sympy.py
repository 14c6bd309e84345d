"""Translates expressions to sympy, the oracle of the scalar rules.

An expression in the vocabulary of `expr.nodes` becomes a sympy expression of the same mathematical
value. Floats become the exact rationals that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as S

from tvm_autodiff.expr.nodes import Expr, Var, const_value, node_id, op_name, operands
from tvm_autodiff.expr.rewrite import expand_lets, postorder

#: name of an operator → sympy's expression; operators that sympy lacks are missing
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
    "max": S.Max,
    "min": S.Min,
    "eq": S.Eq,
    "ne": S.Ne,
    "lt": S.Lt,
    "le": S.Le,
    "gt": S.Gt,
    "ge": S.Ge,
    "and": S.And,
    "or": S.Or,
    "not": S.Not,
    "select": lambda c, a, b: S.Piecewise((a, c), (b, True)),
    "if_then_else": lambda c, a, b: S.Piecewise((a, c), (b, True)),
    "cast": lambda x: x,
    "likely": lambda x: x,
    "checkpoint": lambda x: x,
    "recomputed": lambda x, sweep: x,
    "abs": S.Abs,
    "copysign": lambda x, y: S.Abs(x) * S.sign(y),
    "ldexp": lambda x, n: x * 2**n,
    "hypot": lambda x, y: S.sqrt(x**2 + y**2),
    "power": lambda x, y: x**y,
    "sqrt": S.sqrt,
    "rsqrt": lambda x: 1 / S.sqrt(x),
    "exp": S.exp,
    "exp2": lambda x: 2**x,
    "exp10": lambda x: 10**x,
    "log": S.log,
    "log2": lambda x: S.log(x) / S.log(2),
    "log10": lambda x: S.log(x) / S.log(10),
    "log1p": lambda x: S.log(1 + x),
    "sigmoid": lambda x: 1 / (1 + S.exp(-x)),
    "atan2": S.atan2,
    "floor": S.floor,
    "ceil": S.ceiling,
    **{
        name: getattr(S, name)
        for name in [
            "tanh",
            "erf",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "asinh",
            "acosh",
            "atanh",
        ]
    },
}


def to_sympy(expr: Expr, symbols: Mapping[Var, Any]) -> Any:
    """The value of an expression in sympy.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.var("x", "float64")
    >>> to_sympy(te.exp(x) * 0.5, {x: S.Symbol("t")})
    exp(t)/2
    """
    table = {node_id(var): symbol for var, symbol in symbols.items()}
    values: dict[int, Any] = {}
    expr = expand_lets(expr)
    for node in postorder(expr):
        name, parts, key = op_name(node), operands(node), node_id(node)
        if name == "string":  # the name of a function that is called
            continue
        if name == "call_pure_extern":
            name, parts = str(parts[0].value), parts[1:]
        if name == "const":
            values[key] = S.Rational(const_value(node))
        elif name == "var":
            values[key] = table[key]
        else:
            values[key] = FUNCTIONS[name](*(values[node_id(part)] for part in parts))
    return values[node_id(expr)]
