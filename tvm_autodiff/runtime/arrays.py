"""Arrays of any framework as arguments and results of compiled functions.

For a numpy, TVM, PyTorch or JAX array, or any object with DLPack, it gives shape, dtype and layout,
the same memory in a form that kernels take, and new result arrays of the same framework. No
framework is imported here: an object of a framework proves that it is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import tvm_ffi

from ..errors import CallError
from .calls.recycling import KEPT_BY_MALLOC, RecycledMemory
from .tensors import empty, reinterpreting

Array = Any  #: an array of some framework


class ArrayKind(Protocol):
    """One framework's arrays."""

    name: str

    def shape_dtype(self, array: Array) -> tuple[Sequence[int], str]:
        """Shape and dtype name."""

    def problem(self, array: Array) -> str | None:
        """The reason why kernels on this host cannot use the memory of the array, or None."""

    def borrow(self, array: Array, writable: bool) -> Any:
        """The memory of the array, without a copy, in a form that kernels take."""

    def empty(self, shape: Sequence[int], dtype: str) -> Array:
        """A new array for a result, in memory that `borrow` can pass to kernels."""

    def finish(self, array: Array) -> Array:
        """The result for the caller, from an array that `empty` made."""

    def maker(self, shape: Sequence[int], dtype: str) -> Callable[[], Array] | None:
        """A fast `empty` for arrays that need neither `borrow` nor `finish`, or None."""

    def viewer(self, shape: Sequence[int], dtype: str) -> Callable[[Array], Any] | None:
        """A fast `borrow` for arrays of a `maker`, which raises for others; None where kernels take
        the array itself.
        """


def numpy_dtype(dtype: str) -> np.dtype:
    """The numpy dtype of a TVM dtype name; bfloat16 and the float8 types come from ml_dtypes."""
    try:
        return np.dtype(dtype)
    except TypeError:
        return np.dtype(getattr(ml_dtypes, dtype))


class _WritableAlias:
    """A writable alias of a read-only numpy array, which DLPack does not export; kernels only read
    it.
    """

    def __init__(self, array: np.ndarray) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self.owner = array


class NumpyKind:
    """numpy arrays and scalars, including ml_dtypes."""

    name = "numpy"

    def shape_dtype(self, array: Array) -> tuple[Sequence[int], str]:
        """The shape and the dtype name of a numpy array."""
        return array.shape, array.dtype.name

    def problem(self, array: Array) -> str | None:
        """The reason why kernels cannot use the memory of a numpy array, or None."""
        if not array.flags.c_contiguous:
            return f"strides {array.strides}: use np.ascontiguousarray"
        if not array.dtype.isnative or not array.flags.aligned:
            return "foreign byte order or unaligned elements: copy it to a native array"
        return None

    def borrow(self, array: Array, writable: bool) -> Any:
        """The memory of a numpy array, without a copy."""
        array = np.asarray(array)
        if array.size == 0:  # numpy gives it strides of zero, which are no layout to TVM
            return empty(array.shape, array.dtype.name)
        if not array.flags.writeable:
            if writable:
                raise CallError("an output array must be writable")
            array = np.asarray(_WritableAlias(array.view(_dlpack_dtype(array.dtype)))).view(
                array.dtype
            )
        raw = _dlpack_dtype(array.dtype)
        if raw is array.dtype:
            return array
        bits = tvm_ffi.from_dlpack(array.view(raw), require_alignment=0)
        return reinterpreting(array.shape, array.dtype.name)(bits)

    def empty(self, shape: Sequence[int], dtype: str) -> Array:
        """A new numpy array for a result."""
        return np.empty(shape, numpy_dtype(dtype))

    def finish(self, array: Array) -> Array:
        """The result for the caller, as a numpy array."""
        return array

    def maker(self, shape: Sequence[int], dtype: str) -> Callable[[], Array] | None:
        """A fast `empty` for results, or None."""
        kind = numpy_dtype(dtype)
        if kind.kind not in "fiubV":
            return None
        if prod(shape) * kind.itemsize > KEPT_BY_MALLOC and kind.kind != "V":
            return RecycledMemory(shape, kind)
        return partial(np.empty, tuple(shape), kind)

    def viewer(self, shape: Sequence[int], dtype: str) -> Callable[[Array], Any] | None:
        """A fast `borrow` for arrays of dtypes that numpy does not export, and for empty ones."""
        kind = numpy_dtype(dtype)
        exported = _dlpack_dtype(kind) is kind and 0 not in shape
        return None if exported else _Viewer(tuple(shape), kind)


class _Viewer:
    """TVM arrays over the memory of numpy arrays of a shape and a dtype that numpy does not export,
    or of none: numpy gives those strides of zero, which are no layout to TVM.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._shape, self._dtype, self._raw = shape, dtype, _dlpack_dtype(dtype)
        nothing = empty(shape, dtype.name) if 0 in shape else None
        self._view = reinterpreting(shape, dtype.name) if nothing is None else lambda _: nothing

    def __call__(self, array: np.ndarray) -> Any:
        """The TVM array; raises for an array of another shape, dtype or order."""
        given = array.dtype, array.shape, array.flags.c_contiguous
        if given != (self._dtype, self._shape, True):
            raise CallError(f"expected a contiguous array of {self._dtype}{list(self._shape)}")
        return self._view(array.view(self._raw))


def _dlpack_dtype(dtype: np.dtype) -> np.dtype:
    # numpy exports only its own dtypes: others are passed as unsigned ints of their width
    if dtype.kind in "fiubc":
        return dtype
    return np.dtype(f"uint{8 * dtype.itemsize}")


class TvmKind:
    """TVM tensors."""

    name = "tvm"

    def shape_dtype(self, array: Array) -> tuple[Sequence[int], str]:
        """The shape and the dtype name of a TVM tensor."""
        return tuple(array.shape), str(array.dtype)

    def problem(self, array: Array) -> str | None:
        """The reason why kernels cannot use the memory of a TVM tensor, or None."""
        if _tvm_device(array) != "cpu":
            return f"device {array.device}: copy it to the CPU"
        return None if array.is_contiguous() else f"strides {tuple(array.strides)}: copy it"

    def borrow(self, array: Array, writable: bool) -> Any:
        """The memory of a TVM tensor, without a copy."""
        return array

    def empty(self, shape: Sequence[int], dtype: str) -> Array:
        """A new TVM tensor for a result."""
        return empty(tuple(shape), dtype)

    def finish(self, array: Array) -> Array:
        """The result for the caller, as a TVM tensor."""
        return array

    def maker(self, shape: Sequence[int], dtype: str) -> Callable[[], Array] | None:
        """A fast `empty` for results, or None."""
        return partial(empty, tuple(shape), dtype)

    def viewer(self, shape: Sequence[int], dtype: str) -> Callable[[Array], Any] | None:
        """None: kernels take the array itself."""
        return None


def _tvm_device(array: Array) -> str:
    return str(array.device).split(":")[0].split("(")[0]


class TorchKind:
    """PyTorch tensors on the CPU."""

    name = "torch"

    def shape_dtype(self, array: Array) -> tuple[Sequence[int], str]:
        """The shape and the dtype name of a PyTorch tensor."""
        return tuple(array.shape), str(array.dtype).removeprefix("torch.")

    def problem(self, array: Array) -> str | None:
        """The reason why kernels cannot use the memory of a PyTorch tensor, or None."""
        if array.device.type != "cpu":
            return f"device {array.device}: move it with .cpu()"
        if array.layout is not sys.modules["torch"].strided:
            return f"layout {array.layout}: use .to_dense()"
        if array.is_neg():
            return "the negated values: use .resolve_neg()"
        if not array.is_contiguous():
            return f"strides {tuple(array.stride())}: use .contiguous()"
        return None

    def borrow(self, array: Array, writable: bool) -> Any:
        """The memory of a PyTorch tensor, without a copy."""
        return array.detach() if array.requires_grad else array

    def empty(self, shape: Sequence[int], dtype: str) -> Array:
        """A new PyTorch tensor for a result."""
        torch = sys.modules["torch"]
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype))

    def finish(self, array: Array) -> Array:
        """The result for the caller, as a PyTorch tensor."""
        return array

    def maker(self, shape: Sequence[int], dtype: str) -> Callable[[], Array] | None:
        """A fast `empty` for results, or None."""
        torch = sys.modules["torch"]
        return partial(torch.empty, tuple(shape), dtype=getattr(torch, dtype))

    def viewer(self, shape: Sequence[int], dtype: str) -> Callable[[Array], Any] | None:
        """None: kernels take the array itself."""
        return None


class JaxKind(NumpyKind):
    """JAX arrays. They are immutable, so results are made in numpy and converted."""

    name = "jax"

    def shape_dtype(self, array: Array) -> tuple[Sequence[int], str]:
        """The shape and the dtype name of a JAX array."""
        return array.shape, array.dtype.name

    def problem(self, array: Array) -> str | None:
        """The reason why kernels cannot use the memory of a JAX array, or None."""
        if isinstance(array, np.ndarray):
            return None
        if isinstance(array, sys.modules["jax"].core.Tracer):
            return (
                "no memory while JAX traces it: make an operator with "
                "tvm_autodiff.interop.jax.function"
            )
        if array.is_deleted():
            return "no memory any more: it was deleted or donated"
        platforms = {device.platform for device in array.devices()}
        return None if platforms == {"cpu"} else f"device {platforms}: move it to the CPU"

    def borrow(self, array: Array, writable: bool) -> Any:
        """The memory of a JAX array, without a copy."""
        if isinstance(array, np.ndarray):
            return super().borrow(array, writable)
        if writable:
            raise CallError(
                "a JAX array cannot be written: pass a NumPy array, or use what the call returns, "
                "without out= and updates="
            )
        return tvm_ffi.from_dlpack(array, require_alignment=0)

    def finish(self, array: Array) -> Array:
        """The result for the caller, as a JAX array."""
        return sys.modules["jax"].numpy.asarray(array)

    def maker(self, shape: Sequence[int], dtype: str) -> Callable[[], Array] | None:
        """A fast `empty` for results, or None."""
        return None


class DLPackKind(NumpyKind):
    """Other objects with ``__dlpack__``; results are numpy arrays, or come from its array
    namespace.
    """

    name = "dlpack"

    def __init__(self, sample: Array) -> None:
        namespace = getattr(sample, "__array_namespace__", None)
        self._namespace = namespace() if namespace is not None else None

    def _tensor(self, array: Array) -> Any:
        return tvm_ffi.from_dlpack(array, require_alignment=0)

    def shape_dtype(self, array: Array) -> tuple[Sequence[int], str]:
        """The shape and the dtype name of an object with DLPack."""
        if isinstance(array, np.ndarray):
            return super().shape_dtype(array)
        tensor = self._tensor(array)
        return tuple(tensor.shape), str(tensor.dtype)

    def problem(self, array: Array) -> str | None:
        """The reason why kernels cannot use the memory of an object with DLPack, or None."""
        if isinstance(array, np.ndarray):
            return super().problem(array)
        tensor = self._tensor(array)
        if _tvm_device(tensor) != "cpu":
            return f"device {tensor.device}: copy it to the CPU"
        return None if tensor.is_contiguous() else "not contiguous: copy it"

    def borrow(self, array: Array, writable: bool) -> Any:
        """The memory of an object with DLPack, without a copy."""
        if isinstance(array, np.ndarray):
            return super().borrow(array, writable)
        return self._tensor(array)

    def finish(self, array: Array) -> Array:
        """The result for the caller."""
        convert = getattr(self._namespace, "from_dlpack", None)
        return array if convert is None else convert(array)

    def maker(self, shape: Sequence[int], dtype: str) -> Callable[[], Array] | None:
        """A fast `empty` for results, or None."""
        return None


_NUMPY, _TVM, _TORCH, _JAX = NumpyKind(), TvmKind(), TorchKind(), JaxKind()


def kind_of(array: Array) -> ArrayKind | None:
    """The framework of an array, or None for an object that kernels cannot read as one."""
    if isinstance(array, (np.ndarray, np.generic)):
        return None if is_masked(array) else _NUMPY
    if isinstance(array, tvm_ffi.Tensor):
        return _TVM
    root = type(array).__module__.partition(".")[0]
    if root == "torch" or ("torch" in sys.modules and _is_torch(array)):
        return _TORCH
    if root in ("jax", "jaxlib"):
        return _JAX
    # a class has the attributes of its arrays
    found = hasattr(array, "__dlpack__") and not isinstance(array, type)
    return DLPackKind(array) if found else None


def is_masked(array: Array) -> bool:
    """Whether an array is one of `numpy.ma`, whose mask kernels would not read."""
    masked = sys.modules.get("numpy.ma")  # numpy imports it when it is first used
    return masked is not None and isinstance(array, masked.MaskedArray)


def is_torch_type(kind: type) -> bool:
    """Whether a type is that of PyTorch tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(kind, getattr(torch, "Tensor", ()))


def needs_checks(array: Array) -> bool:
    """Whether an array is a PyTorch tensor that is recorded, or whose memory is negated."""
    return is_recorded(array) or (hasattr(array, "is_neg") and array.is_neg())


def is_recorded(array: Array) -> bool:
    """Whether an array is a PyTorch tensor that autograd records the use of."""
    return getattr(array, "requires_grad", False) is True and (
        "torch" in sys.modules and sys.modules["torch"].is_grad_enabled()
    )


def _is_torch(array: Array) -> bool:
    tensor_type = getattr(sys.modules["torch"], "Tensor", None)
    return tensor_type is not None and isinstance(array, tensor_type)


def numpy_kind() -> ArrayKind:
    """The kind of results for a function without array arguments."""
    return _NUMPY


def copy_of(array: Array) -> Array:
    """A copy of an array, of its framework if that has one."""
    if hasattr(array, "clone"):
        return array.detach().clone()
    return array.copy() if hasattr(array, "copy") else np.array(array)
