"""How TVM lowers the kernels of a GPU and the functions that launch them: its own passes, and what
this package adds before TVM writes C.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from .passes.indices.size_divisions import with_sizes_divided
from .passes.short_circuit import ordered_for_c
from .passes.vectors.scalar_turns import with_scalar_turns

#: the name of the pipeline, as `tvm.compile` takes it
GPU_PIPELINE = "tvm_autodiff.gpu"


def _pipeline() -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = tirx.get_tir_pipeline("s_tir")
    return (
        tvm.transform.Sequential([with_scalar_turns, lower]),
        finish_host,
        lambda: tvm.transform.Sequential([ordered_for_c, with_sizes_divided, finish_device()]),
    )


tirx.register_tir_pipeline(GPU_PIPELINE, _pipeline)
