"""Narrow numbers of indices computed in wider types: the same values, and code that TVM lowers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate
from tvm_autodiff.expr.integers.intervals import Intervals
from tvm_autodiff.expr.integers.narrow import without_narrow_types
from tvm_autodiff.expr.nodes import dtype_of
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.expr.rewrite import postorder

i = te.var("i")
table = te.placeholder((300,), "uint8", name="table")
FIRST, LAST = -400, 400


def to(dtype: str, e: Any) -> Any:
    return tirx.Cast(dtype, e)


def number(dtype: str, value: int) -> Any:
    return tirx.const(value, dtype)


#: expressions that wrap somewhere in FIRST <= i < LAST
FORMS = {
    "a cast": to("int32", to("uint8", i * 7 - 3)),
    "a signed cast": to("int32", to("int8", i * 3)),
    "casts of casts": to("int32", to("int8", to("uint16", i * 300))),
    "a difference": to("int32", to("uint8", i) - number("uint8", 3)),
    "a sum": to("int32", to("int16", i * 200) + number("int16", 32000)),
    "a product": to("int32", to("uint16", i) * to("uint16", i)),
    "unsigned of 32 bits": to("int64", to("uint32", i) - number("uint32", 1)),
    "down from 32 bits": to("int32", to("uint32", i * -1) + number("uint32", 5)),
    "a comparison": to("int32", to("uint16", i * 2) - number("uint16", 3) < number("uint16", 2)),
    "a choice": to("int32", tirx.Select(i > 0, to("uint8", i), to("uint8", i - 9))),
    "a maximum": to("int32", te.max(to("int8", i), number("int8", 5))),
    "a quotient": to("int32", te.truncdiv(to("uint8", i), number("uint8", 7))),
    "a narrow result": to("uint8", i * 9) + number("uint8", 200),
    "a float": to("float64", to("int8", i * 5)),
    "a truth": to("int32", to("bool", i % 3)),
    "a narrow truth": to("int32", to("bool", to("uint8", i * 7 - 3))),
    "beside a read": to("int32", table(to("uint8", i))) + to("int32", to("uint8", i * 3)),
}


#: those with narrow numbers in what they are rewritten to: a result, and what a tensor holds
STAYING = ("a narrow result", "beside a read")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_values_stay(name: str) -> None:
    old = FORMS[name]
    new = without_narrow_types(old, Intervals(lambda var: (FIRST, LAST - 1)))
    assert dtype_of(new) == dtype_of(old)
    values = np.random.default_rng(0).integers(0, 256, 300).astype("uint8")
    for at in range(FIRST, LAST):
        found, wanted = (evaluate(e, {i: at}, [(table, values)]) for e in (new, old))
        assert found == wanted, (at, text(new))


@pytest.mark.parametrize("name", [n for n in FORMS if n not in STAYING])
def test_no_narrow_number_is_left(name: str) -> None:
    new = without_narrow_types(FORMS[name], Intervals(lambda var: (FIRST, LAST - 1)))
    narrow = ("int8", "uint8", "int16", "uint16", "uint32")
    assert [text(node) for node in postorder(new) if dtype_of(node) in narrow] == []


def test_nothing_is_masked_that_does_not_wrap() -> None:
    small = Intervals(lambda var: (0, 9))
    assert text(without_narrow_types(FORMS["casts of casts"], small)).count("bitwise_and") == 1
    assert text(without_narrow_types(to("int32", to("uint8", i) + number("uint8", 3)), small)) == (
        "i + 3"
    )


def test_reads_stay_narrow() -> None:
    body = table(i) + number("uint8", 3)
    assert text(without_narrow_types(body, Intervals(lambda var: (0, 9)))) == text(body)


Condition = Callable[[Any, Any], Any]
CONDITIONS: dict[str, Condition] = {
    "a constant that leaves the type": lambda i, k: to("uint8", k * 300 + 44) < number("uint8", 9),
    "a difference below zero": lambda i, k: (
        to("uint16", k + 1) - number("uint16", 3) < number("uint16", 9)
    ),
    "zero compared": lambda i, k: (
        to("uint16", 4 - (k + i)) - number("uint16", 0) <= number("uint16", 7)
    ),
}


@pytest.mark.parametrize("extent", [1, 5])
@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_build(name: str, extent: int) -> None:
    """Loops of one step become constants, which TVM folds."""
    A, k = te.placeholder((5,), "float64", name="A"), te.reduce_axis((0, extent), "k")
    holds = CONDITIONS[name]
    S = te.compute(
        (3,),
        lambda i: te.sum(
            te.if_then_else(holds(i, k), A[k], tirx.const(0.5, "float64")),
            axis=k,
            init=tirx.const(1.0, "float64"),
        ),
        name="S",
    )
    array = np.arange(1.0, 6.0)
    taken = np.array(
        [[evaluate(holds(n, m), {}) for m in range(extent)] for n in range(3)], dtype=bool
    )
    wanted = 1.0 + np.where(taken, array[:extent], 0.5).sum(axis=1)
    np.testing.assert_array_equal(ad.build([A], S, cache=False)(array), wanted)


def test_truths_of_unrolled_loops_are_no_literals() -> None:
    """``bool(2)`` is no literal of TVM: the kernel fell back to a slower rule."""
    x = te.placeholder((6, 40), "float64", name="x")
    k = te.reduce_axis((0, 4), "k")
    y = te.compute(
        (6, 37),
        lambda i, j: te.sum(te.if_then_else(to("bool", k.var), x[i, j + k], 0.0), axis=k),
    )
    built = ad.build([x], y, cache=False)
    assert not built.notice
    values = np.random.default_rng(0).random((6, 40))
    want = sum(values[:, k : k + 37] for k in (1, 2, 3))
    np.testing.assert_allclose(built(values), want)
