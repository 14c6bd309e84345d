"""What is evaluated anyway, wherever a part of an expression is."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te

from tvm_autodiff.expr.nodes import is_load, load, node_id, operands
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.expr.sharing.failing import Failing, can_fail
from tvm_autodiff.expr.structural import StructuralKeys

n, i = te.var("n"), te.var("i")
X = te.placeholder((n,), "int32", name="x")
BRANCHES = {"if_then_else": (1, 2), "and": (1,)}


def x(index: Any) -> Any:
    return load(X, [index])


def choice(condition: Any, then: Any, other: Any) -> Any:
    return te.if_then_else(condition, then, other)


@pytest.mark.parametrize(
    ("node", "fails"),
    [(x(i), True), (i // n, True), (i % n, True), (i // 3, False), (i + n, False)],
)
def test_what_can_fail(node: Any, fails: bool) -> None:
    assert can_fail(node) == fails


#: expression → whether ``x[i]`` is evaluated wherever the expression is
CERTAIN = {
    "a read": (x(i), True),
    "a condition": (choice(x(i) > 0, 1, 2), True),
    "one side": (choice(i > 0, x(i), 2), False),
    "both sides": (choice(i > 0, x(i) + 1, x(i) - 1), True),
    "in a condition of a side": (choice(i > 0, choice(x(i) > 0, 1, 2), 3), False),
    "a side of a condition": (choice(choice(i > 0, x(i), 1) > 0, 1, 2), False),
    "the left of a conjunction": (te.all(x(i) > 0, n < i), True),
    "the right of a conjunction": (te.all(n < i, x(i) > 0), False),
    "an index": (x(x(i)), True),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_evaluated_with(name: str) -> None:
    expr, certain = CERTAIN[name]
    other = x(i) * 3  # elsewhere, as a node of its own
    roots = [choice(i > 5, other, 0), choice(i > 6, expr, 0)]
    whole = roots[0] + roots[1].astype("int32")
    order = postorder([whole])
    found = Failing([whole], order, BRANCHES, StructuralKeys().parts(whole))
    [read] = [node for node in operands(other) if is_load(node)]
    assert (node_id(read) in found.evaluated_with(expr)) == certain


def test_equal_nodes_are_different_without_keys() -> None:
    one, two = x(i), x(i)
    whole = one + choice(i > 0, two, 0)
    order = postorder([whole])
    assert not Failing([whole], order, BRANCHES).is_safe(two, ())
    assert Failing([whole], order, BRANCHES, StructuralKeys().parts(whole)).is_safe(two, ())
