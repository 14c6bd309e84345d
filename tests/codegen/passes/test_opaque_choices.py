"""Tests of choices between reads: their conditions are hidden only where TVM would move a read."""

from __future__ import annotations

import pytest
import tvm
from tvm import te, tirx

from tvm_autodiff.codegen.passes.launches import lowered
from tvm_autodiff.codegen.passes.opaque_choices import hide_choices

x = te.placeholder((9,), name="x")
d = te.placeholder((9,), "int32", name="d")
ZERO = tirx.const(0, "float32")


def text(body):
    y = te.compute((9,), body, name="y")
    return hide_choices(te.create_prim_func([x, d, y])).script()


def branch(condition):
    return te.if_then_else(condition, x[0], ZERO)


#: name → (an element, whether the condition of its choice is hidden)
CASES = {
    "a clamp of data": (lambda i: tirx.Select(d[i] < 5, x[te.max(te.min(d[i], 8), 0)], ZERO), True),
    "a clamp": (lambda i: tirx.Select(i < 4, x[te.min(i, 2)], ZERO), True),
    "the other side": (lambda i: tirx.Select(i > 4, ZERO, x[te.min(i, 2)]), True),
    "a wrapped index": (lambda i: tirx.Select(i < 4, x[(i + 5) % 9], ZERO), True),
    "data": (lambda i: tirx.Select(d[i] == 99, x[d[i]], ZERO), True),
    "an index": (lambda i: tirx.Select(i < 4, x[i], ZERO), False),
    "numbers": (lambda i: tirx.Select(d[i] < 4, x[i] * 2.0, ZERO), False),
    "a branch": (lambda i: te.if_then_else(i < 4, x[te.min(i, 3)], ZERO), False),
    "a conjunction": (lambda i: branch(te.all(i < 1, d[(i + 5) % 9] > 0)), True),
    "a disjunction": (lambda i: branch(te.any(i >= 1, d[(i + 5) % 9] > 0)), True),
    "a conjunction of plain reads": (lambda i: branch(te.all(i < 1, d[i] > 0)), False),
    "nested branches": (lambda i: te.if_then_else(i < 1, branch(d[(i + 5) % 9] > 0), ZERO), True),
    "a branch in a sum": (
        lambda i: te.if_then_else(i < 1, branch(d[(i + 5) % 9] > 0) + 1.0, ZERO),
        True,
    ),
    "nested branches of plain reads": (
        lambda i: te.if_then_else(i < 1, branch(d[i] > 0), x[(i + 5) % 9]),
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_conditions(name):
    body, is_hidden = CASES[name]
    assert ("tvm_autodiff_itself(" in text(body)) == is_hidden


def test_variables_for_wrapped_indices():
    i, row, position = (tirx.Var(name, "int32") for name in ("i", "row", "position"))
    X, Y = tirx.decl_buffer((4,), "float32", "X"), tirx.decl_buffer((9,), "float32", "Y")
    chosen = tirx.Select(i < 4, X[position], ZERO)
    body = tirx.SeqStmt(
        [tirx.Bind(row, i % 4), tirx.Bind(position, row + 0), tirx.BufferStore(Y, chosen, [i])]
    )
    loop = tirx.For(i, 0, 9, tirx.ForKind.SERIAL, body)
    func = tirx.PrimFunc([X, Y], loop)
    assert "tvm_autodiff_itself(" in hide_choices(func).script()


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][1]])
def test_no_read_moves(name):
    y = te.compute((9,), CASES[name][0], name="y")
    func = hide_choices(te.create_prim_func([x, d, y]))
    flat = lowered(func)
    module = tvm.IRModule({"main": flat.with_attr("global_symbol", "main")})
    simplified = tirx.transform.StmtSimplify()(module)["main"]
    for bend in ("% 9", "min("):
        assert (bend in func.script()) == (bend in simplified.script())
