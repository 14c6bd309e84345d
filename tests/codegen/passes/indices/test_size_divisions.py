"""Divisions of sizes round to zero, those by sizes have no divisor zero, and others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

from tvm_autodiff.codegen.loop_nest import function
from tvm_autodiff.codegen.passes.indices.size_divisions import (
    with_rounding_down,
    with_rounding_to_zero,
    with_sizes_divided,
)

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


#: an index of a size, a loop and data, and what becomes of it where rounding is in question
ROUNDED: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "of a loop": (lambda n, i, data: i // n + i % n, "T.Div(i, n) + T.truncmod(i, n)"),
    "by more sizes": (lambda n, i, data: (i + 3) % (n * 2), "T.truncmod(i + 3, n * 2)"),
    "of what may be negative": (lambda n, i, data: (i - 1) // n, "(i - 1) // n"),
    "by what may be negative": (lambda n, i, data: i // (n - 2), "i // (n - 2)"),
    "by a number": (lambda n, i, data: i // 4, "i // 4"),
    "by data": (lambda n, i, data: i // data, "i // data"),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding(name: str) -> None:
    index, wanted = ROUNDED[name]
    n, i, data = (tirx.Var(v, "int32") for v in ("n", "i", "data"))
    A = tirx.decl_buffer((n,), "int32", "A")
    store = tirx.BufferStore(A, index(n, i, data), [i])
    read = tirx.Bind(data, tirx.BufferLoad(A, [tirx.const(0, "int32")]))
    body = tirx.SeqStmt([read, tirx.For(i, 0, 1000, tirx.ForKind.SERIAL, store)])
    assert f"A[i] = {wanted}" in with_rounding_to_zero(tirx.PrimFunc([A], body)).script()


#: a division by a size, at the end of TVM's lowering: a form that rounds down, or as it is
DOWN: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "quotient": (lambda n, i: (i - 9) // n, True),
    "rest": (lambda n, i: (i - 9) % n, True),
    "by more sizes": (lambda n, i: (4 - i) % (n * 2 + 1) + (3 * i - 50) // (n + 2), True),
    "of what is not negative": (lambda n, i: i // n * 100 + i % n, True),
    "by a checked size": (lambda n, i: (i - 9) % tirx.Select(n == 0, tirx.const(1), n), True),
    "wide": (lambda n, i: ((i.astype("int64") - 9) % n.astype("int64")).astype("int32"), True),
    "by what may be negative": (lambda n, i: (i - 9) // (n - 100), False),
    "by a number": (lambda n, i: (i - 9) // 4, False),
}


@pytest.mark.parametrize("name", DOWN)
def test_rounding_down(name: str) -> None:
    index, changes = DOWN[name]
    n, i = tirx.Var("n", "int32"), tirx.Var("i", "int32")
    A = tirx.decl_buffer((20,), "int32", "A")
    body = tirx.For(i, 0, 20, tirx.ForKind.SERIAL, tirx.BufferStore(A, index(n, i), [i]))
    func = tirx.PrimFunc([A, n], function([A], body).body)
    module = with_rounding_down(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    left = module["main"].script()
    assert changes == ("//" not in left and "%" not in left)
    compiled = tvm.compile(module, target="llvm")
    i_, result = np.arange(20, dtype="int32"), tvm.runtime.empty((20,), "int32")
    for size in (1, 2, 7, 33):
        compiled(result, size)
        if name == "by a checked size" or name == "wide":
            wanted = (i_ - 9) % size
        else:
            wanted = index(size, i_)
        np.testing.assert_array_equal(result.numpy(), wanted)
