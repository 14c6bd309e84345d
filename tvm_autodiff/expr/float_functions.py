"""Functions of floats whose operands TVM takes in any dtypes, and passes to the C library as they
are: in which dtypes they are computed, and which have no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

from .dtypes import common_float
from .nodes import Expr, dtype_of, is_float, op_name, operands
from .printing.text import text

#: functions of two floats
TWO_FLOATS = frozenset(("fmod", "atan2", "hypot", "copysign", "nextafter"))
_LDEXP = "ldexp"
#: functions of one, which TVM calls for integers, too, and has no code for; and powers
_REAL = frozenset(
    ("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "erf")
    + ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
    + ("asinh", "acosh", "atanh", "power")
)
#: the exponent of ``ldexp`` beyond which every result is zero, infinite or no number
MOST_EXPONENT = 1 << 14


def widest_of(parts: Sequence[Expr], result: str) -> str:
    """The dtype in which a function of floats is computed; integers take that of the floats.

    Examples
    --------
    >>> from tvm import tirx
    >>> widest_of([tirx.Var("x", "float16"), tirx.Var("n", "int64")], "float16")
    'float16'
    """
    return common_float(result, *(dtype_of(part) for part in parts if is_float(part)))


def why_meaningless(node: Expr) -> str | None:
    """Why a call has no value in TVM, and what to write instead; None for all other nodes.

    Examples
    --------
    >>> from tvm import tirx
    >>> why_meaningless(tirx.hypot(tirx.Var("n", "int32"), tirx.Var("x", "float32")))
    "hypot(n, x) has the dtype of its first operand, int32: convert that with astype('float32')"
    """
    name = op_name(node)
    if name not in TWO_FLOATS and name != _LDEXP and name not in _REAL:
        return None
    parts = operands(node)
    if not is_float(node):
        wide = widest_of(parts, "float32")
        return (
            f"{text(node, limit=200)} has the dtype of its first operand, {dtype_of(node)}: "
            f"convert that with astype('{wide}')"
        )
    if name == _LDEXP and is_float(parts[1]):
        return (
            f"the exponent in {text(node, limit=200)} is a {dtype_of(parts[1])}: convert it with "
            "astype('int32'), or multiply by exp2 of it"
        )
    return None
