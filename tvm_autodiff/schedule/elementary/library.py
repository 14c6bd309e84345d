"""Calls the C library where TVM's own version of a function is less exact, and writes as arithmetic
what TVM computes in vectors only then.

With exact math, tanh is the C library's (TVM's ``(1 - e**-2x)/(1 + e**-2x)`` loses small x),
sigmoid is computed in float64, because ``e**-x`` overflows where the result does not vanish, and
exp10 is a power (TVM's ``e**(x*ln 10)`` is 80 units off in float32). In float64 exp10 is always a
power. An inverse root is a quotient, as TVM writes it, too, but only after loops are vectors.
"""

from __future__ import annotations

from typing import Any

from ...expr.build import call, cast, div, like
from ...expr.intrinsics import library_call, replace_calls
from ...expr.nodes import Expr, dtype_of, operands

_SUFFIX = {"float32": "f", "float64": ""}


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

    def tanh(node: Expr) -> Expr:
        if not exact:
            return node
        kind = dtype_of(node)
        wide = kind if kind in _SUFFIX else "float32"
        value = library_call(f"tanh{_SUFFIX[wide]}", cast(wide, operands(node)[0]))
        return cast(kind, value)

    def exp10(node: Expr) -> Expr:
        [x] = operands(node)
        wanted = exact or dtype_of(node) == "float64"
        return call("power", like(x, 10.0), x) if wanted else node

    def sigmoid(node: Expr) -> Expr:
        kind = dtype_of(node)
        if not exact or kind == "float64":
            return node
        return cast(kind, call("sigmoid", cast("float64", operands(node)[0])))

    def rsqrt(node: Expr) -> Expr:
        [x] = operands(node)
        return div(like(x, 1.0), call("sqrt", x))

    rules = {"tanh": tanh, "exp10": exp10, "sigmoid": sigmoid, "rsqrt": rsqrt}
    return replace_calls(func, rules)
