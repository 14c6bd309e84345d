"""Parts of long formulas that several terms read: which are stages of their own, equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.gradient_case import check_numbers
from tests.rules.parts.stored_parts import check_parts
from tvm_autodiff.rules.parts.shared_parts import shared_parts

x = te.placeholder((5, 4), "float64", name="x")
p = te.placeholder((5, 3), "float64", name="p")


def ratio(i: Any, j: Any) -> Any:
    return x[i, j] / p[i, 0]


def skewed(i: Any, j: Any) -> Any:
    return te.log(ratio(i, j)) * p[i, 1] + p[i, 2]


def smile(i: Any, j: Any) -> Any:
    return te.exp(-skewed(i, j) * skewed(i, j)) + te.sqrt(ratio(i, j) + skewed(i, j))


def small(i: Any, j: Any) -> Any:
    z = skewed(i, j)
    inside = te.if_then_else(te.abs(z) < 0.1, 1.0 - z, te.sin(z) / z)
    return inside * te.exp(ratio(i, j)) * te.sqrt(ratio(i, j))


#: the body over i < 5 and j < 4, and how many parts are stages
CASES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "a formula": (smile, 2),
    "a choice": (small, 2),
    "few functions": (lambda i, j: te.exp(ratio(i, j)) * ratio(i, j) * p[i, 1] * p[i, 2], 0),
    "few elements": (lambda i, j: te.exp(ratio(i, j)) + te.sin(te.cos(ratio(i, j))), 0),
    "of some axes": (
        lambda i, j: te.exp(p[i, 0] / p[i, 1]) * te.sin(p[i, 0] / p[i, 1]) * te.sqrt(x[i, j])
        + p[i, 2] / x[i, j],
        0,
    ),
    "used once": (lambda i, j: te.exp(te.sin(te.cos(ratio(i, j)) * p[i, 1]) * p[i, 2]), 0),
    "in a side": (
        lambda i, j: te.if_then_else(j > 0, smile(i, j), x[i, j]),
        0,
    ),
}


def data() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [(x, rng.uniform(1, 2, (5, 4))), (p, rng.uniform(0.8, 1.2, (5, 3)))]


@pytest.mark.parametrize("name", CASES)
def test_parts_and_values(name: str) -> None:
    body, parts = CASES[name]
    y = te.compute((5, 4), body, name="y")
    check_parts(y, shared_parts, "shared", parts, data())


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    body, _ = CASES[name]
    check_numbers(te.compute((5, 4), body, name="y"), [x, p], values=dict(data()))


def test_second_derivatives() -> None:
    y = te.compute((5, 4), smile, name="y")
    head = te.placeholder((5, 4), "float64", name="head")
    [dp] = ad.differentiate(y, [p], head)
    values = {**dict(data()), head: np.random.default_rng(1).normal(size=(5, 4))}
    check_numbers(dp, [x, p], values=values)
