"""TVM's own arrays and devices.

A TVM array has a shape, a dtype and memory on a device, and is what kernels take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi

#: an array over the memory of another one, from its shape and dtype, and where it begins in it
_new_view = tvm_ffi.get_global_func("runtime.TVMTensorCreateView")

#: ``empty(shape, dtype, device=None)``: a new array; the raw function, because calls use it for
#: results
empty = tvm.runtime.empty

cpu = tvm.cpu  #: the device of the host
gpu = tvm.cuda  #: the device of a number


def copied(array: np.ndarray) -> Any:
    """A copy of a numpy array as a TVM array, with the alignment that TVM requires."""
    return tvm.runtime.tensor(array)


def reinterpreting(shape: Sequence[int], dtype: str) -> Callable[[Any], Any]:
    """What takes the memory of an array as a TVM array of a shape and dtype, of the same width."""
    whole, kind = tvm_ffi.Shape([int(dim) for dim in shape]), tvm_ffi.dtype(dtype)
    return lambda array: _new_view(array, whole, kind, 0)
