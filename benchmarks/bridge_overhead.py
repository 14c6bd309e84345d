"""Microseconds that a call from PyTorch and from JAX costs: ``python -m
benchmarks.bridge_overhead``.

Tiny arrays, so that nearly all of the time is the call; beside them empty custom operators of the
framework, which allocate their results and compute nothing, and the kernels called without a
bridge. Best of several rounds, one thread.
"""

from __future__ import annotations

import ctypes
import importlib.util
import timeit
from collections.abc import Callable, Iterator
from typing import Any

from tvm import te, topi

from tvm_autodiff import build, differentiate
from tvm_autodiff.codegen.host.native_code import native_functions

Row = tuple[str, Callable[[], Any], int]  #: what is called, and how often at a time

SIZE = 8

#: a handler of XLA's foreign function interface that tells its version and does nothing
EMPTY = """
define ptr @empty(ptr %frame) {
  %extension_place = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension_place
  %is_plain = icmp eq ptr %extension, null
  br i1 %is_plain, label %run, label %describe

describe:
  %described_place = getelementptr i8, ptr %extension, i64 24
  %described = load ptr, ptr %described_place
  %api_place = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api_place
  %version_place = getelementptr i8, ptr %api, i64 32
  %version = load i64, ptr %version_place
  %told = getelementptr i8, ptr %described, i64 24
  store i64 %version, ptr %told
  %traits = getelementptr i8, ptr %described, i64 32
  store i32 0, ptr %traits
  ret ptr null

run:
  ret ptr null
}
"""


def energy(x: Any, y: Any) -> Any:
    """A function with a derivative of which something is computed."""
    return topi.sum(topi.multiply(topi.multiply(x, x), y))


def of_jax() -> Iterator[Row]:
    """Calls under `jax.jit` and without."""
    import jax
    import jax.numpy as jnp

    from tvm_autodiff.interop.jax import function

    (address,), code = native_functions(["empty"], EMPTY)
    capsule = jax.ffi.pycapsule(ctypes.c_void_p(address))
    jax.ffi.register_ffi_target("tvm_autodiff_empty", capsule, platform="cpu")
    shape = jax.ShapeDtypeStruct((SIZE,), "float32")
    x, y = jnp.ones(SIZE), jnp.ones(SIZE)
    ours = function(topi.add)
    gradient = jax.value_and_grad(function(energy))
    calls = {
        "empty operator, jit": jax.jit(
            lambda x, y: jax.ffi.ffi_call("tvm_autodiff_empty", shape)(x, y)
        ),
        "ours, jit": jax.jit(ours),
        "ours, not under jit": ours,
        "ours, value and gradient, jit": jax.jit(gradient),
        "jnp, value and gradient, jit": jax.jit(
            jax.value_and_grad(lambda x, y: jnp.sum(x * x * y))
        ),
    }
    for name, call in calls.items():
        yield f"JAX: {name}", lambda call=call, code=code: call(x, y), 2000


def of_torch() -> Iterator[Row]:
    """Calls with and without a backward pass."""
    import torch

    from tvm_autodiff.interop.torch import function

    torch.set_num_threads(1)
    library = torch.library.Library("tvm_autodiff_benchmark", "DEF")
    library.define("empty(Tensor x, Tensor y) -> Tensor")
    library.impl("empty", lambda x, y: torch.empty_like(x), "CPU")
    library.define("energy(Tensor x, Tensor y) -> Tensor")
    library.impl("energy", lambda x, y: torch.empty(()), "CPU")
    library.define("slope(Tensor x, Tensor y, Tensor head) -> Tensor")
    library.impl("slope", lambda x, y, head: torch.empty_like(x), "CPU")
    empty = torch.ops.tvm_autodiff_benchmark.empty.default
    empty_energy = torch.ops.tvm_autodiff_benchmark.energy.default
    empty_slope = torch.ops.tvm_autodiff_benchmark.slope.default
    x, y, head = torch.ones(SIZE), torch.ones(SIZE), torch.ones(())
    moving = torch.ones(SIZE, requires_grad=True)
    ours, ours_energy = function(topi.add), function(energy)

    class Empty(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, y: Any) -> Any:
            context.save_for_backward(x, y)
            return empty_energy(x, y)

        @staticmethod
        def backward(context: Any, head: Any) -> Any:
            x, y = context.saved_tensors
            return empty_slope(x, y, head), None

    tensors = [te.placeholder((SIZE,), name=name) for name in "xy"]
    cotangent = te.placeholder((), name="cotangent")
    value = energy(*tensors)
    add = build(tensors, topi.add(*tensors))
    forward = build(tensors, value)
    [gradient] = differentiate(value, tensors[:1], head=cotangent)
    backward = build([*tensors, cotangent], gradient)

    yield "PyTorch: empty operator", lambda: (empty(x, y), library), 2000
    yield "PyTorch: the kernel alone", lambda: add(x, y), 2000
    yield "PyTorch: ours", lambda: ours(x, y), 2000
    yield (
        "PyTorch: the kernels alone, forward and backward",
        lambda: (forward(x, y), backward(x, y, head)),
        1000,
    )
    yield (
        "PyTorch: empty operators, forward and backward",
        lambda: torch.autograd.grad(Empty.apply(moving, y), moving),
        1000,
    )
    yield (
        "PyTorch: ours, forward and backward",
        lambda: torch.autograd.grad(ours_energy(moving, y), moving),
        1000,
    )


def main() -> None:
    """Print a table."""
    print("| call | µs |\n|---|---|")
    for framework, rows in (("jax", of_jax), ("torch", of_torch)):
        if importlib.util.find_spec(framework) is None:
            print(f"| {framework} is not installed | |")
            continue
        for name, call, number in rows():
            call()
            best = min(timeit.repeat(call, number=number, repeat=7)) / number
            print(f"| {name} | {1e6 * best:.1f} |")


if __name__ == "__main__":
    main()
