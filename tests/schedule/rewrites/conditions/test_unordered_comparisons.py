"""Comparisons with NaN: forward, gradients in both modes, in every dtype of floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tvm_autodiff.expr.build import compare
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.schedule.rewrites.conditions.unordered_comparisons import (
    with_unordered_comparisons,
)

#: name → a condition on a number, which numpy and TVM both take
CONDITIONS: dict[str, Callable[[Any], Any]] = {
    "lt": lambda x: x < 1.0,
    "le": lambda x: x <= 1.0,
    "gt": lambda x: x > 1.0,
    "ge": lambda x: x >= 1.0,
    "eq": lambda x: x == 2.0,
    "ne": lambda x: x != 2.0,
    "is a number": lambda x: x == x,
    "is none": lambda x: x != x,
    "square is a number": lambda x: x * x == x * x,
}
#: name → what TVM and numpy make of conditions
JOINED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "any": (lambda x: te.any(x < 1.0, x > 5.0), lambda x: (x < 1.0) | (x > 5.0)),
    "all": (lambda x: te.all(x < 1.0, x > -5.0), lambda x: (x < 1.0) & (x > -5.0)),
    "not": (lambda x: tirx.Not(x < 1.0), lambda x: ~(x < 1.0)),
    "not any": (lambda x: tirx.Not(te.any(x < 1.0, x > 5.0)), lambda x: ~((x < 1) | (x > 5))),
    "not all": (lambda x: tirx.Not(te.all(x < 1.0, x > -5.0)), lambda x: ~((x < 1) & (x > -5))),
    "chosen": (
        lambda x: tirx.Select(x < 1.0, x > -5.0, x < 5.0),
        lambda x: np.where(x < 1.0, x > -5.0, x < 5.0),
    ),
    "chosen by branches": (
        lambda x: tirx.if_then_else(x > 1.0, x > 5.0, tirx.Not(x > -5.0)),
        lambda x: np.where(x > 1.0, x > 5.0, ~(x > -5.0)),
    ),
}
ALL = {**{name: (one, one) for name, one in CONDITIONS.items()}, **JOINED}
NUMBERS = np.array([0.0, np.nan, 2.0, np.inf, -np.inf, -9.0] + 11 * [np.nan, 1.0])
DTYPES = {"float16": np.float16, "float32": np.float32, "float64": np.float64,
          "bfloat16": ml_dtypes.bfloat16}  # fmt: skip


@pytest.mark.parametrize("choose", [tirx.if_then_else, tirx.Select])
@pytest.mark.parametrize("name", ALL)
def test_values_and_derivatives(name: str, choose: Callable[..., Any]) -> None:
    holds, expected = ALL[name]
    n = len(NUMBERS)
    x, y, h = (te.placeholder((n,), "float32", name=name) for name in "xyh")
    z = te.compute((n,), lambda i: choose(holds(x[i]), y[i] * 2.0, y[i] * 3.0), name="z")
    [dy], [dz] = ad.differentiate(z, [y], h), ad.jvp(z, [y], [h])
    ones = np.ones(n, "float32")
    wanted = np.where(expected(NUMBERS), 2, 3)
    for got in ad.build([x, y, h], [z, dy, dz], cache=False)(NUMBERS.astype("f"), ones, ones):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["lt", "is none", "not any"])
def test_dtypes(name: str, dtype: str) -> None:
    holds, expected = ALL[name]
    x = te.placeholder((len(NUMBERS),), dtype, name="x")
    one, two = tirx.const(1, dtype), tirx.const(2, dtype)
    z = te.compute(x.shape, lambda i: tirx.Select(tirx.Not(holds(x[i])), one, two), name="z")
    [got] = ad.build([x], [z], cache=False)(NUMBERS.astype(DTYPES[dtype]))
    np.testing.assert_array_equal(got.astype("f"), np.where(expected(NUMBERS), 2, 1))


A, B, N = tirx.Var("a", "float32"), tirx.Var("b", "float32"), tirx.Var("n", "int32")
FORMS = [
    (tirx.Select(tirx.Not(A < B), A, B), "select(a < b, b, a)"),
    (tirx.if_then_else(tirx.Not(A < B), A, B), "if a < b then b else a"),
    (tirx.Select(compare("ne", A, B), A, B), "select(a == b, b, a)"),
    (tirx.Not(A < 1.0), "not itself(a < 1.0)"),
    (tirx.Not(compare("eq", A, B)), "not itself(a == b)"),
    (tirx.Not(compare("ne", A, B)), "itself(a == b)"),
    (tirx.Not(N < 3), "n >= 3"),
    (tirx.Not(tirx.all(A < 1.0, N < 3)), "not itself(a < 1.0) or n >= 3"),
    (compare("ne", A, B), "not itself(a == b)"),
    (compare("ne", A, A), "not itself(a == itself(a))"),
    (compare("eq", A + 1.0, A + 1.0), "a + 1.0 == itself(a + 1.0)"),
    (compare("ne", N, N + 1), "n != n + 1"),
    (compare("eq", A, B), "a == b"),
]


@pytest.mark.parametrize(("given", "expected"), FORMS, ids=[expected for _, expected in FORMS])
def test_forms(given: Any, expected: str) -> None:
    assert text(with_unordered_comparisons(given)) == expected
