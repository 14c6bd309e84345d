"""Arrays in the memory of a GPU, and copies of those that are not.

In: an array of any framework. Out: which GPU it lies on, the same memory as something that kernels
take, new arrays beside it, and the stream that its framework works on. No framework is imported
here: an object that belongs to one proves that it is loaded.
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
    """The number of the GPU that holds an array; None for one in the memory of the host."""
    device = getattr(array, "__dlpack_device__", None)
    if device is None:
        return None
    kind, number = device()
    return int(number) if int(kind) in _CUDA_DEVICES else None


def framework_of(array: Array) -> str:
    """The package that an array's class comes from: ``"torch"``, ``"cupy"``, ``"jax"``..."""
    return type(array).__module__.partition(".")[0]


def stream_of(array: Array, number: int) -> int:
    """The handle of the stream that the caller's framework works on; 0 is CUDA's own."""
    framework = framework_of(array)
    if framework == "torch":
        return int(sys.modules["torch"].cuda.current_stream(number).cuda_stream)
    if framework == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0


def borrow_on_device(array: Array) -> Any:
    """The memory of an array on a GPU, uncopied, as something that kernels take.

    Raises
    ------
    CallError
        It is not contiguous, or does not begin at a multiple of `ALIGNMENT` bytes.
    """
    if framework_of(array) == "torch" and array.requires_grad:
        array = array.detach()
    tensor = array if isinstance(array, tvm_ffi.Tensor) else tvm_ffi.from_dlpack(array)
    if not tensor.is_contiguous():
        raise CallError("must be contiguous, but has strides: copy it to a contiguous array")
    if tensor.data_ptr() % ALIGNMENT:
        raise CallError(
            f"must begin at a multiple of {ALIGNMENT} bytes, which a view into an array need not: "
            "copy it"
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
    """A tensor as an array of the framework of `sample`; itself where that imports none."""
    framework = framework_of(sample)
    if framework in ("jax", "jaxlib"):
        return sys.modules["jax"].dlpack.from_dlpack(tensor)
    namespace = getattr(sample, "__array_namespace__", None)
    module = namespace() if namespace is not None else sys.modules.get(framework)
    convert = getattr(module, "from_dlpack", None)
    return tensor if convert is None else convert(tensor)


def copy_to_device(kind: ArrayKind, array: Array, device: Any) -> Any:
    """A copy of an array of the host on a GPU."""
    shape, dtype = kind.shape_dtype(array)
    copy = empty(tuple(shape), dtype, device)
    _host_tensor(kind.borrow(array, False)).copyto(copy)
    return copy


def copy_to_host(kind: ArrayKind, tensor: Any, array: Array) -> None:
    """Copy a tensor of a GPU into an array of the host."""
    tensor.copyto(_host_tensor(kind.borrow(array, True)))


def _host_tensor(borrowed: Any) -> Any:
    if isinstance(borrowed, tvm_ffi.Tensor):
        return borrowed
    return tvm_ffi.from_dlpack(borrowed, require_alignment=0)
