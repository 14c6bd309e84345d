"""Calls the C library where TVM's own version of a function is less exact, writes as arithmetic
what TVM computes in vectors only then, and computes in float32 what has no version in 16 bits.

With exact math, tanh is the C library's (TVM's ``(1 - e**-2x)/(1 + e**-2x)`` loses small x),
sigmoid is computed in float64, because ``e**-x`` overflows where the result does not vanish, and
exp10 is a power (TVM's ``e**(x*ln 10)`` is 80 units off in float32). An inverse root is a quotient,
as TVM writes it, too, but only after loops are vectors.
"""

from __future__ import annotations

from typing import Any

from ...codegen.functions import replace_calls
from ...expr.build import add, all_of, any_of, call, cast, compare, const, div, like, select, sub
from ...expr.intrinsics import define_of_c, library_call, own_call
from ...expr.nodes import Expr, call_node, dtype_of, op_name, operands

_HALF = ("float16", "bfloat16")
_SUFFIX = {"float32": "f", "float64": ""}

#: functions that neither LLVM nor CUDA has in 16 bits
_IN_FLOAT32 = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cosh", "erf"),
    *("fma", "hypot", "log1p", "power", "sinh", "tan"),
)


def with_wide_functions(func: Any) -> Any:
    """``asinh(x: float16) → float16(asinh(float32(x)))``, and a step to the next number in bits.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((4,), "float16", name="A")
    >>> func = te.create_prim_func([A, te.compute((4,), lambda i: te.asinh(A[i]), name="B")])
    >>> 'T.asinh(T.Cast("float32", A[v_i]))' in with_wide_functions(func).script()
    True
    """

    def in_float32(node: Expr) -> Expr:
        kind = dtype_of(node)
        if kind not in _HALF:
            return node
        wider = (cast("float32", part) for part in operands(node))
        return cast(kind, call(op_name(node), *wider))

    def nextafter(node: Expr) -> Expr:
        x, y = operands(node)
        return _next_number(x, y) if dtype_of(node) in _HALF else node

    return replace_calls(func, {**dict.fromkeys(_IN_FLOAT32, in_float32), "nextafter": nextafter})


def with_fused_products(func: Any) -> Any:
    """``fma(a, b, c) → C's fmaf(a, b, c)`` for CUDA, for which TVM has no such function.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((4,), name="A")
    >>> fused = te.compute((4,), lambda i: call_node("fma", [A[i], A[i], A[i]], "float32"))
    >>> text = with_fused_products(te.create_prim_func([A, fused])).script()
    >>> "T.tvm_autodiff_fused(A[v_i], A[v_i], A[v_i])" in text
    True
    """
    define_of_c("fused", 3, {kind: f"fma{suffix}" for kind, suffix in _SUFFIX.items()}, "cuda")
    return replace_calls(
        func, {"fma": lambda node: own_call("fused", operands(node), dtype_of(node))}
    )


def _next_number(x: Expr, y: Expr) -> Expr:
    """The number after x on the way to y: numbers of one sign are ordered as their bits are."""
    zero, one = like(x, 0.0), const(1, "uint16")
    bits = call_node("reinterpret", [x], "uint16")
    up = all_of([compare("lt", x, y), compare("lt", zero, x)])
    down = all_of([compare("lt", y, x), compare("lt", x, zero)])
    moved = select(any_of([up, down]), add(bits, one), sub(bits, one))
    least = select(compare("lt", y, zero), const(0x8001, "uint16"), one)
    stepped = call_node("reinterpret", [select(compare("eq", x, zero), least, moved)], dtype_of(x))
    # a comparison with NaN is false: the sum is NaN
    ordered = any_of([compare("lt", x, y), compare("lt", y, x)])
    return select(ordered, stepped, select(compare("eq", x, y), y, add(x, y)))


def with_library_functions(func: Any, exact: bool) -> Any:
    """``tanh(x) → C's tanh, exp10(x) → power(10, x), rsqrt(x) → 1/sqrt(x)``.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((4,), "float64", name="A")
    >>> func = te.create_prim_func([A, te.compute((4,), lambda i: te.tanh(A[i]), name="B")])
    >>> text = with_library_functions(func, exact=True).script()
    >>> 'T.call_pure_extern("float64", "tanh", A[v_i])' in text
    True
    """

    def of_c(node: Expr) -> Expr:
        kind = dtype_of(node)
        wide = kind if kind in _SUFFIX else "float32"
        value = library_call(f"{op_name(node)}{_SUFFIX[wide]}", cast(wide, operands(node)[0]))
        return cast(kind, value)

    def tanh(node: Expr) -> Expr:
        return of_c(node) if exact else node

    def atanh(node: Expr) -> Expr:
        # of small numbers, TVM's quotient of 1 + x and 1 - x is 1
        return of_c(node) if exact else node

    def exp10(node: Expr) -> Expr:
        [x] = operands(node)
        return call("power", like(x, 10.0), x) if exact else node

    def sigmoid(node: Expr) -> Expr:
        kind = dtype_of(node)
        if not exact or kind == "float64":
            return node
        return cast(kind, call("sigmoid", cast("float64", operands(node)[0])))

    def rsqrt(node: Expr) -> Expr:
        [x] = operands(node)
        return div(like(x, 1.0), call("sqrt", x))

    rules = {"tanh": tanh, "atanh": atanh, "exp10": exp10, "sigmoid": sigmoid, "rsqrt": rsqrt}
    return replace_calls(func, rules)
