"""Conditions that read stay behind the conditions around them."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from tvm_autodiff.codegen.passes.short_circuit import holds_mark
from tvm_autodiff.expr.nodes import op_name, operands
from tvm_autodiff.schedule.rewrites.guards import with_guards

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
