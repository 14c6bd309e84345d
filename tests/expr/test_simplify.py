"""The form of divisions that TVM compiles rightly, and the thin layer over TVM's analyzer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings, strategies as st
from tvm import te, tirx

from tests.domain.systems import linear
from tests.evaluate import evaluate
from tvm_autodiff.errors import UnsolvableError
from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.expr.linear_terms import linear_terms
from tvm_autodiff.expr.nodes import const_value, op_name, operands, same_node
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.expr.simplify import (
    constant_bounds,
    normalize_div_mod,
    prove,
    prove_equal,
    simplify,
)

i, j, n = (te.var(name) for name in "ijn")
x = te.var("x", "float32")
wide = te.var("w", "int64")
table = te.placeholder((8,), "int32", name="table")

NORMAL: list[tuple[Any, str]] = [
    ((2 - j) % 3, "2 - j % 3"),
    ((-1 - j) // 3, "-1 - j // 3"),
    ((i - j) % 3, "(i + j * 2) % 3"),
    ((i - j) // 3, "(i + j * 2) // 3 - j"),
    ((4 * i + 5) // 3, "i + (i + 2) // 3 + 1"),
    ((3 * i + 6) // 3, "i + 2"),
    ((3 * i + 6) % 3, "0"),
    ((i - i + 4) % 3, "1"),
    ((i * 3 + 1) % 4, "3 - (i + 2) % 4"),
    ((i * 3 + 1) // 4, "(i * 3 + 1) // 4"),
    ((i + i % 2) // 2, "(i + 1) // 2"),
    ((i + 8 + i * 3 % 4) // 4, "(i + 3) // 4 + 2"),
    ((j * 4 + i - (i + 2) % 4 - 2) // 4, "j + (i + 2) // 4 - 1"),
    ((2 - wide) % 3, "T.int64(2) - w % T.int64(3)"),
]
UNCHANGED = [
    i % 3,
    (2 * i + 1) // 3,
    i // n,
    tirx.truncdiv(2 - i, tirx.const(3, "int32")),
    x / 3.0,
    te.if_then_else(i < 3, x, te.exp(x)),
]


@pytest.mark.parametrize(("expr", "text"), NORMAL, ids=[str(e) for e, _ in NORMAL])
def test_normal_form(expr: Any, text: str) -> None:
    assert str(normalize_div_mod(expr)) == text


@pytest.mark.parametrize("expr", UNCHANGED, ids=str)
def test_nothing_else_changes(expr: Any) -> None:
    assert same_node(normalize_div_mod(expr), expr)


def test_inside_loads_and_branches() -> None:
    expr = te.if_then_else((1 - i) % 2 == 0, te.exp(x) * table[(3 - i) % 4].astype("float32"), x)
    found = [node for node in postorder(normalize_div_mod(expr)) if op_name(node) == "floormod"]
    assert sorted(str(node) for node in found) == ["(i + 1) % 2", "i % 4"]


def test_large_values_are_not_multiplied() -> None:
    """What is read from memory may be large: only its remainder is multiplied."""
    expr = normalize_div_mod((i - table[j]) // 5)
    for node in postorder(expr):
        if op_name(node) == "mul":
            left, right = operands(node)
            inner = right if const_value(left) is not None else left
            factor = const_value(left) or const_value(right)
            assert factor == -1 or op_name(inner) in ("floormod", "floordiv")


def test_deep_expressions() -> None:
    expr = i
    for _ in range(1500):
        expr = (expr + j) % 7
    assert op_name(normalize_div_mod(expr)) == "floormod"


@pytest.mark.slow
@settings(max_examples=400)
@given(linear([i, j]), st.integers(-20, 20), st.integers(-20, 20))
def test_value_is_kept(expr: Any, at_i: int, at_j: int) -> None:
    one, other = compile_integers([expr, normalize_div_mod(expr)], [i, j])(at_i, at_j)
    assert one == other


@settings(max_examples=400)
@given(linear([i, j]))
def test_coefficients_are_reduced(expr: Any) -> None:
    for node in postorder(normalize_div_mod(expr)):
        if op_name(node) in ("floordiv", "floormod"):
            numerator, divisor = operands(node)
            terms, constant = linear_terms(numerator)
            assert 0 <= constant < const_value(divisor)
            assert all(0 <= k < const_value(divisor) for _, k in terms)


INDICES = [
    lambda v: (2 - v) % 3,
    lambda v: (-1 - v) // 3 + 4,
    lambda v: (7 - 2 * v) % 5,
    lambda v: (11 - 3 * v) // 4 + 6,
    lambda v: (5 - v) // 2 % 3,
]


@pytest.mark.parametrize("place", range(len(INDICES)))
def test_compiles_rightly_as_an_index(place: int) -> None:
    """The reason for the normal form: TVM 0.27 compiles some of these wrongly as they are."""
    index = INDICES[place]
    data = te.placeholder((64,), name="data")
    out = te.compute((9,), lambda v: data[normalize_div_mod(index(v))], name="out")
    built = tvm.compile(te.create_prim_func([data, out]), target="llvm")
    result = np.empty(9, "float32")
    built(np.arange(64, dtype="float32"), result)
    assert result.tolist() == [index(v) for v in range(9)]


def test_analyzer() -> None:
    ranges = {i: (0, n), j: (0, 8), n: (1, None)}
    assert str(simplify((i * 8 + j) // 8, ranges)) == "i"
    assert prove(i < n, ranges)
    assert not prove(2 * i < 2 * n, ranges)
    assert prove(2 * i < 2 * n, ranges, strong=True)
    assert not prove(i + j < n, ranges, strong=True)
    assert prove_equal(n * 2, n + n)
    assert not prove_equal(n, 2)
    assert prove_equal(3, 3)


def test_constant_bounds() -> None:
    assert constant_bounds(i * 2 - j, {i: (1, 4), j: (0, i)}) == (-1, 8)
    assert constant_bounds(7) == (7, 7)
    with pytest.raises(UnsolvableError, match="no constant bounds"):
        constant_bounds(i + n, {i: (0, 4)})


def narrow(dtype: str, value: Any) -> Any:
    return tirx.Cast(dtype, value) if hasattr(value, "ty") else tirx.const(value, dtype)


WRAPPING = {
    "a cast below zero": narrow("uint8", j - 5),
    "a cast beyond": narrow("int8", j * 50),
    "unsigned below zero": narrow("uint8", j) - narrow("uint8", 4),
    "32 bits": narrow("uint32", j) - narrow("uint32", 5),
    "a sum": narrow("uint8", j) + narrow("uint8", 250),
    "a product": narrow("int16", j) * narrow("int16", 9000),
    "one in another": narrow("uint8", narrow("int8", j * 50) + narrow("int8", 100)),
    "exact": narrow("uint8", j) + narrow("uint8", 200),
}


@pytest.mark.parametrize("case", WRAPPING)
def test_values_that_wrap_are_neither_bounded_nor_compared_as_if_exact(case: str) -> None:
    number, ranges = tirx.Cast("int64", WRAPPING[case]), {j: (0, 8)}
    values = [int(evaluate(number, {j: at})) for at in range(8)]
    low, high = constant_bounds(number, ranges)
    assert low <= min(values)
    assert max(values) <= high
    for limit in sorted({-1, 0, 4, 127, 207, *values}):
        condition = number < tirx.const(limit, "int64")
        holds = [value < limit for value in values]
        assert prove(condition, ranges) <= all(holds)
        assert prove(tirx.Not(condition), ranges) <= (not any(holds))
        simpler = simplify(condition, ranges)
        assert [bool(evaluate(simpler, {j: at})) for at in range(8)] == holds
    assert prove_equal(number, tirx.Cast("int64", j), ranges) <= (values == list(range(8)))
    if case == "exact":
        assert (low, high) == (200, 207)


def test_facts_about_values_that_wrap_are_found_again() -> None:
    first, again = (narrow("uint8", i) - narrow("uint8", 4) for _ in range(2))
    limit = narrow("uint8", 9)
    assert prove(first < limit, {i: (0, 99)}, given=[again < limit])
    assert not prove(first < narrow("uint8", 8), {i: (0, 99)}, given=[again < limit])


BRANCHES = {
    "select": tirx.Select(i < 4, i, 7 - i),
    "if_then_else": te.if_then_else(i < 4, i, 7 - i),
    "maximum of a branch": te.max(tirx.Select(i < 4, i, 7 - i), 0),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_are_compared_with_reads(name: str) -> None:
    """Verdicts of the analyzer, which has no hash for what is read."""
    branch, read = BRANCHES[name], table(j)
    assert not prove_equal(branch, read % 4)
    assert prove_equal(read + branch - read, branch)
    assert not prove(branch < read, {i: (0, 8)})
    assert prove(te.any(branch < read, read >= 0), {i: (0, 8)}, given=[table(j) >= 0])
    assert prove(te.any(branch < read, n < read), {i: (0, 8), n: (0, table(j))})
    assert constant_bounds(tirx.Select(read < 3, i, 7 - i), {i: (0, 8)}) == (0, 7)
    found = simplify(tirx.EQ(branch + 0, read * 1 + table(j) - table(j)))
    values = np.array([3, 4, 0, 1, 7, 2, 0, 5], "int32")
    for place in range(8):
        at = {i: place, j: 7 - place}
        want = evaluate(branch, at) == values[7 - place]
        assert evaluate(found, at, [(table, values)]) == want


def choices(n: int, start: Any = i) -> Any:
    """A graph of a few nodes a step, which TVM's simplifier walks three times at each."""
    index = start
    for step in range(n):
        index = tirx.Select(index < step + 2, index + 1, index - 1)
    return index


@pytest.mark.parametrize("n", [5, 30])
def test_heavy_expressions_are_not_given_to_the_analyzer(n: int) -> None:
    """TVM walks five choices for minutes, and thirty for ever."""
    ranges = {i: (0, 9)}
    heavy = choices(n)
    assert not prove(heavy >= -n, ranges)
    assert prove(i < 9, ranges, given=[heavy < 3])
    assert prove_equal(heavy, heavy)
    assert not prove_equal(heavy, choices(n, i + 1))
    low, high = constant_bounds(heavy, ranges)
    values = [exact_choices(value, n) for value in range(9)]
    assert low <= min(values)
    assert max(values) <= high
    assert high - low <= 9 + 2 * n
    assert same_node(simplify(heavy, ranges), heavy)


def exact_choices(value: int, n: int) -> int:
    for step in range(n):
        value = value + 1 if value < step + 2 else value - 1
    return value


def test_light_choices_are_proved_as_ever() -> None:
    light = choices(2)
    assert prove(light >= -2, {i: (0, 9)})
    assert constant_bounds(light, {i: (0, 9)})[0] >= -2


@pytest.mark.parametrize(
    "expr",
    [n // 2, n % 5 + n // 1024, te.max(n // 2 - i, i), table(j) // 4, table(j) // 4 + n % 2],
    ids=["half", "a part", "an axis", "data", "data and a remainder"],
)
def test_types_are_no_bounds(expr: Any) -> None:
    """Half of an int32 is at most 2³⁰, which bounds no loop."""
    with pytest.raises(UnsolvableError, match="has no constant bounds"):
        constant_bounds(expr, {i: (0, n // 2)})


def test_bounds_of_what_has_no_range() -> None:
    bytes_ = te.placeholder((8,), "uint8", name="bytes")
    assert constant_bounds(n % 4) == (0, 3)
    assert constant_bounds(te.max(te.min(n // 4, 5), 0)) == (0, 5)
    assert constant_bounds(te.max(te.min(table(j), 7), 0)) == (0, 7)
    assert constant_bounds(bytes_(j).astype("int32") + 1) == (1, 256)
