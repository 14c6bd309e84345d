"""Signatures: dimensions are evaluated, checked and written to JSON and back."""

from __future__ import annotations

import json

import pytest
from tvm import te

from tvm_autodiff.errors import CallError
from tvm_autodiff.runtime.calls.signature import Signature, TensorSpec, dim_text, dim_value
from tvm_autodiff.runtime.calls.tensor_signature import signature_of

DIMS = [
    (7, {}, 7, "7"),
    ("n", {"n": 3}, 3, "n"),
    ("n", {}, None, "n"),
    (["mul", "n", 2], {"n": 3}, 6, "(n * 2)"),
    (["floordiv", ["add", "n", 1], 2], {"n": 4}, 2, "((n + 1) // 2)"),
    (["truncdiv", ["sub", 1, "n"], 2], {"n": 4}, -1, "truncdiv((1 - n), 2)"),
    (["truncmod", ["sub", 1, "n"], 2], {"n": 4}, -1, "truncmod((1 - n), 2)"),
    (["truncmod", ["sub", 1, "n"], 3], {"n": 4}, 0, "truncmod((1 - n), 3)"),
    (["max", "n", "m"], {"n": 4, "m": 9}, 9, "max(n, m)"),
    (["max", "n", "m"], {"n": 4}, None, "max(n, m)"),
]


@pytest.mark.parametrize(("dim", "sizes", "value", "text"), DIMS)
def test_dimension(dim, sizes, value, text):
    assert dim_value(dim, sizes) == value
    assert dim_text(dim) == text


def signature():
    x = TensorSpec("x", ("n", 3), "float32")
    y = TensorSpec("y", (["mul", "n", 2],), "bfloat16")
    return Signature((x, y), (TensorSpec("z", ("n",), "float32"),), single=True)


def test_json():
    assert Signature.from_json(json.loads(json.dumps(signature().to_json()))) == signature()


def test_text():
    assert str(signature()) == "(x: float32(n, 3), y: bfloat16((n * 2),)) -> z: float32(n,)"


def test_symbols_are_learnt_and_checked():
    sizes: dict[str, int] = {}
    x, y = signature().inputs
    signature().check_array("argument", x, (5, 3), "float32", sizes)
    assert sizes == {"n": 5}
    with pytest.raises(CallError, match=r"'y' must have shape \(\(n \* 2\),\), got \(9,\)"):
        signature().check_array("argument", y, (9,), "bfloat16", sizes)


@pytest.mark.parametrize("shape", [(2**30 + 1, 3), (2**30, 3)], ids=["size", "elements"])
def test_symbolic_sizes_that_int32_does_not_count_to(shape):
    x, _ = signature().inputs
    with pytest.raises(CallError, match=r"'x' has shape .*declare them int64"):
        signature().check_array("argument", x, shape, "float32", {})
    wide = Signature((x,), (), wide=("n",))
    wide.check_array("argument", x, shape, "float32", {})


def test_int64_symbols_are_known_by_name():
    n, m = te.var("n", "int64"), te.var("m")
    tensors = [te.placeholder((n, m), name="x"), te.placeholder((m * 2,), name="y")]
    assert signature_of(tensors, [], False).wide == ("n",)
