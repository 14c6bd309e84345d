"""Operands of products at other places, in the dtypes that they had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te

from tvm_autodiff.expr.nodes import dtype_of, node_id
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.schedule.nest.products import rebased

i, k, p = te.var("i"), te.var("k"), te.var("p")

#: an expression over i and k, and the same with p for ``i + k``
REBASED: dict[str, tuple[Callable[[], Any], str]] = {
    "a guard": (lambda: i + k + 1 < 5, "p + 1 < 5"),
    "in int64": (
        lambda: (i + k + 1).astype("int64") * (i + k).astype("int64") < 5,
        "(int64(p) + 1)*int64(p) < 5",
    ),
    "a difference": (lambda: 3 - i - k < 5, "-p + 3 < 5"),
}


@pytest.mark.parametrize("name", REBASED)
def test_rebased(name: str) -> None:
    make, wanted = REBASED[name]
    old = make()
    new = rebased(old, [i, k], {((node_id(i), 1), (node_id(k), 1)): p})
    assert dtype_of(new) == dtype_of(old)
    assert text(new) == wanted
