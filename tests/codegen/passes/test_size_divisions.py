"""Divisions of sizes round to zero, those by sizes have no divisor zero, and others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import tirx

from tvm_autodiff.codegen.passes.size_divisions import with_sizes_divided

#: an index of a size `n` and of a loop `i`, and what becomes of it
DIVISIONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "of a size": (lambda n, i: (n + 351) // 352, "T.Div(n + 351, 352)"),
    "rest of a size": (lambda n, i: n % 4, "T.truncmod(n, 4)"),
    "of what may be negative": (lambda n, i: (n - 5) // 4, "(n - 5) // 4"),
    "of a loop": (lambda n, i: (i + 3) // 4, "(i + 3) // 4"),
    "of both": (lambda n, i: (n + i) // 4, "(n + i) // 4"),
    "by a size": (lambda n, i: i // n, "i // T.max(n, 1)"),
    "rest by a size": (lambda n, i: i % (n * 3), "i % T.max(n * 3, 1)"),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions(name: str) -> None:
    index, wanted = DIVISIONS[name]
    n, i = tirx.Var("n", "int32"), tirx.Var("i", "int32")
    A = tirx.decl_buffer((1000,), "int32", "A")
    store = tirx.BufferStore(A, index(n, i), [i])
    body = tirx.For(i, 0, 1000, tirx.ForKind.SERIAL, store)
    module = tvm.IRModule({"main": tirx.PrimFunc([A, n], body)})
    assert f"A[i] = {wanted}" in with_sizes_divided(module)["main"].script()
