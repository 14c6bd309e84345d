"""Marked conditions: what is evaluated whatever conditions say, and what vectors would lose."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tvm_autodiff.codegen.passes.short_circuit import (
    condition_of,
    cut_short,
    holds_mark,
    marked,
    surely_evaluated,
)
from tvm_autodiff.expr.nodes import is_load, load_tensor, operands
from tvm_autodiff.expr.printing.text import text
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
