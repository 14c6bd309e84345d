"""Marked conditions: what is evaluated whatever conditions say, and what vectors would lose."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tests.evaluate import evaluate
from tvm_autodiff.codegen.passes.short_circuit import (
    condition_of,
    cut_short,
    holds_mark,
    marked,
    ordered_for_c,
    surely_evaluated,
)
from tvm_autodiff.expr.nodes import is_load, load_tensor, op_name, operands
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.expr.rewrite import postorder, rewrite
from tvm_autodiff.schedule.cpu.loops.elements import worth_binding

i, n = te.var("i"), te.var("n")
A, B, C = (te.placeholder((n,), "float64", name=name) for name in "ABC")
ZERO = tirx.const(0.0, "float64")
LATE = marked(A[i] * A[i] > 0.5)

#: expression → tensors that are read wherever it is evaluated
SURELY = {
    "and": (te.if_then_else(tirx.And(i < n, LATE), ZERO, ZERO + 1.0), ""),
    "or": (te.if_then_else(tirx.Or(i >= n, LATE), ZERO, ZERO + 1.0), ""),
    "not": (te.if_then_else(tirx.And(i < n, tirx.Not(LATE)), ZERO, ZERO + 1.0), ""),
    "marked first": (te.if_then_else(tirx.And(LATE, i < n), ZERO, ZERO + 1.0), ""),
    "two marked": (tirx.Cast("float64", tirx.And(LATE, marked(B[i] > 0.0))), "A"),
    "without marks": (tirx.Cast("float64", tirx.And(B[i] > 0.5, C[i] > 0.5)), "BC"),
    "branch": (te.if_then_else(B[i] > 0.0, A[i], C[i]), "B"),
    "read elsewhere": (te.if_then_else(tirx.And(i < n, LATE), ZERO, ZERO + 1.0) + A[i], "A"),
    "select": (tirx.Select(i < n, A[i], B[i]), "AB"),
}


@pytest.mark.parametrize("name", SURELY)
def test_what_is_surely_evaluated(name: str) -> None:
    expr, wanted = SURELY[name]
    for nodes in (surely_evaluated([expr]), worth_binding([expr])):
        reads = {load_tensor(node).op.name for node in nodes if is_load(node)}
        assert reads == set(wanted)


def test_marked_parts_come_last_and_in_branches() -> None:
    conjunction = tirx.And(LATE, i < n)
    assert holds_mark(conjunction)
    assert text(cut_short(conjunction)).startswith("if i < n then")
    plain = tirx.And(i < n, i > 2)
    assert not holds_mark(plain)
    assert cut_short(plain) is plain


def test_the_opposite_of_a_mark_is_one() -> None:
    """TVM writes ``not (number != 0)`` as ``number == 0``."""
    opposite = tirx.EQ(*operands(LATE))
    assert holds_mark(opposite)
    assert text(condition_of(opposite)) == "not A[i]*A[i] > 0.5"
    assert text(cut_short(tirx.And(opposite, i < n))).startswith("if i < n then")


@pytest.mark.parametrize("combine", [tirx.And, tirx.Or])
@pytest.mark.parametrize("count", [2, 3, 12])
def test_branches_are_in_no_condition(combine, count) -> None:
    """TVM's last passes take three times as long for each branch that a condition lies in."""
    whole = marked(A[i] > 0.0)
    for number in range(1, count):
        whole = combine(whole, marked(A[i] > 0.5 * number))
    body = cut_short_everywhere(whole)
    branches = [node for node in postorder(body) if op_name(node) == "if_then_else"]
    assert len(branches) == count - 1
    for node in branches:
        assert not any(op_name(part) == "if_then_else" for part in postorder(operands(node)[0]))
    for value in (-1.0, 0.25, 0.75, 1.25, 100.0):
        arrays = [(A, np.array([value]))]
        expected = evaluate(whole, {i: 0}, arrays)
        assert evaluate(body, {i: 0}, arrays) == expected


def test_a_branch_of_the_program_keeps_its_guard() -> None:
    """``if i < n then A[i] > 0 else false`` is taken apart in its order and not sorted."""
    guarded = te.if_then_else(i < n, A[i] > 0.0, tirx.const(False))
    body = cut_short(tirx.And(guarded, LATE))
    condition, inner, _ = operands(body)
    assert text(condition) == "i < n"
    assert text(operands(inner)[0]) == "A[i] > 0.0"


def cut_short_everywhere(expr):
    """From the inside out, as the pass does."""
    return rewrite(expr, lambda node: cut_short(node) if op_name(node) in ("and", "or") else None)


def test_in_c_marked_parts_come_last_and_are_plain_conditions() -> None:
    X, Y = (tirx.decl_buffer((8,), "float32", name) for name in "XY")
    k = tirx.Var("k", "int32")
    late = marked(X[k] > tirx.const(0.5, "float32"))
    value = te.if_then_else(tirx.And(late, k < 5), X[k], tirx.const(0.0, "float32"))
    body = tirx.For(k, 0, 9, tirx.ForKind.SERIAL, tirx.BufferStore(Y, value, [k]))
    module = tvm.IRModule({"main": tirx.PrimFunc([X, Y], body)})
    text_of_c = ordered_for_c(module)["main"].script()
    assert "k < 5 and X[k] > T.float32(0.5)" in text_of_c
    assert "reinterpret" not in text_of_c


def test_choices_inside_of_marked_conditions_are_no_more_work_than_inside_of_others() -> None:
    """TVM looked for bounds of each mark: every choice more took twelve times as long."""

    X, Y = (te.placeholder((9,), "float64", name=name) for name in "XY")

    def nested(k):
        value = X[k]
        for place in range(9):
            value = te.if_then_else(marked(value > float(place)), Y[k], ZERO + float(place))
        return value

    func = te.create_prim_func([X, Y, te.compute((9,), nested, name="stage")])
    assert str(func).count("T.if_then_else") == 9
