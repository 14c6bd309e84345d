"""Numbers in place of arrays of rank 0: what their dtype cannot hold is refused, not changed."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.runtime.calls.results import quick_call

ONE = np.ones(1, "float32")


def scaled_by(dtype: str) -> Any:
    """``y[i] = x[i]*number``."""
    s, x = te.placeholder((), dtype, name="s"), te.placeholder((1,), "float32", name="x")
    y = te.compute((1,), lambda i: x[i] * s().astype("float32"), name="y")
    return ad.build([s, x], y)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        *(("int32", n) for n in (2.5, 2**31, 10**400, math.nan, math.inf, 1e300)),
        *(("int8", n) for n in (128, -129, 0.5)),
        *(("uint8", n) for n in (-1, 256, 2.5)),
        *(("bool", n) for n in (2, -1, 0.5, math.nan)),
        *((kind, 10**400) for kind in ("float16", "bfloat16", "float32", "float64")),
        *(("float32", n) for n in (1e300, -1e39)),
        ("float16", 65520),
        ("float32", np.float64(1e300)), ("int32", np.float64(2.5)), ("int8", np.int64(128)),
    ],
)
def test_a_number_that_the_dtype_cannot_hold(dtype: str, number: Any) -> None:
    function = scaled_by(dtype)
    for _ in range(2):  # a first call of its types takes another way than the next ones
        with pytest.raises(ad.CallError, match=f"argument 's' must be a number that {dtype} holds"):
            function(number, ONE)
        function(1, ONE)
    plain = number.item() if isinstance(number, np.generic) else number
    shown = "an integer beyond 2**64" if plain == 10**400 else repr(plain)
    with pytest.raises(ad.CallError, match=re.escape(f"{dtype} holds, got {shown}")):
        function(number, ONE, out=np.zeros(1, "float32"))


@pytest.mark.parametrize(
    ("dtype", "number", "value"),
    [
        ("int32", 2.0, 2), ("int32", -(2**31), -(2.0**31)), ("uint8", 255, 255), ("bool", 1, 1),
        ("bool", True, 1), ("int64", True, 1), ("float16", 0.1, np.float16(0.1)),
        ("float32", math.inf, math.inf), ("float32", 3, 3), ("float32", -math.inf, -math.inf),
        ("bfloat16", 2**70, 2.0**70), ("float32", 2**70, 2.0**70), ("float64", -(2**70), -(2**70)),
        # numpy's numbers of other dtypes: what np.exp and the like give
        ("float32", np.float64(1.3), 1.3), ("float32", np.int64(3), 3), ("int32", np.float32(2), 2),
        ("float64", np.float16(0.5), 0.5), ("int8", np.uint64(3), 3), ("float16", np.bool_(1), 1),
        ("bfloat16", np.float64(0.5), 0.5),
    ],
)  # fmt: skip
def test_a_number_that_the_dtype_holds(dtype: str, number: Any, value: float) -> None:
    function = scaled_by(dtype)
    for _ in range(2):
        assert function(number, ONE) == np.float32(value)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.int8, np.bool_])
def test_a_scalar_of_numpy_is_passed_without_checks(kind: Any) -> None:
    function = scaled_by(np.dtype(kind).name)
    for _ in range(2):
        assert function(kind(1), ONE) == 1.0
    assert function(kind(1), ONE, out=np.zeros(1, "float32")) == 1.0
    with pytest.raises(ad.CallError, match="argument 's' must have dtype"):
        function(np.ones((), "complex64"), ONE)
    call = quick_call([kind(1), ONE], *(2 * [function.signature.inputs]), ())
    assert call is not None
    assert [place for place, _ in call.views] == [0]


@pytest.mark.parametrize("count", [1, 2])
def test_results_that_are_no_arrays(count: int) -> None:
    x = te.placeholder((1,), name="x")
    outputs = [te.compute((1,), lambda i: x[i] * 2.0, name=f"y{n}") for n in range(count)]
    function = ad.build(x, outputs if count > 1 else outputs[0])
    message = "out= must contain 2 arrays, got int" if count > 1 else "output 'y0' must be an array"
    with pytest.raises(ad.CallError, match=message):
        function(ONE, out=3)
