"""Compiles programs for CUDA for the CPU, with every loop over threads as a plain loop.

The tests of how a function is called use this. What kernels compute, and whether their threads wait
for each other, is tested on the generated CUDA C (`tests.cuda_on_cpu`).
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tests.schedule.cuda.scheduled import SM_90
from tvm_autodiff.codegen.passes.indices.opaque_indices import C_CAST, hide_divisions
from tvm_autodiff.codegen.stages.primfunc import relax_alignment
from tvm_autodiff.compile import lower
from tvm_autodiff.schedule.machine import as_target

CAST = "tirx.call_pure_extern"


def serialized(func: Any) -> Any:
    """The function with every loop as a serial one, including those over threads."""

    def plain(loop: Any) -> Any:
        kind = tirx.ForKind.SERIAL
        return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body, None, {})

    def portable(call: Any) -> Any:
        # an index hidden in a cast of C
        if str(getattr(call.op, "name", "")) != CAST:
            return call
        return tirx.reinterpret(str(call.ty), call.args[1])

    func = relax_alignment(hide_divisions(func, C_CAST))
    body = tvm_ffi.structural_map(func.body, (tvm.ir.Call, portable))
    body = tvm_ffi.structural_map(body, (tirx.For, plain))
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def on_cpu(inputs: Any, outputs: Any) -> Any:
    """A whole program for CUDA compiled for the CPU: the kernels, and the code that calls them."""
    module = lower(inputs, outputs, SM_90)
    functions = {
        var: serialized(func) if isinstance(func, tirx.PrimFunc) else func
        for var, func in module.functions_items()
    }
    return tvm.compile(tvm.IRModule(functions), target=as_target(None))
