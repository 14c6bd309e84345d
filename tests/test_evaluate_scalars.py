"""Loop nests on single numbers: rounding, choices, what is shared, and accesses outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx

from tests.evaluate import OutsideRead
from tests.evaluate_scalars import Frame, statement_of, value_of

X, Y = (tirx.decl_buffer((4,), "float32", name) for name in "xy")
I = tirx.Var("i", "int32")  # noqa: E741


def frame(**values: Any) -> Frame:
    arrays = {(hash(X), 0): np.arange(4, dtype="float32"), (hash(Y), 0): np.zeros(4, "float32")}
    return Frame({hash(I): np.int32(values.get("i", 0))}, arrays)


def loop(body: Any, extent: int = 4) -> Any:
    return tirx.For(I, 0, extent, tirx.ForKind.SERIAL, body)


def test_integers_wrap_and_floats_are_rounded() -> None:
    byte = tirx.Cast("uint8", I) + tirx.const(250, "uint8")
    assert value_of(byte)(frame(i=10)) == 4
    third = tirx.Cast("float16", I) / tirx.const(3, "float16")
    found = value_of(third)(frame(i=1))
    assert float(found) == float(np.float16(1) / np.float16(3)) != 1 / 3


def test_only_the_branch_that_is_taken_reads() -> None:
    read = tirx.BufferLoad(X, [I + 2])
    for make in (tirx.if_then_else, tirx.Select):
        value = value_of(make(I < 2, read, tirx.const(-1, "float32")))
        found = []
        for place in range(4):
            at = frame(i=place)
            found.append(float(value(at)))
        assert found == [2, 3, -1, -1]
    for place in (2, -3):
        with pytest.raises(OutsideRead):
            value_of(read)(frame(i=place))


def test_what_is_shared_is_computed_once() -> None:
    value = I + 1
    for _ in range(60):
        value = tirx.Select(value > 0, value, -value)
    assert value_of(value)(frame(i=4)) == 5


def test_statements_see_new_values_of_variables_and_buffers() -> None:
    """``for i: y[i] = x[i]*2; y[3 - i] = y[i] + 1``, where each expression is one node."""
    double = tirx.BufferStore(Y, tirx.BufferLoad(X, [I]) * tirx.const(2, "float32"), [I])
    other = tirx.BufferStore(Y, tirx.BufferLoad(Y, [I]) + tirx.const(1, "float32"), [3 - I])
    at = frame()
    statement_of(loop(tirx.SeqStmt([double, other])))(at)
    expected = np.zeros(4, "float32")
    for i in range(4):
        expected[i] = 2 * i
        expected[3 - i] = expected[i] + 1
    np.testing.assert_array_equal(at.buffers[hash(Y), 0], expected)


def test_a_store_outside_is_an_error() -> None:
    store = tirx.BufferStore(Y, tirx.const(1, "float32"), [I])
    with pytest.raises(AssertionError, match="a store outside of y"):
        statement_of(loop(store, 5))(frame())
