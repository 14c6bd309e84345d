"""Aligns the stack of functions with vectors, so that vectors which leave their registers lie on
one line of memory each.

LLVM aligns the stack to 16 bytes unless some variable on it needs more. It decides so before it
knows which registers it has to store there: these vectors then cross lines or not by chance of the
caller's stack, and a loop takes up to twice as long.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

from ...functions import with_llvm_code
from ...loop_nest import PARALLEL, Statement, sequence
from ...stages.primfunc import PrimFunc
from ...targets import cpu_architecture

_ALIGNED = "tvm_autodiff_aligned_stack"
#: LLVM keeps the variable, since something that it does not know takes its address
_CODE = f"""
define linkonce_odr i32 @{_ALIGNED}() alwaysinline {{
  %line = alloca [64 x i8], align 64
  call void asm sideeffect "", "r"(ptr %line) #0
  ret i32 0
}}
attributes #0 = {{ nounwind memory(inaccessiblemem: write) }}
"""


def with_aligned_stack(func: PrimFunc) -> PrimFunc:
    """A function with vectors on x86, whose stack and those of its threads begin with a line."""
    if cpu_architecture(func.attrs["target"]) != "x86" or not _has_vectors(func):
        return func

    def on_threads(node: Any) -> Any:
        if node.kind != PARALLEL:
            return node
        return tirx.For(
            node.loop_var, node.min, node.extent, node.kind, _aligned(node.body),
            node.thread_binding, node.annotations, node.step,
        )  # fmt: skip

    body = tvm_ffi.structural_map(func.body, (tirx.For, on_threads))
    made = tirx.PrimFunc(func.params, _aligned(body), func.ret_type, func.attrs)
    return with_llvm_code(made, _CODE)


def _aligned(body: Statement) -> Statement:
    return sequence([tirx.Evaluate(tirx.call_extern("int32", _ALIGNED)), body])


def _has_vectors(func: PrimFunc) -> bool:
    found: list[Any] = []
    kinds = (prim.Ramp, prim.Broadcast)
    tvm_ffi.structural_walk(func.body, [(kind, found.append) for kind in kinds])
    return bool(found)
