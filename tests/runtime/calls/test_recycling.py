"""Memory of large results is used again only when no array reads it."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.runtime.calls.recycling import KEPT_BY_MALLOC, RecycledMemory

LARGE = KEPT_BY_MALLOC // 4 + 1

#: what a caller keeps of an array → whether the next one may have its memory
KEEPS = {
    "nothing": (lambda array: None, True),
    "a number": (lambda array: array[0].item(), True),
    "a copy": (lambda array: array[::2].copy(), True),
    "the array": (lambda array: array, False),
    "a slice": (lambda array: array[1:], False),
    "a slice of a slice": (lambda array: array[1:][::2], False),
    "a transposed view": (lambda array: array.reshape(2, -1).T, False),
    "a view of another dtype": (lambda array: array.view("int32"), False),
    "the buffer": (memoryview, False),
    "what DLPack hands out": (np.from_dlpack, False),
}


@pytest.mark.parametrize("name", KEEPS)
def test_what_is_read_stays(name):
    keep, free = KEEPS[name]
    make = RecycledMemory((6,), np.dtype("float32"))
    array = make()
    place = array.ctypes.data
    kept = keep(array)
    del array
    assert (make().ctypes.data == place) == free
    del kept


def test_memory_of_one_array_is_kept():
    make = RecycledMemory((6,), np.dtype("float32"))
    arrays = [make() for _ in range(3)]
    last = arrays[-1].ctypes.data
    while arrays:
        arrays.pop(0)
    places = {make().ctypes.data, make().ctypes.data}
    assert places == {last}


def test_large_results_of_calls():
    x = te.placeholder((LARGE,), "float32", name="x")
    y = te.compute((LARGE,), lambda i: x[i] + te.const(1, "float32"), name="y")
    function = ad.build([x], y, cache=False)
    values = np.arange(LARGE, dtype="float32")
    first = function(values)
    place = first.ctypes.data
    del first
    second = function(values)
    assert second.ctypes.data == place
    end = second[-3:]
    del second
    third = function(-values)
    assert third.ctypes.data != place
    np.testing.assert_array_equal(end, values[-3:] + 1)
    np.testing.assert_array_equal(third, 1 - values)
