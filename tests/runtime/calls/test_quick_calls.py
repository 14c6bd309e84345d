"""Calls whose arrays kernels take as they are, or in a view: which they are; others are checked."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.runtime.calls.results import quick_call
from tvm_autodiff.runtime.calls.signature import TensorSpec

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def given(dtype: str, shape: tuple[int, ...] = (2, 3)) -> np.ndarray:
    return np.arange(6).reshape(shape).astype(BFLOAT16 if dtype == "bfloat16" else dtype)


@pytest.fixture(scope="module", params=[False, True], ids=["constant", "symbolic"])
def doubled(request):
    """``y = 2*x`` of bfloat16."""
    rows = te.var("n") if request.param else 2
    x = te.placeholder((rows, 3), "bfloat16", name="x")
    y = te.compute((rows, 3), lambda i, j: x[i, j] + x[i, j], name="y")
    return ad.build([x], y, num_threads=1)


#: the arrays of a call → the places of those that are passed as views; None for a checked call
VIEWS = {
    "float32": ([given("float32")], ("float32", "float32"), []),
    "bfloat16": ([given("bfloat16")], ("bfloat16", "bfloat16"), [0, 1]),
    "bfloat16 in": ([given("bfloat16")], ("bfloat16", "float32"), [0]),
    "bfloat16 out": ([given("float32")], ("float32", "bfloat16"), [1]),
    "results": ([given("bfloat16"), given("bfloat16")], ("bfloat16", "bfloat16"), [0, 1]),
    "a list": ([[1.0]], ("float32", "float32"), None),
}


@pytest.mark.parametrize("name", VIEWS)
def test_which_arrays_are_views(name: str) -> None:
    arrays, dtypes, places = VIEWS[name]
    x, y = (TensorSpec(n, (2, 3), dtype) for n, dtype in zip("xy", dtypes, strict=True))
    call = quick_call(arrays, [x], [y], ())
    assert (None if call is None else [place for place, _ in call.views]) == places


def test_a_view_shares_memory() -> None:
    array, spec = given("bfloat16"), TensorSpec("x", (2, 3), "bfloat16")
    call = quick_call([array], [spec], [spec], ())
    assert call is not None
    seen = call.views[0][1](array)
    array[0, 0] = 7
    assert (str(seen.dtype), tuple(seen.shape)) == ("bfloat16", (2, 3))
    bits = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint16 * 6).from_address(seen.data_ptr()))
    assert bits.view(BFLOAT16)[0] == 7


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


#: a call after one that was quick → the values, or what its error names
CALLS = {
    "again": (lambda: given("bfloat16"), None),
    "read-only": (lambda: read_only(given("bfloat16")), None),
    "bits": (lambda: given("bfloat16").view("uint16"), "uint16"),
    "another dtype": (lambda: given("float16"), "float16"),
    "another shape": (lambda: given("bfloat16", (3, 2)), "x"),
    "columns": (lambda: np.asfortranarray(given("bfloat16")), "strides"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_bfloat16(doubled, name: str) -> None:
    make, error = CALLS[name]
    for _ in range(2):  # the second one is quick
        np.testing.assert_array_equal(doubled(given("bfloat16")), 2 * given("bfloat16"))
    if error is None:
        result = doubled(make())
        assert result.dtype == BFLOAT16
        np.testing.assert_array_equal(result, 2 * given("bfloat16"))
    else:
        with pytest.raises(ad.CallError, match=error):
            doubled(make())


def test_results_of_the_caller(doubled) -> None:
    out = np.zeros((2, 3), BFLOAT16)
    for _ in range(2):
        assert doubled(given("bfloat16"), out=out) is out
        np.testing.assert_array_equal(out, 2 * given("bfloat16"))
    with pytest.raises(ad.CallError, match="y"):
        doubled(given("bfloat16"), out=read_only(out))
    with pytest.raises(ad.CallError, match="share memory"):
        doubled(array := given("bfloat16"), out=array)


def test_a_number() -> None:
    s, x = te.placeholder((), "bfloat16", name="s"), te.placeholder((3,), "bfloat16", name="x")
    scaled = ad.build([s, x], te.compute((3,), lambda i: s() * x[i], name="y"))
    for _ in range(2):
        np.testing.assert_array_equal(scaled(3.0, given("bfloat16", (6,))[:3]), [0, 3, 6])
