"""Constructors that fold constants: conversions of literals."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx

from tvm_autodiff.expr.build import cast
from tvm_autodiff.expr.nodes import const_value

#: a literal, its dtype, and the dtype that it is converted to
LITERALS = [
    (-4, "int32", "uint8"),
    (-4, "int32", "uint32"),
    (300, "int32", "uint8"),
    (200, "int32", "int8"),
    (-129, "int32", "int8"),
    (2**31, "int64", "int32"),
    (7, "int32", "uint64"),
    (-3, "int32", "float32"),
    (2.9, "float32", "int32"),
    (-2.9, "float32", "int8"),
]


@pytest.mark.parametrize("case", LITERALS, ids=str)
def test_literals_are_converted_as_numpy_does(case):
    value, source, target = case
    found = const_value(cast(target, tirx.const(value, source)))
    assert found == np.asarray(value, source).astype(target)


@pytest.mark.parametrize("case", [(-3.0, "uint8"), (300.0, "int8"), (1e20, "int32")], ids=str)
def test_a_literal_out_of_range_stays_a_conversion(case):
    value, target = case
    assert const_value(cast(target, tirx.const(value, "float64"))) is None
