"""Texts of tensors: what they tell apart, and what has none."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te

from tvm_autodiff.graph.serialized import serialized

X = te.placeholder((3,), name="x")


def stage(**attributes: object) -> te.Tensor:
    return te.compute((3,), lambda i: X[i] * 2.0, name="y", attrs=attributes)


def test_attributes_tell_stages_apart() -> None:
    texts = [serialized([[stage(hint=hint)]]) for hint in ("a", "a", "b")]
    assert texts[0] == texts[1] != texts[2]


HELD = {
    "function": tvm_ffi.convert(lambda a: a),
    "array": tvm.runtime.tensor(np.ones(3)),
    "in a list": [1, tvm_ffi.convert(lambda a: a)],
    "in a map": {"inner": [tvm.runtime.tensor(np.ones(3))]},
}


@pytest.mark.parametrize("name", HELD)
def test_what_holds_functions_or_arrays_has_no_text(name: str) -> None:
    assert serialized([[X], [stage(held=HELD[name])]]) is None
