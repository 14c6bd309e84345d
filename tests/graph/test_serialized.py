"""Texts of tensors: what they tell apart, and what has none."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te

from tvm_autodiff import build, custom_vjp, differentiate, scan
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


def test_custom_rules_in_a_step_are_no_part_of_the_text() -> None:
    """A build computes without them, and TVM cannot write the Python functions that they are."""

    @custom_vjp
    def ruled(a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda i: te.sin(a[i]), name="s")

    @ruled.defvjp
    def _(outputs: list, inputs: list, cotangents: list) -> list:
        return [te.compute((3,), lambda i: cotangents[0][i] * 2.0)]

    def plain(a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda i: te.sin(a[i]), name="s")

    lasts = [scan(lambda c, _, f=f: (f(c), None), X, length=2)[0] for f in (ruled, plain)]
    texts = [serialized([[X], [last]]) for last in lasts]
    assert texts[0] is not None
    for last in lasts:
        np.testing.assert_allclose(build(X, last)(np.ones(3, "float32")), np.sin(np.sin(1.0)), 1e-6)
    [dx] = differentiate(lasts[0], [X], X)
    np.testing.assert_allclose(build(X, [lasts[0], dx])(np.ones(3, "float32"))[1], 4.0)
