"""Expressions written as statements."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx

from tvm_autodiff.codegen.loop_nest import Places
from tvm_autodiff.codegen.passes.short_circuit import holds_mark
from tvm_autodiff.codegen.statements import written
from tvm_autodiff.expr.nodes import op_name, operands
from tvm_autodiff.expr.rewrite import postorder

X = te.placeholder((3,), "float64", "X")
PLACE = tirx.Var("i", "int32")
ZERO = tirx.const(0.0, "float64")

#: condition of a select whose sides read → whether it is marked once it is that of a branch
CONDITIONS = {
    "reads": (lambda: X[2 - PLACE] > ZERO, True),
    "divides by data": (lambda: PLACE // tirx.Var("n", "int32") > 0, True),
    "indices": (lambda: PLACE // 2 > 0, False),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_select_under_a_guard_keeps_its_condition_there(name: str) -> None:
    """TVM would evaluate both conditions of ``if i < 3 then (if x[2-i] > 0 then ...)`` at once."""
    condition, marks = CONDITIONS[name]
    inner = tirx.Select(condition(), tirx.sin(X[PLACE]), ZERO)
    value = tirx.if_then_else(PLACE < 3, inner, ZERO)
    places, _ = Places.of([X])
    _, _, [result] = written([value], places)
    branches = [node for node in postorder([result]) if op_name(node) == "if_then_else"]
    assert len(branches) == 2
    found: dict[bool, Any] = {op_name(operands(b)[1]) == "if_then_else": b for b in branches}
    assert not holds_mark(operands(found[True])[0])
    assert holds_mark(operands(found[False])[0]) == marks
