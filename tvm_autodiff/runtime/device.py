"""Compiled functions whose kernels run on a GPU.

In: a module compiled for CUDA, and its signature. Out: a callable like `CompiledFunction`. Where
there is no GPU, everything works but the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from ..errors import CallError
from .arrays import Array
from .compiled import CompiledFunction


class DeviceFunction(CompiledFunction):
    """A tensor program compiled for CUDA, called with arrays."""

    def __call__(self, *arrays: Array, out: Sequence[Array] | Array | None = None) -> Any:
        if not tvm.cuda(0).exist:
            raise CallError(
                "this function was built for CUDA, and there is no GPU that TVM can use here: "
                "build it with target=None to run it on the CPU"
            )
        return super().__call__(*arrays, out=out)
