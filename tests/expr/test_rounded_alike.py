"""Products that are added are one operation, whatever is around them."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tvm_autodiff.expr.nodes import dtype_of, op_name, operands
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.expr.rounded_alike import rounded_alike

a, b, c, d = (te.var(name, "float32") for name in "abcd")
i, j = te.var("i"), te.var("j")

CASES = {
    "a product first": (a * b + c, "fma(a, b, c)"),
    "a product last": (c + a * b, "fma(a, b, c)"),
    "less a number": (a * b - c, "fma(a, b, -c)"),
    "a number less it": (c - a * b, "fma(-a, b, c)"),
    "two products": (a * b + c * d, "fma(a, b, c*d)"),
    "three products": (a * b + c * d + a * c, "fma(a, c, fma(a, b, c*d))"),
    "within a function": (te.exp(a * b + 1), "exp(fma(a, b, 1.0))"),
    "in a condition": (tirx.Select(a * b + c > 0, a, b), "select(fma(a, b, c) > 0.0, a, b)"),
    "no product": (a + b - c, "a + b - c"),
    "no sum": (a * b / c, "a*b/c"),
    "integers": (i * 2 + j, "i*2 + j"),
    "a narrow float": (
        tirx.Cast("float16", a) * tirx.Cast("float16", b) + tirx.Cast("float16", c),
        "float16(a)*float16(b) + float16(c)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rounded_alike(name: str) -> None:
    expr, want = CASES[name]
    got = rounded_alike(expr)
    assert text(got) == want


def test_no_product_is_left_that_may_be_fused() -> None:
    for expr, _ in CASES.values():
        for node in postorder(rounded_alike(expr)):
            if op_name(node) in ("add", "sub") and dtype_of(node) == "float32":
                assert "mul" not in map(op_name, operands(node))
