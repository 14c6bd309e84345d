"""Arrays in the memory of a GPU, and copies between host and GPU.

For an array of any framework it finds the GPU, the memory in a form that kernels take, and the
current stream, and makes new arrays beside it. No framework is imported here: an object of a
framework proves that it is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import tvm_ffi

from ..errors import CallError
from .arrays import Array, ArrayKind
from .tensors import empty

ALIGNMENT = 16  #: bytes: kernels read as many at once
_CUDA_DEVICES = (2, 13)  #: DLPack's numbers of CUDA memory, its own and managed


def gpu_of(array: Array) -> int | None:
    """The number of the GPU that holds an array, or None for an array on the host."""
    device = getattr(array, "__dlpack_device__", None)
    if device is None:
        return None
    kind, number = device()
    return int(number) if int(kind) in _CUDA_DEVICES else None


def framework_of(array: Array) -> str:
    """The package of an array's class: ``"torch"``, ``"cupy"``, ``"jax"``..."""
    return type(array).__module__.partition(".")[0]


def stream_of(array: Array, number: int) -> int:
    """The handle of the current stream of the caller's framework; 0 is CUDA's default stream."""
    framework = framework_of(array)
    if framework == "torch":
        return int(sys.modules["torch"].cuda.current_stream(number).cuda_stream)
    if framework == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0


def borrow_on_device(array: Array) -> Any:
    """The memory of an array on a GPU, without a copy, in a form that kernels take.

    Raises
    ------
    CallError
        If it is not contiguous, or does not start at a multiple of `ALIGNMENT` bytes.
    """
    if framework_of(array) == "torch" and array.requires_grad:
        array = array.detach()
    tensor = array if isinstance(array, tvm_ffi.Tensor) else tvm_ffi.from_dlpack(array)
    if not tensor.is_contiguous():
        raise CallError("must be contiguous, but has strides: copy it to a contiguous array")
    if tensor.data_ptr() % ALIGNMENT:
        raise CallError(
            f"must start at a multiple of {ALIGNMENT} bytes, which views may not: copy it"
        )
    return array if framework_of(array) == "torch" else tensor


def empty_on_device(sample: Array, shape: Sequence[int], dtype: str, device: Any) -> Array:
    """A new array of the framework of `sample`, on its GPU."""
    if framework_of(sample) == "torch":
        torch = sys.modules["torch"]
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=sample.device)
    tensor = empty(tuple(shape), dtype, device)
    if isinstance(sample, tvm_ffi.Tensor):
        return tensor
    return _imported(sample, tensor)


def _imported(sample: Array, tensor: Any) -> Array:
    """A tensor as an array of the framework of `sample`, or the tensor itself if that cannot import
    it.
    """
    framework = framework_of(sample)
    if framework in ("jax", "jaxlib"):
        return sys.modules["jax"].dlpack.from_dlpack(tensor)
    namespace = getattr(sample, "__array_namespace__", None)
    module = namespace() if namespace is not None else sys.modules.get(framework)
    convert = getattr(module, "from_dlpack", None)
    return tensor if convert is None else convert(tensor)


def copy_to_device(kind: ArrayKind, array: Array, device: Any) -> Any:
    """A copy of a host array on a GPU."""
    shape, dtype = kind.shape_dtype(array)
    copy = empty(tuple(shape), dtype, device)
    _host_tensor(kind.borrow(array, False)).copyto(copy)
    return copy


def copy_to_host(kind: ArrayKind, tensor: Any, array: Array) -> None:
    """Copy a GPU tensor into a host array."""
    tensor.copyto(_host_tensor(kind.borrow(array, True)))


def _host_tensor(borrowed: Any) -> Any:
    if isinstance(borrowed, tvm_ffi.Tensor):
        return borrowed
    return tvm_ffi.from_dlpack(borrowed, require_alignment=0)
