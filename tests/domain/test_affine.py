"""Linear forms: what cancels, how they are written, that they keep the value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tvm import te, tirx

from tests.domain.systems import linear
from tvm_autodiff.domain.affine import Atoms
from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.expr.nodes import const_value, dtype_of, op_name, operands
from tvm_autodiff.expr.rewrite import postorder

i, j, m, n = (te.var(name) for name in "ijmn")
table = te.placeholder((8,), "int32", name="table")
wide = te.var("w", "int64")


def atoms() -> Atoms:
    """i in [0, 100), j in [0, 5), n at least 1."""
    found = Atoms()
    found.symbol(i, (0, 99))
    found.symbol(j, (0, 4))
    found.symbol(n, (1, None))
    return found


WRITTEN: list[tuple[Any, str]] = [
    (i + j - i, "j"),
    (2 * (i - 3) + 6, "i * 2"),
    (i * n - n * i + 1, "1"),
    ((i + 1) * (n - 1), "n + i * n - i - 1"),
    ((i * 5 + j) // 5, "i"),
    ((i * 5 + j) % 5, "j"),
    ((2 - i) % 3, "(i * 2 + 2) % 3"),
    ((9 - i) // 10, "i // 10 * -1"),
    (i - i // 5 * 5, "i % 5"),
    (i - i % 5, "i // 5 * 5"),
    (i % 25 // 5, "i // 5 % 5"),
    (i // 2 // 3, "i // 6"),
    (6 * i // 4, "i + i // 2"),
    ((10 * i + j) // 20, "i // 2"),
    (i - i // 2, "(i + 1) // 2"),
    (-(i // 3), "i // 3 * -1"),
    (tirx.truncdiv(i, tirx.const(4, "int32")), "i // 4"),
    (tirx.truncmod(-i, tirx.const(4, "int32")), "i % 4 * -1"),
    (tirx.floordiv(i, -3), "(i + 2) // 3 * -1"),
    ((i * n + j) // n, "i + j // n"),
    (i - i // n * n, "i % n"),
    (i // n // m, "i // (n * m)"),
    (te.min(i, j) + te.min(i, j), "T.min(i, j) * 2"),
    (wide + i.astype("int64"), 'T.Cast("int64", i) + w'),
]


@pytest.mark.parametrize(("expr", "text"), WRITTEN, ids=[text for _, text in WRITTEN])
def test_written(expr: Any, text: str) -> None:
    table_of_atoms = atoms()
    assert str(table_of_atoms.expr(table_of_atoms.form(expr))) == text


CONDITIONS: list[tuple[Any, list[str]]] = [
    (i < j, ["i < j"]),
    (i * 2 + 3 >= j, ["j <= i * 2 + 3"]),
    (tirx.all(i > 3, tirx.Not(i >= 9)), ["i >= 4", "i <= 8"]),
    (te.max(i, j) <= 3, ["i <= 3", "j <= 3"]),
    (te.min(i, n) > 3, ["i >= 4", "n >= 4"]),
    (tirx.likely(i < 3), ["i <= 2"]),
    ((i % 3).equal(1), ["i % 3 == 1"]),
    (tirx.NE(i % 2, 0), ["i % 2 == 1"]),
    ((0 - i).equal(-3), ["i == 3"]),
]


@pytest.mark.parametrize(("expr", "texts"), CONDITIONS, ids=[str(t) for _, t in CONDITIONS])
def test_condition(expr: Any, texts: list[str]) -> None:
    found = atoms()
    condition = expr.asobject() if hasattr(expr, "asobject") else expr
    assert [str(found.condition(kind, f)) for kind, f in found.conditions(condition)] == texts


def test_equal_loads_are_one_atom() -> None:
    found = atoms()
    assert found.form(table[i + 1] - table[1 + i]) == {}
    assert found.form(table[i + 1] - table[i]) != {}


def test_deep_expressions() -> None:
    expr = i
    for _ in range(1500):
        expr = expr + j
    found = atoms()
    assert str(found.expr(found.form(expr))) == "i + j * 1500"


@pytest.mark.slow
@settings(max_examples=400)
@given(linear([i, j]), st.integers(0, 99), st.integers(0, 4))
def test_value_is_kept(expr: Any, at_i: int, at_j: int) -> None:
    found = atoms()
    written = found.expr(found.form(expr))
    one, other = compile_integers([expr, written], [i, j])(at_i, at_j)
    assert one == other


@pytest.mark.slow
@settings(max_examples=400)
@given(linear([i, j]))
def test_coefficients_inside_divisions_are_reduced(expr: Any) -> None:
    """TVM compiles other forms wrongly where they index a buffer."""
    found = atoms()
    for node in postorder(found.expr(found.form(expr))):
        if op_name(node) in ("floordiv", "floormod"):
            numerator, divisor = operands(node)
            c = const_value(divisor)
            high, _low = found.split(found.form(numerator), c)
            assert not high or op_name(numerator) in ("floordiv", "floormod")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("factor", [50, -50])
def test_a_narrow_sum_of_terms_that_are_not(dtype: str, factor: int) -> None:
    """``200 - 50*t`` fits int8 for t in [2, 4), and 200 does not."""
    t, found = te.var("t"), Atoms()
    found.symbol(t, (2, 3) if factor > 0 else (5, 6))
    found.symbol(i, (0, 99))
    narrow = tirx.Cast(dtype, (4 - t + i - i) * factor)
    written = found.expr(found.form(narrow), dtype)
    assert dtype_of(written) == dtype
    for value in (2, 3) if factor > 0 else (5, 6):
        assert compile_integers([written], [t])(value) == ((4 - value) * factor,)
