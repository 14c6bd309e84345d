"""Signatures: dimensions are evaluated, checked and written to JSON and back."""

from __future__ import annotations

import json

import pytest

from tvm_autodiff.errors import CallError
from tvm_autodiff.runtime.signature import Signature, TensorSpec, dim_text, dim_value

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
