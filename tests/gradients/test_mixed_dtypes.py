"""Functions of two floats of different dtypes: values, gradients and tangents, each in the dtype of
its operand or result.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad

#: function → the same in numpy, and its partial derivatives
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "fmod": (np.fmod, lambda a, b: (np.ones_like(a), -np.trunc(a / b))),
    "atan2": (np.arctan2, lambda a, b: (b / (a * a + b * b), -a / (a * a + b * b))),
    "hypot": (np.hypot, lambda a, b: (a / np.hypot(a, b), b / np.hypot(a, b))),
    "copysign": (np.copysign, lambda a, b: (np.sign(a) * np.sign(b), np.zeros_like(a))),
}
PAIRS = (("float32", "float64"), ("float16", "float32"), ("float64", "float32"))
A, B = np.linspace(-3, 3, 6), np.array([0.4, -0.7, 0.3, 0.9, -0.45, 0.8])


def _at(function: Any, x: Any, y: Any, i: Any) -> Any:
    return function(x[i], y[i])


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_operands_of_two_dtypes(first: str, second: str) -> None:
    x, y = te.placeholder((6,), first, name="x"), te.placeholder((6,), second, name="y")
    head = te.placeholder((6,), first, name="head")
    dx, dy = te.placeholder((6,), first, name="dx"), te.placeholder((6,), second, name="dy")
    outputs, wanted = [], []
    a, b = A.astype(first).astype(float), B.astype(second).astype(float)
    for name, (value, partials) in FUNCTIONS.items():
        z = te.compute((6,), partial(_at, getattr(tirx, name), x, y), name=name)
        assert z.dtype == first
        outputs += [z, *ad.differentiate(z, [x, y], head)]
        outputs += ad.jvp(z, [x, y], [dx, dy])
        by_a, by_b = partials(a, b)
        wanted += [value(a, b), by_a, by_b, by_a + 2 * by_b]
    arrays = [A.astype(first), B.astype(second), *np.ones((2, 6), first), np.full(6, 2, second)]
    found = ad.build([x, y, head, dx, dy], outputs)(*arrays)
    dtypes = [first, first, second, first] * len(FUNCTIONS)
    assert [str(array.dtype) for array in found] == dtypes
    for number, (got, right) in enumerate(zip(found, wanted, strict=True)):
        # a gradient passes the dtype of the result
        close = 4 * max(np.finfo(first).eps, np.finfo(got.dtype).eps)
        np.testing.assert_allclose(got, right, rtol=close, atol=close, err_msg=str(number))
