"""Conditions that are compared with one another, computed or read: values, and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.expr.build import compare
from tvm_autodiff.expr.nodes import as_expr

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "ge": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARISONS)
def test_computed_and_read(name: str) -> None:
    n = 37
    x, y, h = (te.placeholder((n,), "float32", name=name) for name in "xyh")
    flag = te.placeholder((n,), "bool", name="flag")

    def value(i: Any) -> Any:
        same_sign = compare(name, x[i] > 0.0, y[i] > 0.0)
        chosen = te.if_then_else(same_sign, x[i] * y[i], y[i])
        return te.if_then_else(compare(name, as_expr(flag[i]), x[i] < 0.5), chosen, x[i])

    z = te.compute((n,), value, name="z")
    built = ad.build([x, y, flag, h], [z, *ad.differentiate(z, [x, y], h)])
    rng = np.random.default_rng(0)
    a, b, head = (rng.normal(size=n).astype("float32") for _ in range(3))
    read = rng.integers(0, 2, n).astype(bool)
    found = built(a, b, read, head)
    holds = COMPARISONS[name]
    outer, inner = holds(read, a < 0.5), holds(a > 0, b > 0)
    np.testing.assert_allclose(found[0], np.where(outer, np.where(inner, a * b, b), a), rtol=1e-6)
    by_x = np.where(outer, np.where(inner, b, 0), 1)
    by_y = np.where(outer, np.where(inner, a, 1), 0)
    np.testing.assert_allclose(found[1], head * by_x, rtol=1e-6)
    np.testing.assert_allclose(found[2], head * by_y, rtol=1e-6)
