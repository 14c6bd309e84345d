"""Nodes of stages in the form that lowers correctly."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import op_name, operands
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.stage import bodies
from tvm_autodiff.schedule.nest.access import has_branches
from tvm_autodiff.schedule.rewrites.normal_form import normal_form

m = te.placeholder((6,), "bool", name="m")
x = te.placeholder((6,), "float32", name="x")
labels = te.placeholder((6,), "int32", name="labels")
FALSE, TRUE = tirx.const(False, "bool"), tirx.const(True, "bool")

NUMBERS = {
    "int32(c) != 0": lambda c: c.astype("int32") != 0,
    "int32(c) == 1": lambda c: c.astype("int32").equal(1),
    "int32(c) == 0": lambda c: c.astype("int32").equal(0),
    "uint8(c) != 0": lambda c: c.astype("uint8") != tirx.const(0, "uint8"),
    "float32(c) != 0": lambda c: c.astype("float32") != 0.0,
    "c != false": lambda c: tirx.NE(c, FALSE),
    "c == true": lambda c: tirx.EQ(c, TRUE),
    "c == false": lambda c: tirx.EQ(c, FALSE),
    "false != c": lambda c: tirx.NE(FALSE, c),
}


def values(*tensors):
    rng = np.random.default_rng(0)
    given = {m: rng.random(6) > 0.5, x: rng.standard_normal(6).astype("float32")}
    given[labels] = np.arange(6, dtype="int32")
    return evaluate_graph(tensors, given)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_stand_for_conditions(name: str) -> None:
    y = te.compute((6,), lambda i: tirx.Select(NUMBERS[name](m[i]), x[i], x[i] * 2.0), name="y")
    [plain] = normal_form([y])
    condition, *_ = operands(bodies(plain.op)[0])
    assert op_name(condition) == "load"
    np.testing.assert_array_equal(*values(y, plain))


@pytest.mark.parametrize("mask", [lambda: m, lambda: topi.equal(labels, tirx.const(3, "int32"))])
def test_a_choice_of_topi_has_no_branch(mask) -> None:
    """A condition behind a number looked like one that must not be evaluated everywhere."""
    y = topi.where(mask(), x, topi.full_like(x, 0.0))
    [plain] = normal_form([y])
    assert not has_branches(bodies(plain.op))
    assert all(op_name(node) != "cast" for node in postorder(bodies(plain.op)))
    np.testing.assert_array_equal(*values(y, plain))


@pytest.mark.parametrize("number", [2, -1])
def test_other_numbers_are_compared(number: int) -> None:
    y = te.compute(
        (6,), lambda i: tirx.Select(m[i].astype("int32").equal(number), x[i], 0.0), name="y"
    )
    [plain] = normal_form([y])
    assert op_name(operands(bodies(plain.op)[0])[0]) == "eq"
