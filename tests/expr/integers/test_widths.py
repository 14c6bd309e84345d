"""Index arithmetic that cannot overflow: what is widened, what is left alone, that values are kept.

The oracle is Python's integers: every node of what comes out must lie in its own type, at the
corners of the ranges and at random points, and the result must be the exact integer.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tests.exact_integers import exact_values
from tvm_autodiff.expr.integers.intervals import Intervals
from tvm_autodiff.expr.integers.widths import Widths
from tvm_autodiff.expr.nodes import const_value, dtype_of, node_id
from tvm_autodiff.expr.printing.text import text

i, j, n = (te.var(name) for name in "ijn")
table = te.placeholder((8,), "int32", name="table")
HUGE = 2**31 - 2
RANGES = {"i": (0, 9_999_999), "j": (-5, 99_999), "n": (0, HUGE)}


def widths() -> Widths:
    return Widths(lambda var: RANGES[var.name], is_open=lambda var: var.name == "n")


#: index, extent of the dimension, what becomes of it (None: the same)
INDICES: list[tuple[Any, int, str | None]] = [
    (i * 16 + j, 1000, None),
    (i * 441 % 160, 160, "int32(int64(i)*441%160)"),
    ((i << 9) % 160, 160, "int32(shift_left(int64(i), 9)%160)"),
    ((i << 2) % 160, 160, None),
    (i * 441 // 160, 2**30, "int32(int64(i)*441//160)"),
    (i * 500 - i * 499, 10_000_000, "int32(int64(i)*500 - int64(i)*499)"),
    (i * 441 + j, 2_000_000_000, "int32(int64(i)*441 + int64(j))"),
    # an index of sizes or data that is inside bounds what it is made of
    (n + i * 100, 2_000_000_000, None),
    (table[i] * 4 + 1, 100, None),
    (te.min(i * 500, n), 2_000_000_000, "int32(min(int64(i)*500, int64(n)))"),
    (te.min(i * 200, n), 2_000_000_000, None),
    (tirx.Select(i < 3, i * 100, i + j), 1000, None),
    (n + 1, 100, None),
    # but not loops of constant lengths: TVM writes literals of their multiples
    (n - 1 - i * 441, 2_000_000_000, "int32(int64(n - 1) - int64(i)*441)"),
    (table[j % 8] + i * 441, 2_000_000_000, "int32(int64(table[j%8]) + int64(i)*441)"),
    (tirx.Ramp(n * 2 + 8, tirx.const(1, "int32"), 8), 2_000_000_000, None),
    # and what it is not made of in a sum is not
    (table[i] * 441 % 160, 160, "int32(int64(table[i])*441%160)"),
    (tirx.Select(i * 500 > 7, i % 4, j % 4), 4, "select(int64(i)*500 > 7, i%4, j%4)"),
    (table[i * 441 % 8], 8, "table[int32(int64(i)*441%8)]"),
]


@pytest.mark.parametrize(
    ("index", "extent", "wanted"),
    INDICES,
    ids=[f"{n}-{wanted}" for n, (_, _, wanted) in enumerate(INDICES)],
)
def test_index(index: Any, extent: int, wanted: str | None) -> None:
    index = index.asobject() if hasattr(index, "asobject") else index
    new = widths().index(index, extent)
    if wanted is None:
        assert node_id(new) == node_id(index)
    else:
        assert text(new) == wanted


#: bodies and conditions, and what becomes of them
VALUES: list[tuple[Any, str | None]] = [
    (i * 441 < n, "int64(i)*441 < int64(n)"),
    ((i * 441 % 160).equal(0), "int32(int64(i)*441%160) == 0"),
    ((i * 441).astype("float32"), "float32(int64(i)*441)"),
    (i + j, None),
    # integer data keeps the arithmetic of its type
    (table[i] * table[j], None),
    (table[i] * 3 < 5, "int64(table[i])*3 < 5"),
    # unsigned and narrow arithmetic wraps round
    (i.astype("uint32") * tirx.const(441, "uint32"), None),
    ((i * 441).astype("int64"), "int64(i)*441"),
]


@pytest.mark.parametrize(("value", "wanted"), VALUES, ids=[str(e) for e, _ in VALUES])
def test_value(value: Any, wanted: str | None) -> None:
    value = value.asobject() if hasattr(value, "asobject") else value
    new = widths().value(value)
    assert dtype_of(new) == dtype_of(value)
    if wanted is None:
        assert node_id(new) == node_id(value)
    else:
        assert text(new) == wanted


#: what wraps round, written so that nobody takes it for arithmetic of integers
WRAPS: list[Any] = [
    (i * 3).astype("uint8").astype("int32"),
    (j - 7).astype("int8").astype("int32"),
    (i.astype("uint32") - tirx.const(5, "uint32")) % tirx.const(7, "uint32"),
    (j.astype("uint8") * tirx.const(3, "uint8")).astype("int32"),
    (j.astype("uint16") - tirx.const(9, "uint16")).astype("int32"),
    (i.astype("uint8") << tirx.const(5, "uint8")).astype("int32"),
    (i.astype("int64") * tirx.const(2**40 + 1, "int64")).astype("int32"),
]


@pytest.mark.parametrize("value", WRAPS, ids=str)
def test_what_wraps_round_keeps_its_value(value: Any) -> None:
    explicit = Widths(lambda var: RANGES[var.name], explicit=True)
    new = explicit.exact(value)
    assert node_id(new) != node_id(value)
    for point in ({i: a, j: b} for a in (0, 1, 2, 9_999_999) for b in (-5, 0, 6, 7, 99_999)):
        old_nodes, new_nodes = exact_values(value, point), exact_values(new, point)
        assert old_nodes[-1] == new_nodes[-1]


u = te.var("u", "uint8")
#: comparisons of an unsigned number, and what they are for every value
ALWAYS: list[tuple[Any, str]] = [
    (tirx.LT(u, tirx.const(0, "uint8")), "0"),
    (tirx.GT(tirx.const(0, "uint8"), u), "0"),
    (tirx.GE(u, tirx.const(0, "uint8")), "1"),
    (tirx.LE(tirx.const(0, "uint8"), u), "1"),
    (tirx.LE(u, tirx.const(255, "uint8")), "1"),
    (tirx.LT(u, tirx.const(1, "uint8")), "u < 1"),
]


@pytest.mark.parametrize(("comparison", "wanted"), ALWAYS, ids=[str(e) for e, _ in ALWAYS])
def test_unsigned_comparisons_that_always_hold(comparison: Any, wanted: str) -> None:
    """TVM ends the process over ``select(u < 0, ...)``."""
    explicit = Widths(lambda var: (0, 255), explicit=True)
    found = explicit.value(comparison)
    value = const_value(found)
    assert (text(found) if value is None else str(int(value))) == wanted


def random_expression(rng: random.Random, depth: int) -> Any:
    if depth == 0:
        return rng.choice([i, j, n, tirx.const(rng.randint(-(10**6), 10**6), "int32")])
    kind = rng.choice(["add", "sub", "mul", "div", "mod", "min", "max", "select", "cast", "shift"])
    left = random_expression(rng, depth - 1)
    if kind in ("div", "mod"):
        divisor = tirx.const(rng.choice([2, 7, 160, 99_991, -3]), "int32")
        return (te.indexdiv if kind == "div" else te.indexmod)(left, divisor)
    if kind == "mul":
        return left * tirx.const(rng.choice([-441, -1, 3, 1000, 65_537]), "int32")
    if kind == "shift":  # TVM folds shifts of literals, without bounds
        steps = tirx.const(rng.choice([0, 1, 9, 16]), "int32")
        return left if const_value(left) is not None else left << steps
    if kind == "cast":
        through = rng.choice(["uint8", "int16", "uint32", "int64"])
        return tirx.Cast("int32", tirx.Cast(through, left))
    right = random_expression(rng, depth - 1)
    if kind == "select":
        return tirx.Select(left < right, left, random_expression(rng, depth - 1))
    return {"add": tirx.Add, "sub": tirx.Sub, "min": tirx.Min, "max": tirx.Max}[kind](left, right)


POINTS = list(itertools.product(*(sorted({*pair, 1, 37}) for pair in RANGES.values())))


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions_stay_in_their_types(seed: int) -> None:
    rng = random.Random(seed)
    expr = random_expression(rng, rng.randint(1, 4))
    condition = expr * tirx.const(1000, "int32") < tirx.const(12_345, "int32")
    new = widths().value(condition)
    bounds = Intervals(lambda var: RANGES[var.name])
    for point in [*POINTS, *(tuple(rng.randint(*r) for r in RANGES.values()) for _ in range(20))]:
        values = dict(zip((i, j, n), point, strict=True))
        wanted = exact_values(condition, values)[-1]
        low, high = bounds.of(expr)
        if not -(2**63) < low <= high < 2**63 // 1000:
            return  # wider than any type
        assert low <= exact_values(expr, values)[-1] <= high
        assert exact_values(new, values, checked=True)[-1] == wanted


def test_sharing_is_kept() -> None:
    """A chain of doublings is one node each, before and after."""
    expr = i * 441
    for _ in range(40):
        expr = te.min(expr + expr, 1000)
    assert widths().value(expr < 5) is not None


def test_numpy_agrees_with_the_oracle() -> None:
    """The oracle wraps conversions as numpy does."""
    for value in (-129, -1, 127, 128, 255, 256, 70_000):
        for kind in ("int8", "uint8", "int16", "uint16"):
            node = tirx.Cast(kind, j)
            assert exact_values(node, {j: value})[-1] == int(np.int64(value).astype(kind))
