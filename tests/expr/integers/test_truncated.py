"""Divisions that round to zero, written as ones that round down: equal values, and which stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.expr.integers.intervals import Intervals
from tvm_autodiff.expr.integers.truncated import with_floor_divisions
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import contains

i, n = te.var("i"), te.var("n")


def literal(value: int) -> Any:
    return te.const(value, "int32")


#: name → an expression of i in -9..9, and whether a division that rounds to zero is left
CASES: dict[str, tuple[Any, bool]] = {
    "a remainder that is never negative": (tirx.truncmod(9 - i, literal(4)), False),
    "a quotient that is never negative": (tirx.truncdiv(i + 9, literal(4)), False),
    "a remainder": (tirx.truncmod(i * 3 - 2, literal(4)), False),
    "a quotient": (tirx.truncdiv(1 - i, literal(3)), False),
    "one in the other": (tirx.truncmod(tirx.truncdiv(i, literal(2)) - 1, literal(3)), False),
    "a negative divisor": (tirx.truncmod(i, literal(-4)), True),
    "a divisor that is no literal": (tirx.truncmod(i, i + 10), True),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    expr, left = CASES[name]
    found = with_floor_divisions(expr, Intervals(lambda var: (-9, 9)))
    kinds = ("truncdiv", "truncmod")
    assert contains([found], lambda node: op_name(node) in kinds) == left
    both = compile_integers([expr, found], [i])
    for place in range(-9, 10):
        one, other = both(place)
        assert one == other


@pytest.mark.parametrize("shift", [4, 3, 1])
@pytest.mark.parametrize("place", [lambda i: 4 - i, lambda i: i])
def test_places_that_vectors_run_through(place: Callable[[Any], Any], shift: int) -> None:
    """A minimum over rows whose lanes count down."""
    b, a = te.placeholder((7,), "float64", name="b"), te.placeholder((2,), "float64", name="a")
    k = te.reduce_axis((0, 2), "k")

    def body(i: Any) -> Any:
        at = tirx.truncmod(place(i) + (shift - 4), literal(2)) + 1
        return te.min((b[at] + a[k]) * te.tanh(b[i % 2]), axis=k)

    y = te.compute((5,), body, name="y")
    rng = np.random.default_rng(0)
    values, parts = rng.normal(size=7), rng.normal(size=2)
    got = ad.build([b, a], y, cache=False)(values, parts)
    places = np.fmod([place(i) + shift - 4 for i in range(5)], 2) + 1
    rows = np.arange(5) % 2
    want = ((values[places][:, None] + parts) * np.tanh(values[rows])[:, None]).min(1)
    np.testing.assert_allclose(got, want, rtol=1e-12)
