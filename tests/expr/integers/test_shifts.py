"""Divisions by powers of two that are shifts: which become shifts, and equal values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx

from tests.evaluate import evaluate
from tvm_autodiff.expr.integers.intervals import Intervals
from tvm_autodiff.expr.integers.shifts import with_shifts
from tvm_autodiff.expr.nodes import node_id, op_name
from tvm_autodiff.expr.rewrite import postorder

a, n = tirx.Var("a", "int32"), tirx.Var("n", "int32")
u = tirx.Var("u", "uint32")


def one(dtype: str = "int32") -> Any:
    return tirx.const(1, dtype)


def intervals(places: tuple[int, int]) -> Intervals:
    whole = (-(2**31), 2**31 - 1)
    return Intervals(lambda var: places if node_id(var) == node_id(n) else whole)


#: an expression, the interval of n, and whether it is a shift
CASES = {
    "a quotient": (a // (one() << n), (0, 30), True),
    "a remainder": (a % (one() << n), (0, 30), True),
    "of both": (a // (one() << n) % (one() << (n + 2)), (0, 9), True),
    "the sign": (a // (one() << n), (0, 31), False),
    "a negative shift": (a // (one() << n), (-1, 4), False),
    "another number": (a // ((one() + 1) << n), (0, 4), False),
    "rounded towards zero": (tirx.truncdiv(a, one() << n), (0, 4), False),
    "of 64 bits": (a.astype("int64") // (one("int64") << n.astype("int64")), (0, 62), True),
    "unsigned": (u // (one("uint32") << n.astype("uint32")), (0, 9), False),
}


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_a_shift(name: str) -> None:
    expr, places, becomes = CASES[name]
    found = with_shifts(expr, intervals(places))
    divisions = [one for one in postorder(found) if op_name(one) in ("floordiv", "floormod")]
    assert bool(divisions) != becomes or name == "rounded towards zero"
    if not becomes:
        assert node_id(found) == node_id(expr)
        return
    for number in (-(2**31), -1000, -7, -1, 0, 1, 6, 12345, 2**31 - 1):
        for place in range(places[0], min(places[1], 30) + 1):
            given = {a: np.int32(number), n: np.int32(place)}
            assert evaluate(found, given) == evaluate(expr, given)
