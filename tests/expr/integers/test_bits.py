"""Bits of indices as quotients and remainders: which become so, and equal values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate
from tvm_autodiff.expr.integers.bits import without_bits
from tvm_autodiff.expr.nodes import BITWISE_CLASSES, op_name
from tvm_autodiff.expr.rewrite import postorder

i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
wide, u = tirx.Var("w", "int64"), tirx.Var("u", "uint32")
data = te.placeholder((9,), "int32", name="data")
BITS = {*BITWISE_CLASSES, "bitwise_not"}

#: an expression, and whether nothing of its bits is left
CASES = {
    "a shift": (i >> 3, True),
    "a shift to the left": (i << 4, True),
    "by the sign": (i << 31, False),
    "of 64 bits": (wide >> 40, True),
    "the last bits": (i & 7, True),
    "the first bits": (i & 0x7FFFFFF0, False),
    "all bits": (i & -1, True),
    "one bit": (i & 8, True),
    "a run": (i & 0b11100, True),
    "two runs": (i & 0b101, False),
    "all but one bit": (i & ~16, True),
    "all but the last": (i & -8, True),
    "no bit": (i & 0, True),
    "the mask first": (6 & i, True),
    "a bit set": (i | 4, True),
    "a partner": (i ^ 16, True),
    "a partner in its block": ((i >> 2 ^ 1) * 4 + (i & 3), True),
    "all bits turned": (~i, True),
    "a mirrored block": (i ^ 15, True),
    "two loops": (i ^ j, False),
    "of a sum of loops": (i * 4 + j ^ 8, True),
    "of data": (data[i] ^ 8, False),
    "unsigned": (u ^ tirx.const(8, "uint32"), False),
    "in a condition": (tirx.Select((i & 4) == (j & 8), i, j), True),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left(name: str) -> None:
    expr, becomes = CASES[name]
    found = without_bits(expr)
    assert any(op_name(one) in BITS for one in postorder(found)) != becomes


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][1]])
def test_equal_values(name: str) -> None:
    expr, _ = CASES[name]
    values = [np.arange(-40, 41)] * 2
    grids: Any = np.meshgrid(*values, indexing="ij")
    table = {i: grids[0].astype("int32"), j: grids[1].astype("int32")}
    table[wide] = grids[0].astype("int64") << 38
    np.testing.assert_array_equal(evaluate(without_bits(expr), table), evaluate(expr, table))
