"""The table of elementary functions that this library computes itself.

In a scheduled function for an LLVM target, calls of these functions replace TVM's intrinsics for
float32, float16 and bfloat16 operands; float64 has a separate table. docs/internals/performance.md
lists the maximum errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ...codegen.functions import replace_calls, vector_widths, with_llvm_code
from ...expr.intrinsics import define, own_call, symbol
from ...expr.nodes import Expr, const_value, dtype_of, op_name, operands
from . import (
    error_function,
    exponential,
    hyperbolic,
    hypotenuse,
    inverse_trigonometric,
    logarithm,
    power,
    quarter_turns,
    trigonometric,
)
from .code import DOUBLE, FLOAT, Near, Value, function_text
from .float64 import (
    error_function as error_function_float64,
    exponential as exponential_float64,
    logarithm as logarithm_float64,
    power as power_float64,
)

#: name → (operands, arithmetic)
FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    "exp": (1, exponential.exp),
    "exp2": (1, exponential.exp2),
    "exp10": (1, exponential.exp10),
    "sigmoid": (1, exponential.sigmoid),
    "tanh": (1, hyperbolic.tanh),
    "sinh": (1, hyperbolic.sinh),
    "cosh": (1, hyperbolic.cosh),
    "asinh": (1, hyperbolic.asinh),
    "acosh": (1, hyperbolic.acosh),
    "atanh": (1, hyperbolic.atanh),
    "log": (1, logarithm.log),
    "log2": (1, logarithm.log2),
    "log10": (1, logarithm.log10),
    "log1p": (1, logarithm.log1p),
    "power": (2, power.power),
    "sin": (1, trigonometric.sin),
    "cos": (1, trigonometric.cos),
    "tan": (1, trigonometric.tan),
    "asin": (1, inverse_trigonometric.asin),
    "acos": (1, inverse_trigonometric.acos),
    "atan": (1, inverse_trigonometric.atan),
    "atan2": (2, inverse_trigonometric.atan2),
    "erf": (1, error_function.erf),
    "hypot": (2, hypotenuse.hypot),
    **{name: (1, rule) for name, rule in power.LITERAL_POWERS.values()},
}
#: those of float64: name → (own name, arithmetic)
FLOAT64: dict[str, tuple[str, Callable[..., Value]]] = {
    "exp": ("exp_float64", exponential_float64.exp),
    "sigmoid": ("sigmoid_float64", exponential_float64.sigmoid),
    "tanh": ("tanh_float64", exponential_float64.tanh),
    "sinh": ("sinh_float64", exponential_float64.sinh),
    "cosh": ("cosh_float64", exponential_float64.cosh),
    "log": ("log_float64", logarithm_float64.log),
    "erf": ("erf_float64", error_function_float64.erf),
    "exp2": ("exp2_float64", exponential_float64.exp2),
    "exp10": ("exp10_float64", exponential_float64.exp10),
    "log2": ("log2_float64", logarithm_float64.log2),
    "log10": ("log10_float64", logarithm_float64.log10),
    "log1p": ("log1p_float64", logarithm_float64.log1p),
    "asinh": ("asinh_float64", hyperbolic.asinh),
    "acosh": ("acosh_float64", hyperbolic.acosh),
    "atanh": ("atanh_float64", hyperbolic.atanh),
    "power": ("power_float64", power_float64.power),
    "sin": ("sin_float64", lambda c, x: c.of_c("sin", x)),
    "cos": ("cos_float64", lambda c, x: c.of_c("cos", x)),
    "tan": ("tan_float64", lambda c, x: c.of_c("tan", x)),
    "asin": ("asin_float64", inverse_trigonometric.asin),
    "acos": ("acos_float64", inverse_trigonometric.acos),
    "atan": ("atan_float64", inverse_trigonometric.atan),
    "atan2": ("atan2_float64", inverse_trigonometric.atan2),
    "hypot": ("hypot_float64", hypotenuse.hypot),
    **{name: (f"{name}_float64", rule) for name, rule in power.LITERAL_POWERS.values()},
}
#: name → arithmetic for arguments of few quarter turns
_NEAR = {"sin": quarter_turns.sin, "cos": quarter_turns.cos, "tan": quarter_turns.tan}
#: functions that branch, the vectors of which are written, since LLVM makes none
BRANCHING = tuple(_NEAR)
NARROW = ("float32", "float16", "bfloat16")

for _name, (_arity, _) in FUNCTIONS.items():
    define(_name, _arity)
for _name, (_own, _) in FLOAT64.items():
    define(_own, FUNCTIONS[_name][0])

#: own name → (name, arithmetic, kind)
_WRITTEN = {
    **{name: (name, rule, FLOAT) for name, (_, rule) in FUNCTIONS.items()},
    **{own: (name, rule, DOUBLE) for name, (own, rule) in FLOAT64.items()},
}


@cache
def llvm_function(name: str, lanes: int) -> str:
    """The LLVM function of an own name, for vectors of a width."""
    shown, rule, kind = _WRITTEN[name]
    near = None
    if shown in _NEAR and (lanes > 1 or kind == DOUBLE):  # LLVM makes no vectors of branches
        near = Near(_NEAR[shown], quarter_turns.LIMITS[kind])
    arity = FUNCTIONS[shown][0]
    return function_text(symbol(name, lanes), rule, arity, lanes, kind, near)


def elementary_calls(func: Any) -> int:
    """The number of calls of elementary functions in a scheduled function."""
    calls = []

    def seen(node: Expr) -> Expr:
        calls.append(node)
        return node

    replace_calls(func, dict.fromkeys(FUNCTIONS, seen))
    return len(calls)


def with_own_functions(func: Any) -> Any:
    """``exp(x) → tvm_autodiff.exp(x)`` and so on for the table, ``power(x, 2) → square(x)``.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((4,), name="A")
    >>> func = te.create_prim_func([A, te.compute((4,), lambda i: te.exp(A[i]), name="B")])
    >>> "tvm_autodiff_exp(A[v_i])" in with_own_functions(func).script()
    True
    """
    used: dict[str, None] = {}

    def own(node: Expr) -> Expr:
        name, args = op_name(node), operands(node)
        if name == "power" and (exponent := const_value(args[1])) in power.LITERAL_POWERS:
            name, args = power.LITERAL_POWERS[exponent][0], args[:1]
        if dtype_of(node) == "float64" and name in FLOAT64:
            name = FLOAT64[name][0]
            used[name] = None
            return own_call(name, args, "float64")
        if dtype_of(node) not in NARROW:
            return node
        used[name] = None
        return own_call(name, args)

    func = replace_calls(func, dict.fromkeys(FUNCTIONS, own))
    widths = vector_widths(func) if used else []
    for name in used:
        for lanes in widths:
            func = with_llvm_code(func, llvm_function(name, lanes))
    return func
