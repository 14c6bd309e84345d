"""Orders that conditions require, against the pairs for which they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx

from tvm_autodiff.expr.integers.prefix_order import prefix_order

k, i, j = (tirx.Var(name, "int32") for name in "kij")
#: name → a condition on two integers
CONDITIONS: dict[str, Callable[[Any, Any], Any]] = {
    "k <= i": lambda k, i: k <= i,
    "k < i": lambda k, i: k < i,
    "k >= i": lambda k, i: k >= i,
    "k > i": lambda k, i: k > i,
    "i <= k": lambda k, i: i <= k,
    "i > k": lambda k, i: i > k,
    "k < i + 1": lambda k, i: k < i + 1,
    "k + 1 <= i": lambda k, i: k + 1 <= i,
    "k > i - 1": lambda k, i: k > i - 1,
    "i - k <= -1": lambda k, i: i - k <= -1,
    "2 + k - i < 2": lambda k, i: 2 + k - i < 2,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_pairs(name: str) -> None:
    holds = CONDITIONS[name]
    order = prefix_order(holds(k, i), k, i)
    assert order is not None
    for element in range(-4, 5):
        for place in range(-4, 5):
            away = element > place if order.backward else element < place
            selected = away or (order.inclusive and element == place)
            assert selected == bool(holds(element, place))
    wide = prefix_order(holds(k.astype("int64"), i.astype("int64")), k, i)
    assert wide == order


OTHERS = {
    "two apart": k < i - 1,
    "two beyond": k < i + 2,
    "a multiple": k * 2 < i,
    "a sum": k + i < 3,
    "an equation": k.equal(i),
    "another": k < j,
    "three": k + j < i,
    "floats": k.astype("float32") < i.astype("float32"),
    "a bound": k < 5,
    "a number that wraps": k.astype("uint8").astype("int32") <= i,
    "narrow numbers": k.astype("int8") <= i.astype("int8"),
    "unsigned numbers": k.astype("uint32") <= i.astype("uint32"),
    "a narrower number": k <= tirx.Var("i", "int64").astype("int32"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    assert prefix_order(OTHERS[name], k, i) is None
