"""Describes how machine code calls a compiled program without Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi

from ...codegen.host.direct_calls import EXCHANGE
from ...errors import InvalidArgumentError
from ..files.export import table_of
from ..files.manifest import Manifest


@dataclass(frozen=True)
class NativeCall:
    """The function ``main(-1, table, workspace, *arrays)`` of a program of constant sizes.

    Attributes
    ----------
    main : tvm_ffi.Function
    table : numpy.ndarray
        The array table, which each call copies; see `codegen.call_check`.
    dtypes : tuple of int
        The DLPack dtypes of inputs followed by outputs, four bytes each.
    workspace : int
        The bytes of temporaries, or 0.
    threads : int
        The number of threads among which loops are divided.
    """

    main: Any
    table: np.ndarray
    dtypes: tuple[int, ...]
    workspace: int
    threads: int

    def exchange(self, launch: int) -> int:
        """Divide loops with the function at an address, and return the address of the previous one.
        """
        return int(self.main(EXCHANGE, launch)) % 2**64


def native_call(executable: Any, manifest: Manifest, threads: int) -> NativeCall:
    """The description of a program's call.

    Raises
    ------
    InvalidArgumentError
        If it has symbolic sizes, or runs on a GPU.
    """
    if manifest.workspace is None:
        raise InvalidArgumentError(
            "only programs of constant sizes on a CPU can be called without Python"
        )
    dtypes = [
        tvm_ffi.dtype(spec.dtype)
        for spec in (*manifest.signature.inputs, *manifest.signature.outputs)
    ]
    codes = tuple(kind.type_code | kind.bits << 8 | kind.lanes << 16 for kind in dtypes)
    table = table_of(manifest)
    count = threads if manifest.parallel else 1
    return NativeCall(executable["main"], table, codes, manifest.workspace, count)
