"""Loops cut where their conditions change."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import contains
from tvm_autodiff.schedule.cpu.loops.segments import MAX_PIECES, pieces

A, N = te.placeholder((64,), name="A"), te.var("n")
J = te.var("j")
ZERO = tirx.const(0.0, "float32")


def branch(condition, value):
    return tirx.if_then_else(condition, value, ZERO)


CASES = [
    (lambda: A(J), [(0, 64)]),
    (lambda: branch(J < 16, A(J)), [(0, 16), (16, 64)]),
    (lambda: branch(J >= 16, A(J)), [(0, 16), (16, 64)]),
    (lambda: branch(te.all(J > 3, J <= 9), A(J)), [(0, 4), (4, 10), (10, 64)]),
    (lambda: branch(J == 5, A(J)), [(0, 5), (5, 6), (6, 64)]),
    (lambda: branch(J * 2 < 7, A(J)), [(0, 4), (4, 64)]),
    (lambda: branch(7 - J * 3 > 0, A(J)), [(0, 3), (3, 64)]),
    (lambda: branch(J < 100, A(J)), [(0, 64)]),
    (lambda: branch(te.any(J < 8, J >= 60), A(J)), [(0, 8), (8, 60), (60, 64)]),
    (lambda: branch(J < N, A(J)), [(0, 64)]),
]


@pytest.mark.parametrize(("make", "expected"), CASES)
def test_pieces(make, expected):
    found = pieces([make()], J, 64)
    assert [(begin, end) for begin, end, _ in found] == expected


@pytest.mark.parametrize("make", [make for make, _ in CASES[1:-1]])
def test_no_condition_is_left(make):
    for _, _, (body,) in pieces([make()], J, 64):
        assert not contains(body, lambda node: op_name(node) == "if_then_else")


def test_conditions_on_other_variables_stay():
    [(_, _, (body,))] = pieces([branch(J < N, A(J))], J, 64)
    assert contains(body, lambda node: op_name(node) == "if_then_else")


def test_too_many_pieces_are_none():
    body = ZERO
    for place in range(2 * MAX_PIECES):
        body = body + branch(2 * place + 1 > J, A(J))
    assert len(pieces([body], J, 64)) == 1
