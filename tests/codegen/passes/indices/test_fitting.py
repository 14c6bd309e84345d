"""Expressions that need no wider types: with exact integers, and beside what rewrites them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from tvm import te, tirx

from tests.exact_integers import exact_values
from tests.expr.integers.test_widths import POINTS, RANGES, i, j, n, random_expression
from tvm_autodiff.codegen.passes.indices.fitting import Fitting
from tvm_autodiff.expr.integers.widths import Widths
from tvm_autodiff.expr.nodes import dtype_of, op_name
from tvm_autodiff.expr.rewrite import postorder

x = te.var("x", "float32")
u = te.var("u", "uint8")


def interval(var: Any) -> tuple[int, int]:
    return RANGES.get(var.name, (0, 255))


def dtypes_of(expr: Any) -> Counter[tuple[str, str]]:
    """How many nodes of each kind and type, literals aside, whose conversions are folded."""
    return Counter((op_name(e), dtype_of(e)) for e in postorder(expr) if op_name(e) != "const")


def number(value: int, dtype: str) -> Any:
    return tirx.const(value, dtype)


#: expression → whether all of it fits
CASES: dict[str, tuple[Any, bool]] = {
    "an index": (i * 16 + j, True),
    "one that is too large": (i * 441 % 160, False),
    "one inside of an int64": ((i * 441).astype("int64"), False),
    "int64 arithmetic": (i.astype("int64") * 441, True),
    "one in a condition": (tirx.Select(i * 441 < 5, x, x * 2.0), False),
    "floats": (tirx.Select(i < 5, x, x * 2.0), True),
    "narrow arithmetic": (u + number(1, "uint8"), False),
    "a conversion that wraps round": (i.astype("uint8"), False),
    "a conversion that does not": (u.astype("int32") * 3, True),
    "an unsigned comparison": (tirx.LT(u, number(1, "uint8")), False),
    "lanes": (tirx.Ramp(i, number(1, "int32"), 8), True),
    "lanes of what is too large": (tirx.Ramp(i * 441, number(1, "int32"), 8), False),
    "lanes that are": (tirx.Ramp(i, number(2**30, "int32"), 8), False),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    expr, wanted = CASES[name]
    assert Fitting(interval)([expr]) is wanted


def test_what_fits_is_remembered_and_what_does_not_is_not() -> None:
    fits = Fitting(interval)
    shared = i * 441
    assert not fits([j, shared])
    assert fits([j])
    assert not fits([shared + 1])


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_random_expressions(block: int) -> None:
    """What fits stays in its types at corners, and what rewrites indices widens none of it."""
    rng, fitting = random.Random(block), 0
    for _ in range(60):
        expr = random_expression(rng, rng.randint(1, 3))
        if not Fitting(interval)([expr]):
            continue
        fitting += 1
        new = Widths(interval, explicit=True).exact(expr)
        assert dtypes_of(new) <= dtypes_of(expr)
        for point in POINTS:
            exact_values(expr, dict(zip((i, j, n), point, strict=True)), checked=True)
    assert 3 < fitting < 57
