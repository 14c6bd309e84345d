"""Compiles integer expressions into Python functions, to count points by brute force.

Index arithmetic is exact and does not wrap as int32 does. Conversions and arithmetic on narrow and
unsigned types do wrap. Loads are not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import UnsolvableError
from ..dtypes import integer_range
from ..nodes import (
    INDEX_DTYPES,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands,
)
from ..printing.text import text
from ..rewrite import postorder

_TEMPLATES = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "floordiv": "{} // {}",
    "floormod": "{} % {}",
    "truncdiv": "_truncdiv({}, {})",
    "truncmod": "_truncmod({}, {})",
    "shift_left": "{} << {}",
    "shift_right": "{} >> {}",
    "bitwise_and": "{} & {}",
    "bitwise_or": "{} | {}",
    "bitwise_xor": "{} ^ {}",
    "bitwise_not": "~{}",
    "min": "min({}, {})",
    "max": "max({}, {})",
    "eq": "{} == {}",
    "ne": "{} != {}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "and": "{} and {}",
    "or": "{} or {}",
    "not": "not {}",
    "cast": "{}",
    "likely": "{}",
    "select": "{1} if {0} else {2}",
    "if_then_else": "{1} if {0} else {2}",
}


def _truncdiv(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a >= 0) == (b >= 0) else -q


def _truncmod(a: int, b: int) -> int:
    return a - b * _truncdiv(a, b)


def compile_integers(
    exprs: Sequence[Expr | int], variables: Sequence[Var]
) -> Callable[..., tuple[int, ...]]:
    """A function of the variables, in order, that returns the values of the expressions as a tuple.

    Examples
    --------
    >>> from tvm import te
    >>> i, j = te.var("i"), te.var("j")
    >>> compile_integers([i // 2, i - j], [i, j])(5, 7)
    (2, -2)
    """
    names = {node_id(var): f"a{n}" for n, var in enumerate(variables)}
    lines: list[str] = []
    for node in postorder([e for e in exprs if not isinstance(e, int)]):
        key = node_id(node)
        name = op_name(node)
        if key in names:
            continue
        if name == "const":
            names[key] = repr(const_value(node))
            continue
        if name not in _TEMPLATES:
            raise UnsolvableError(
                f"cannot count points: the value of {name} is not known: {text(node)}"
            )
        names[key] = f"t{len(lines)}"
        line = _TEMPLATES[name].format(*(names[node_id(part)] for part in operands(node)))
        if name == "cast" and dtype_of(node) == "bool":
            line = f"{line} != 0"
        if is_integer(node) and (name == "cast" or dtype_of(node) not in INDEX_DTYPES):
            least, most = integer_range(dtype_of(node))
            line = f"({line} - {least}) % {most - least + 1} + {least}"
        lines.append(f"    {names[key]} = {line}")
    results = [str(e) if isinstance(e, int) else names[node_id(e)] for e in exprs]
    head = "def f({}):".format(", ".join(f"a{n}" for n in range(len(variables))))
    tail = "    return ({})".format("".join(r + ", " for r in results))
    scope: dict[str, Callable[..., tuple[int, ...]]] = {}
    exec("\n".join([head, *lines, tail]), {"_truncdiv": _truncdiv, "_truncmod": _truncmod}, scope)
    return scope["f"]
