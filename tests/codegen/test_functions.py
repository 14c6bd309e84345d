"""TIR functions with other bodies."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tvm_autodiff.codegen.functions import replace_calls, with_body


def exponential():
    x = te.placeholder((8,), name="x")
    return te.create_prim_func([x, te.compute((8,), lambda i: te.exp(x[i]), name="y")])


def test_the_same_body_is_the_same_function() -> None:
    func = exponential()
    assert with_body(func, func.body).same_as(func)


def test_another_body_keeps_parameters_and_attributes() -> None:
    func = exponential()
    made = with_body(func, tirx.Evaluate(0))
    assert not made.same_as(func)
    assert list(made.params) == list(func.params)
    assert made.attrs["global_symbol"] == func.attrs["global_symbol"]


@pytest.mark.parametrize(("name", "changes"), [("exp", True), ("log", False)])
def test_calls_are_replaced_by_name(name: str, changes: bool) -> None:
    func = exponential()
    made = replace_calls(func, {name: lambda node: tirx.tanh(node.args[0])})
    assert made.same_as(func) is not changes
    assert ("T.tanh" in made.script()) is changes
