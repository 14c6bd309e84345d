"""Translates expressions to sympy, the oracle of the scalar rules.

An expression becomes a sympy expression of the same mathematical value. Floats become the exact
rationals that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as S

from tests.walks import address_of, bound_values, in_order, name_of, parts_of

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
    "let": lambda value, body: body,
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


def to_sympy(expr: Any, symbols: Mapping[Any, Any]) -> Any:
    """The value of an expression in sympy.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.var("x", "float64")
    >>> to_sympy(te.exp(x) * 0.5, {x: S.Symbol("t")})
    exp(t)/2
    """
    table = {address_of(var): symbol for var, symbol in symbols.items()}
    values: dict[int, Any] = {}
    nodes = in_order(expr)
    bound = bound_values(nodes)
    for node in nodes:
        name, parts, key = name_of(node), parts_of(node), address_of(node)
        if name == "string":  # the name of a function that is called
            continue
        if name == "call_pure_extern":
            name, parts = str(parts[0].value), parts[1:]
        if name == "const":
            values[key] = S.Rational(node.value)
        elif name == "var":
            values[key] = values[address_of(bound[key])] if key in bound else table[key]
        else:
            values[key] = FUNCTIONS[name](*(values[address_of(part)] for part in parts))
    return values[address_of(expr)]
