"""Handlers that XLA calls: results, the threads that compute, failures, calls from outside."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import pytest
import tvm_ffi
from tvm import te, topi

pytest.importorskip("tvm_autodiff.interop.jax", exc_type=ImportError)

import jax
import jax.numpy as jnp

from tvm_autodiff import build
from tvm_autodiff.interop.jax.foreign_call import handler_of
from tvm_autodiff.runtime.calls.native_call import NativeCall

SIZE = 1 << 20


def registered(call: NativeCall, name: str) -> object:
    address, code = handler_of(call, name)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(ctypes.c_void_p(address)), platform="cpu")
    return code


def test_parts_are_computed_by_threads_of_xla() -> None:
    x = te.placeholder((SIZE,), name="x")
    function = build([x], topi.exp(x))
    code = registered(function._native(), "tvm_autodiff_test_parts")
    called = jax.ffi.ffi_call("tvm_autodiff_test_parts", jax.ShapeDtypeStruct((SIZE,), "float32"))
    ours = jax.jit(lambda x: called(jnp.sin(x)) + 1)
    data = np.linspace(-1, 1, SIZE, dtype="float32")
    jax.block_until_ready(jax.jit(lambda x: jnp.sin(x) + 1)(data))
    before = _count_threads()
    np.testing.assert_allclose(ours(data), np.exp(np.sin(data)) + 1, rtol=1e-5)
    assert _count_threads() <= before  # none of TVM's, of which each caller would have some
    # outside of XLA, TVM's own pool computes
    np.testing.assert_allclose(function(data), np.exp(data), rtol=1e-5)
    assert code is not None


def _count_threads() -> int:
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0


def python_call(seen: list[object], fails: bool) -> NativeCall:
    """A program that is a Python function."""

    def main(first: int, *rest: object) -> int:
        if first == -2:
            return 0
        seen.append([array.shape for array in rest])
        seen.append([array.dtype for array in rest])
        if fails:
            raise ValueError("no memory")
        return 0

    return NativeCall(tvm_ffi.convert(main), np.arange(5), (2 | 32 << 8 | 1 << 16,) * 2, 16, 1)


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_program_is_given(fails: bool) -> None:
    seen: list[object] = []
    name = f"tvm_autodiff_test_given_{fails}"
    code = registered(python_call(seen, fails), name)
    result = jax.ShapeDtypeStruct((2, 3), "float32")
    called = jax.ffi.ffi_call(name, (result, jax.ShapeDtypeStruct((16,), "uint8")))
    if fails:
        with pytest.raises(Exception, match=f"{name}: a kernel failed"):
            jax.block_until_ready(called(jnp.zeros((4,), "float32")))
    else:
        jax.block_until_ready(called(jnp.zeros((4,), "float32")))
    assert seen == [[(5,), (16,), (4,), (2, 3)], ["int64", "uint8", "float32", "float32"]]
    assert code is not None


def test_calls_from_many_threads() -> None:
    x = te.placeholder((SIZE,), name="x")
    code = registered(build([x], topi.exp(x * 2))._native(), "tvm_autodiff_test_many")
    called = jax.ffi.ffi_call("tvm_autodiff_test_many", jax.ShapeDtypeStruct((SIZE,), "float32"))
    ours = jax.jit(lambda x: called(called(x * 0.1) * 0.1))
    data = [np.linspace(-1, n, SIZE, dtype="float32") for n in range(4)]
    wrong: list[int] = []

    def check(n: int) -> None:
        want = np.exp(0.2 * np.exp(0.2 * data[n]))
        for _ in range(5):
            wrong.extend([n] * (not np.allclose(ours(data[n]), want, rtol=1e-5)))

    threads = [threading.Thread(target=check, args=(n,)) for n in range(len(data))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert code is not None
