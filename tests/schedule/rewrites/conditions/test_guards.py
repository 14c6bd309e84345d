"""Conditions that read stay behind the conditions around them."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx

from tvm_autodiff.codegen.passes.short_circuit import holds_mark
from tvm_autodiff.expr.nodes import const_value, op_name, operands
from tvm_autodiff.schedule.nest.in_range import Safety, is_safe, loops_of
from tvm_autodiff.schedule.rewrites.conditions.guards import safe_branches, selected, with_guards

n = te.var("n")
X, Y = (te.placeholder((n,), "float64", name=name) for name in "XY")
ZERO = tirx.const(0.0, "float64")


def test_the_condition_of_a_select_that_becomes_a_branch_is_marked() -> None:
    """TVM would join it with the condition around it, and read ``X[-3]``."""

    def element(i: Any) -> Any:
        return te.if_then_else(i >= 3, tirx.Select(X[i - 3] > 0.0, Y[i - 3 - n], ZERO), ZERO)

    stage = te.compute((n + 3,), element, name="t").op
    guarded = with_guards(stage.body[0], stage.axis)
    inner = operands(guarded)[1]
    assert op_name(inner) == "if_then_else"
    assert holds_mark(operands(inner)[0])
    assert not holds_mark(operands(guarded)[0])


@pytest.mark.parametrize("guarded", [True, False])
def test_what_a_guard_binds_is_marked_where_it_is_compared(guarded: bool) -> None:
    """The value of the variable takes the place of it, in a condition that joins the guard."""

    def element(i: Any) -> Any:
        value, read = tirx.Var("value", "float64"), X[i - 3].asobject()
        chosen = tirx.Select(tirx.all(value > ZERO, i < 9), value * 2.0, ZERO)
        bound = tirx.Let(value, read, chosen)
        return te.if_then_else(i >= 3, bound, ZERO) if guarded else bound

    stage = te.compute((n + 3,), element, name="t").op
    found = with_guards(stage.body[0], stage.axis)
    assert holds_mark(found) is guarded  # else it is read in any case


def hinge(picked: Any, scale: Any) -> Any:
    """``select(t[i, j] > t[i, label[i]], scale*t[i, label[i]], 0)``, no node shared."""
    label = labels("int32")
    return te.compute(
        (4, WIDTH),
        lambda i, j: tirx.Select(
            picked(T[i, j], T[i, label[i]]), scale * T[i, label[i]], tirx.const(0.0, "float32")
        ),
    ).op


@pytest.mark.parametrize(
    ("picked", "kept"),
    [
        (lambda here, label: here > label, True),
        (lambda here, label: tirx.all(here > 0.0, here > label), False),  # the left one may decide
        (lambda here, label: here > tirx.if_then_else(here > 0.0, label, 0.0), False),
        (lambda here, label: here > 0.0, False),
    ],
)
def test_a_select_between_what_its_condition_reads_stays(picked: Any, kept: bool) -> None:
    stage = hinge(picked, 2.0)
    assert op_name(with_guards(stage.body[0], stage.axis)) == ("select" if kept else "if_then_else")


ROWS, WIDTH = 5, 40
T, SYMBOLIC = (
    te.placeholder(shape, "float32", name="t") for shape in ((ROWS, WIDTH), (ROWS, n))
)
NARROW = te.placeholder((4, 300), "float32", name="narrow")


def labels(dtype: str) -> Any:
    return te.placeholder((ROWS,), dtype, name="label")


def chosen(table: Any, dtype: str) -> Any:
    """``if label[i] != j then t[i, label[i]] else 0``."""
    label, zero = labels(dtype), tirx.const(0.0, "float32")
    return te.compute(
        (4, WIDTH),
        lambda i, j: te.if_then_else(label[i] != j.astype(dtype), table[i, label[i]], zero),
    ).op


@pytest.mark.parametrize(
    ("table", "dtype", "limits"),
    [
        (T, "int32", [("max", 0), ("min", WIDTH - 1)]),
        (T, "int64", [("max", 0), ("min", WIDTH - 1)]),
        (T, "uint8", [("min", WIDTH - 1)]),
        (NARROW, "int8", [("max", 0)]),  # which holds no number above 127
    ],
)
def test_reads_at_data_are_clamped(table: Any, dtype: str, limits: list[tuple[str, int]]) -> None:
    stage = chosen(table, dtype)
    [value] = selected(stage.body, stage.axis)
    assert op_name(value) == "select"
    assert is_safe([value], loops_of(stage.axis))
    place = operands(operands(value)[1])[1]
    found = []
    while op_name(place) in ("min", "max"):
        inner, limit = operands(place)
        found.append((op_name(place), const_value(limit)))
        place = inner
    assert found == limits


def test_data_may_lie_outside_of_a_symbolic_extent() -> None:
    stage = chosen(SYMBOLIC, "int32")
    [value] = selected(stage.body, stage.axis)
    assert op_name(value) == "if_then_else"
    assert safe_branches(operands(value)[1:], Safety(loops_of(stage.axis))) is None


def test_a_read_of_nothing_stays_behind_its_guard() -> None:
    stage = chosen(te.placeholder((ROWS, 0), "float32", name="empty"), "int32")
    [value] = selected(stage.body, stage.axis)
    assert op_name(value) == "if_then_else"


def test_conditions_that_are_evaluated_in_any_case_need_no_mark() -> None:
    """That of a branch, which may not hold, keeps it."""
    x, place = te.placeholder((8,), name="x"), te.placeholder((5,), "int32", name="place")
    n = te.var("n")
    beyond = te.placeholder((n,), name="beyond")
    read = lambda i: x[place[i]]  # noqa: E731

    def scores(i: Any) -> Any:
        return te.if_then_else(read(i) > 0.0, read(i), read(i) * 0.5)

    def nested(i: Any) -> Any:
        inner = te.if_then_else(beyond[place[i]] > 0.0, read(i), 2.0)
        return te.if_then_else(place[i] < n, inner, 1.0)

    for body, vector in ((scores, True), (nested, False)):
        stage = te.compute((5,), body, name="y").op
        guarded = with_guards(stage.body[0], stage.axis)
        assert holds_mark(guarded)
        [value] = selected([guarded], stage.axis)
        assert holds_mark(value) is not vector
        assert (op_name(value) == "select") is vector
