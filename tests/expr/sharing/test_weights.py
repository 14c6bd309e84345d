"""Weights of expressions follow the time that TVM's simplifier takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tvm import te, tirx
from tvm.ir import prim

from tvm_autodiff.expr.sharing.weights import MAX_WEIGHT, weight

i = te.var("i")
x = te.placeholder((9,), name="x")


def chosen(value: Any) -> Any:
    """``2 if |value| >= 4 else 3``."""
    return tirx.Select(tirx.abs(value) >= 4.0, tirx.const(2.0), tirx.const(3.0))


def level(value: Any) -> Any:
    return tirx.Select(value >= 4, i, i + 1)


def branch(value: Any) -> Any:
    return tirx.Select(i >= 4, value, tirx.const(3.0))


#: what is nested, around what, and the levels whose simplification takes about a second
LEVELS: dict[str, tuple[Callable[[Any], Any], Any, int]] = {
    "conditions of floats": (chosen, x(i), 8),
    "conditions of integers": (level, i, 5),
}


@pytest.mark.parametrize("name", LEVELS)
def test_nested_choices(name: str) -> None:
    """Each level costs a multiple, and the limit is near where TVM takes a second."""
    nest, value, most = LEVELS[name]
    sizes = []
    for _ in range(most):
        value = nest(value)
        sizes.append(weight(value, limit=10**9))
    assert all(after > 2 * before for before, after in itertools.pairwise(sizes))
    assert sizes[-3] <= MAX_WEIGHT < sizes[-1]


def test_branches_of_floats_are_walked_once() -> None:
    value = x(i)
    for _ in range(100):
        value = branch(value)
    assert weight(value) < MAX_WEIGHT


@pytest.mark.parametrize(
    ("first", "grows"),
    [(x(i), False), (x(i) * x(i), False), (tirx.Cast("float32", i), True)],
)
def test_values_of_lets_are_walked_for_each_use(first: Any, grows: bool) -> None:
    """TVM puts values in for their variables, unless they read."""

    def chain(levels: int) -> Any:
        names = [te.var(f"t{level}", "float32") for level in range(levels)]
        body = names[-1]
        for name, value in reversed([*zip(names[1:], names, strict=False)]):
            body = prim.Let(name, value * value + (0.0 if grows else x(i)), body)
        return prim.Let(names[0], first, body)

    sizes = [weight(chain(levels), limit=10**9) for levels in range(2, 9)]
    factors = [after / before for before, after in itertools.pairwise(sizes)]
    assert all(factor > 1.7 for factor in factors) == grows


def test_a_let_may_name_itself_anew() -> None:
    name = te.var("t", "float32")
    inner = prim.Let(name, name + 1.0, name * name)
    assert weight(prim.Let(name, tirx.Cast("float32", i), inner)) < 20
