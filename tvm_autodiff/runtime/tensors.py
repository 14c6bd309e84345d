"""TVM's own arrays and devices.

A TVM array has a shape, a dtype and memory on a device, and is what kernels take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

#: ``empty(shape, dtype, device=None)``: a new array; the raw function, because calls use it for
#: results
empty = tvm.runtime.empty

cpu = tvm.cpu  #: the device of the host
gpu = tvm.cuda  #: the device of a number


def copied(array: np.ndarray) -> Any:
    """A copy of a numpy array as a TVM array, with the alignment that TVM requires."""
    return tvm.runtime.tensor(array)


def reinterpreted(array: Any, shape: Sequence[int], dtype: str) -> Any:
    """The memory of a TVM array as an array of another dtype of the same width."""
    return tvm.runtime.Tensor._create_view(array, shape, dtype)
